package e2e

import (
	"testing"
	"time"

	"github.com/greylag/greylag/test/audit"
)

// TestLeaderKilled kills the leader with SIGKILL repeatedly under load.
func TestLeaderKilled(t *testing.T) {
	t.Parallel()
	ctx := limited(t, 4*hang)
	s := newSite(t, three())
	stop := s.load(64)
	var took []time.Duration
	for range 5 {
		span, err := audit.Failover(ctx, s.Cluster, s.client.Jobs(), s.answers)
		s.must(err)
		took = append(took, span.Round(time.Millisecond))
	}
	stop()
	t.Log("from the kill to the next acknowledged submission:", took)
	s.idle(ctx)
	s.audit(ctx)
}

// TestAllControllersKilled kills all controllers at once. Running jobs are not affected.
func TestAllControllersKilled(t *testing.T) {
	t.Parallel()
	ctx := limited(t, 4*hang)
	s := newSite(t, three())
	later, soon := s.gate("later"), s.gate("soon")
	runs := s.submit(ctx, s.job("runs on", later.then("exit 7")))
	ends := s.submit(ctx, s.job("ends meanwhile", soon.then("exit 5")))
	s.await(ctx, runs, "RUNNING")
	s.await(ctx, ends, "RUNNING")
	stop := s.load(32)
	for range 2 {
		s.wait(ctx, time.Second)
		for _, ctl := range s.Controllers() {
			s.must(ctl.Kill())
		}
		soon.open()
		s.wait(ctx, time.Second)
		for _, ctl := range s.Controllers() {
			s.must(ctl.Start())
		}
		t.Log("all were killed; submission acknowledged after", s.probe(ctx).Round(time.Millisecond))
	}
	stop()
	later.open()
	for id, code := range map[uint64]int32{runs: 7, ends: 5} {
		if job := s.await(ctx, id, "FAILED"); job.ExitCode != code || job.Attempt != 1 {
			t.Errorf("job %d ended with %d in attempt %d, want %d in the first", id, job.ExitCode, job.Attempt, code)
		}
	}
	s.idle(ctx)
	s.audit(ctx)
}

// TestLeaderPaused stops the leader for seconds repeatedly under load. It continues in the belief
// that it still leads.
func TestLeaderPaused(t *testing.T) {
	t.Parallel()
	ctx := limited(t, 4*hang)
	s := newSite(t, three())
	stop := s.load(32)
	for _, span := range []time.Duration{time.Second, 3 * time.Second, time.Second, 5 * time.Second, 2 * time.Second} {
		leader := s.leader(ctx)
		s.must(leader.Pause())
		s.wait(ctx, span)
		s.must(leader.Resume())
		s.must(audit.AwaitFollower(ctx, s.Cluster, leader))
	}
	stop()
	s.idle(ctx)
	s.audit(ctx)
}
