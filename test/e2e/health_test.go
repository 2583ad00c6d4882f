package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/test/cluster"
)

// setFaults sets the faults of the simulated GPUs of a node, one a line.
func (s *site) setFaults(node int, lines ...string) {
	s.t.Helper()
	path := filepath.Join(s.gpuDir(node), "faults")
	s.must(os.WriteFile(path+".new", []byte(strings.Join(lines, "\n")+"\n"), 0o644))
	s.must(os.Rename(path+".new", path))
}

// TestGPUFallsOffTheBus: its job runs again on another node, its node is drained with a reason and shows
// the repair, also after a restart of gnoded.
func TestGPUFallsOffTheBus(t *testing.T) {
	t.Parallel()
	ctx := limited(t, 4*hang)
	s := newSite(t, cluster.Options{Nodes: 2, GPUs: 2, CPUs: 16, Memory: "4GiB", Tmpfs: true})
	spec := s.job("falls", "sleep 1000")
	spec.Request.GpusPerNode = 1
	id := s.submit(ctx, spec)
	job := s.await(ctx, id, "RUNNING")
	at := 0
	if job.Nodes[0].Node != s.Node(0).Name {
		at = 1
	}
	name, other := s.Node(at).Name, s.Node(1-at).Name
	s.setFaults(at, strconv.Itoa(int(job.Nodes[0].Gpus[0]))+" xid79")
	s.until("a second attempt", func() (bool, error) {
		job, err := s.get(ctx, id)
		return err == nil && job.Attempt == 2 && job.State == greylagv1.JobState_JOB_STATE_RUNNING && job.Nodes[0].Node == other, err
	})
	text := s.ok(tester, "gctl", "show", "node", name)
	for _, want := range []string{"DRAINED", "gnoded", "it has fallen off the bus (XID 79): reboot, check power and seating", "(reboot required: gctl reboot " + name + ")"} {
		if !strings.Contains(text, want) {
			t.Errorf("gctl show node %s: no %q in\n%s", name, want, text)
		}
	}
	if info := s.run(tester, "gctl", "info"); !strings.Contains(info.Stderr, "reboot required: "+name) {
		t.Errorf("gctl info: %q", info.Stderr)
	}
	s.must(s.Node(at).Kill())
	s.setFaults(at)
	s.must(s.Node(at).Start())
	s.until("a report of the new daemon", func() (bool, error) {
		text, err := os.ReadFile(s.Node(at).Textfile())
		return err == nil && strings.Contains(string(text), `greylag_gpu_healthy{gpu="0"`), err
	})
	s.wait(ctx, 2*time.Second)
	s.must(s.AwaitNode(ctx, name, "DRAINED"))
	s.cancel(ctx, id)
}

// TestBreakerOfDrains: of four nodes with the same fault, two are drained; the others stay in service and are
// shown.
func TestBreakerOfDrains(t *testing.T) {
	t.Parallel()
	ctx := limited(t, 4*hang)
	s := newSite(t, cluster.Options{Nodes: 4, GPUs: 1, CPUs: 4, Memory: "1GiB", Tmpfs: true})
	count := func() (drained, reported int) {
		for _, n := range s.Nodes() {
			text := s.ok(tester, "gctl", "show", "node", n.Name)
			if strings.Contains(text, "DRAINED") {
				drained++
			}
			if strings.Contains(text, "auxiliary power is not connected (XID 54)") {
				reported++
			}
		}
		return drained, reported
	}
	for i := range s.Nodes() {
		s.setFaults(i, "0 xid54")
	}
	s.until("conditions of all nodes", func() (bool, error) { _, reported := count(); return reported == 4, nil })
	if drained, _ := count(); drained != 2 {
		t.Errorf("%d nodes are drained, want 2", drained)
	}
	if info := s.run(tester, "gctl", "info"); !strings.Contains(info.Stderr, "not drained, as too many nodes were: ") {
		t.Errorf("gctl info: %q", info.Stderr)
	}
	s.audit(ctx)
}

// TestProgramErrorsAreNotices: a user reads in the output of the job that the program made an illegal access.
// The GPU stays in service.
func TestProgramErrorsAreNotices(t *testing.T) {
	t.Parallel()
	ctx := limited(t, 4*hang)
	s := newSite(t, cluster.Options{Nodes: 1, GPUs: 1, CPUs: 4, Memory: "1GiB", Tmpfs: true})
	id := s.gsubmit(tester, "--gpus=1", "--output="+filepath.Join(s.Work, "out-%j"), s.script("sleep 1000"))
	s.await(ctx, id, "RUNNING")
	name := "out-" + strconv.FormatUint(id, 10)
	s.until("the output", func() (bool, error) { return s.exists(name), nil })
	s.setFaults(0, "0 xid31")
	s.until("a notice", func() (bool, error) {
		return strings.Contains(s.output("%s", name), "GPU 0: GPU memory page fault: illegal memory access by the program (XID 31)"), nil
	})
	if text := s.ok(tester, "gctl", "show", "node", s.Node(0).Name); strings.Contains(text, "condition") || strings.Contains(text, "bad") {
		t.Errorf("gctl show node: %s", text)
	}
	s.cancel(ctx, id)
}
