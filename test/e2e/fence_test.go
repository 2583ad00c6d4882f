package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/test/cluster"
)

// TestFencing: the next attempt of a job that lost its node waits while the program that fences the node fails, and
// starts on another node when the program succeeds.
func TestFencing(t *testing.T) {
	t.Parallel()
	ctx, dir := limited(t, 2*hang), t.TempDir()
	program, off := filepath.Join(dir, "fence"), filepath.Join(dir, "off")
	if err := os.WriteFile(program, fmt.Appendf(nil, "#!/bin/sh\necho $1 >>%s/asked\n[ -e %s ] || { echo no route to the BMC >&2; exit 1; }\n", dir, off), 0o755); err != nil {
		t.Fatal(err)
	}
	policy := strings.Replace(quickKill(), `node_timeout = "30s"`, `node_timeout = "8s"`, 1) + "fencing = true\n"
	s := newSite(t, cluster.Options{Nodes: 2, GPUs: 1, CPUs: 4, Memory: "2GiB", Policy: policy, Fence: program, NodeConfig: "poll.report = \"1s\"\n"})
	id := s.gsubmit(tester, "--requeue", "--gpus=1", "--time=60", s.script(`[ "$GREYLAG_ATTEMPT" = 1 ] && exec sleep 1000; exit 9`))
	first := s.await(ctx, id, "RUNNING").Nodes[0].Node
	lost := s.Node(0)
	if lost.Name != first {
		lost = s.Node(1)
	}
	s.must(lost.Kill())
	s.until("a failure of the program", func() (bool, error) {
		text := s.ok(tester, "gctl", "show", "node", lost.Name)
		return strings.Contains(text, "no route to the BMC"), fmt.Errorf("%s", text)
	})
	if job := s.await(ctx, id, "PENDING"); job.Reason != greylagv1.Reason_REASON_NODE_FENCING {
		t.Errorf("the job waits with %s, want NodeFencing", job.Reason)
	}
	s.must(os.WriteFile(off, nil, 0o644))
	job := s.ends(id, "FAILED")
	asked, err := os.ReadFile(filepath.Join(dir, "asked"))
	s.must(err)
	if job.ExitCode != 9 || job.Attempt != 2 || job.Nodes[0].Node == first || !strings.HasPrefix(string(asked), strings.Repeat(first+"\n", 2)) {
		t.Errorf("the job ended with %d as attempt %d on %s; fenced: %q", job.ExitCode, job.Attempt, job.Nodes[0].Node, asked)
	}
	s.must(lost.Start())
	s.must(s.AwaitNode(ctx, lost.Name, "IDLE"))
	s.audit(ctx)
}

// TestOutputLimit: a job that writes its output without end is killed by its node.
func TestOutputLimit(t *testing.T) {
	t.Parallel()
	ctx := limited(t, hang)
	s := newSite(t, cluster.Options{Nodes: 1, GPUs: 1, CPUs: 4, Memory: "2GiB", Policy: quickKill() + "max_output = \"2M\"\n"})
	id := s.gsubmit(tester, "--gpus=1", "--time=60", "--output=flood", s.script("head -c 3000000 /dev/zero; sleep 1000"))
	job := s.ends(id, "FAILED")
	if job.Reason != greylagv1.Reason_REASON_OUTPUT_LIMIT || !strings.Contains(job.Detail, "flood has ") || !strings.Contains(job.Detail, "more than max_output = 2M") {
		t.Errorf("the job ended: %s, %q, want OutputLimit", job.Reason, job.Detail)
	}
	if out := s.output("flood"); !strings.HasSuffix(out, "KILLED: its output exceeds max_output = 2M ***\n") {
		t.Errorf("the output ends with %q", out[max(0, len(out)-100):])
	}
	s.audit(ctx)
}
