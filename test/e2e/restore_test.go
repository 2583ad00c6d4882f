package e2e

import (
	"context"
	"fmt"
	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"path/filepath"
	"strings"
	"testing"
)

// TestRestoreFromABackup restores a cluster of three controllers while its nodes continue: jobs
// that ran at the backup run on, pending ones run, later ones are removed from the nodes, and a job
// that gets a number of the lost time is another one. The history was left out, or not.
func TestRestoreFromABackup(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]string{"state alone": nil, "with history": {"--with-history"}} {
		t.Run(name, func(t *testing.T) { restoreFromABackup(t, options...) })
	}
}

func restoreFromABackup(t *testing.T, options ...string) {
	ctx := limited(t, 6*hang)
	site := three()
	site.Nodes, site.Policy = 2, quickKill()
	s := newSite(t, site)
	gate := s.gate("restored")
	s.ends(s.gsubmit(tester, s.script("exit 0")), "COMPLETED")
	known := s.script("exit 3")
	runs, ends := s.gsubmit(tester, s.script(gate.then("exit 7"))), s.gsubmit(tester, "--no-requeue", s.script(s.gate("ends").then("exit 0")))
	s.await(ctx, runs, "RUNNING")
	s.await(ctx, ends, "RUNNING")
	waits := []uint64{s.gsubmit(tester, "--hold", known), s.gsubmit(tester, "--dependency=afterany:"+ref(runs), s.script("exit 4"))}
	backup := filepath.Join(s.Dir, "backup")
	during, stop := s.submitAllTheTime(known)
	saved := s.run(tester, "gctl", append([]string{"cluster", "snapshot", "-o", backup}, options...)...)
	stop()
	if left := strings.Contains(saved.Stderr, "history left out"); saved.Exit != 0 || left != (options == nil) {
		t.Fatalf("snapshot: %+v", saved)
	}
	s.gate("ends").open()
	s.ends(ends, "COMPLETED")
	lost := s.gsubmit(tester, s.script("sleep 1000"))
	s.await(ctx, lost, "RUNNING")
	s.must(s.Restore(ctx, backup))

	if job := s.await(ctx, runs, "RUNNING"); job.Attempt != 1 {
		t.Errorf("the job that ran at the backup is in attempt %d", job.Attempt)
	}
	s.ends(ends, "NODE_FAIL") // only the lost time knows its end
	for _, id := range during {
		if job, err := s.get(ctx, id); err == nil && job.Id == id { // those that are in the backup
			s.ends(id, "FAILED")
		}
	}
	var again uint64
	for again < lost { // numbers of the lost time are assigned a second time
		again = s.gsubmit(tester, s.script("exit 9"))
	}
	if job := s.ends(again, "FAILED"); job.ExitCode != 9 || job.Attempt != 1 {
		t.Errorf("a job with the number of a lost one: exit %d in attempt %d", job.ExitCode, job.Attempt)
	}
	if job := s.ends(s.gsubmit(tester, known), "FAILED"); job.ExitCode != 3 {
		t.Errorf("a new job with a known script: exit %d", job.ExitCode)
	}
	gate.open()
	s.ok(tester, "gctl", "release", ref(waits[0]))
	for i, id := range waits {
		if job := s.ends(id, "FAILED"); job.ExitCode != int32(3+i) {
			t.Errorf("job %d that waited: exit %d", id, job.ExitCode)
		}
	}
	s.ends(runs, "FAILED")
	s.rightAfterRestore(ctx, runs, options == nil)
}

// submitAllTheTime submits jobs of a script until it is stopped.
func (s *site) submitAllTheTime(script string) (ids []uint64, stop func()) {
	ids = append(ids, s.gsubmit(tester, script))
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ended:
				return
			default:
				s.run(tester, "gsubmit", small(script)...)
			}
		}
	}()
	return ids, func() { close(ended); <-done }
}

// rightAfterRestore checks the restored cluster: on every controller the journals are whole, stale
// reads are answered and no warning repeats; the nodes are clean.
func (s *site) rightAfterRestore(ctx context.Context, job uint64, leftOut bool) {
	s.idle(ctx)
	for _, ctl := range s.Controllers() {
		s.until(ctl.Name+" has all history", func() (bool, error) {
			shown, err := s.RunAt(ctx, ctl, "gctl", "show", "job", "--stale", ref(job))
			return err == nil && shown.Exit == 0, fmt.Errorf("%s: %w", shown.Stderr, err)
		})
		if queue, err := s.RunAt(ctx, ctl, "gqueue", "--stale"); err != nil || queue.Exit != 0 {
			s.t.Errorf("gqueue --stale at %s: %+v, %v", ctl.Name, queue, err)
		}
		if text := s.ok(tester, "gctl", "verify", "--controller", ctl.Addr); strings.Contains(text, "checked from entry") != leftOut {
			s.t.Errorf("gctl verify at %s: %s", ctl.Name, text)
		}
		log := ctl.LogTail(1 << 20)
		named := strings.Contains(log, "restored from a backup without history")
		if ctl == s.Controller(0) && named != leftOut { // the others join it later
			s.t.Errorf("the log of %s names the restore: %t", ctl.Name, named)
		}
		if n := strings.Count(log, "the archive is not complete"); n > 3 {
			s.t.Errorf("%s warns %d times of its archive", ctl.Name, n)
		}
	}
	if text := s.run(tester, "gctl", "doctor").Stdout; strings.Contains(text, "backup without history") != leftOut {
		s.t.Errorf("gctl doctor: %s", text)
	}
	for _, node := range s.Nodes() {
		s.until(node.Name+" is clean", func() (bool, error) {
			n, err := s.NodeInfo(ctx, node.Name)
			return err == nil && n.State == greylagv1.NodeState_NODE_STATE_IDLE, fmt.Errorf("%v: %w", n, err)
		})
	}
}
