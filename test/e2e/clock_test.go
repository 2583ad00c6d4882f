package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/greylag/greylag/test/audit"
	"github.com/greylag/greylag/test/cluster"
)

// setClocks moves every controller's clock.
func (s *site) setClocks(offset time.Duration) {
	s.t.Helper()
	for _, ctl := range s.Controllers() {
		s.must(ctl.SetClock(offset))
	}
}

// handovers returns how often a leader has transferred leadership because of its clock.
func (s *site) handovers() (n int) {
	for _, ctl := range s.Controllers() {
		n += strings.Count(ctl.LogTail(1<<20), "clock is off: handing leadership over")
	}
	return n
}

// TestClocksJump moves the leader's clock by an hour, then all clocks, forward and back. A job with
// a limit of half an hour runs on, users with correct clocks are served, and elections stay few.
func TestClocksJump(t *testing.T) {
	t.Parallel()
	ctx := limited(t, 4*hang)
	options := three()
	options.Clocks = true
	s := newSite(t, options)
	job := s.job("limited", "sleep 1000")
	job.TimeLimit = durationpb.New(30 * time.Minute)
	limited := s.submit(ctx, job)
	s.await(ctx, limited, "RUNNING")

	leader := s.leader(ctx)
	s.must(leader.SetClock(time.Hour))
	s.must(cluster.Until(ctx, "another controller leads", func() (bool, error) {
		i, err := s.Leader(ctx)
		return err == nil && s.Controller(i) != leader, err
	}))
	s.probe(ctx)
	s.must(leader.SetClock(0))
	s.stillRuns(ctx, limited)

	// When all clocks jump together only the login node's clock is right, and its users are refused
	// until clocks agree again.
	before := s.handovers()
	for _, offset := range []time.Duration{time.Hour, -time.Hour} {
		s.setClocks(offset)
		s.wait(ctx, 3*time.Second)
		err := audit.Probe(ctx, s.client.Jobs(), s.answers)
		if connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Errorf("all controllers' clocks are off by %s, and a submission says %v", offset, err)
		}
		s.setClocks(0)
		t.Log("all clocks were off by", offset, "submission acknowledged after", s.probe(ctx).Round(time.Millisecond))
		s.stillRuns(ctx, limited)
	}
	if n := s.handovers() - before; n > 3 {
		t.Errorf("leadership was handed over %d times while clocks moved together", n)
	}
	s.cancel(ctx, limited)
	s.await(ctx, limited, "CANCELLED")
	s.must(audit.Audit{Cluster: s.Cluster, Answers: s.answers, Runs: &s.runs}.Digests(ctx))
}

// TestWrongClockAtStart starts a controller whose clock is an hour ahead and makes it the leader:
// it transfers leadership before it stamps anything, or a job with a limit of half an hour would
// end.
func TestWrongClockAtStart(t *testing.T) {
	t.Parallel()
	ctx := limited(t, 4*hang)
	options := three()
	options.Clocks = true
	s := newSite(t, options)
	job := s.job("limited", "sleep 1000")
	job.TimeLimit = durationpb.New(30 * time.Minute)
	limited := s.submit(ctx, job)
	s.await(ctx, limited, "RUNNING")
	wrong := s.others(s.leader(ctx))[0]
	status, err := wrong.Status(ctx)
	s.must(err)
	s.must(wrong.Stop())
	s.must(wrong.SetClock(time.Hour))
	s.must(wrong.Start())
	for range 3 {
		s.until("leadership is handed to it", func() (bool, error) { // once it is up
			result := s.run(tester, "gctl", "cluster", "transfer", status.Id)
			return result.Exit == 0, fmt.Errorf("exit status %d: %s", result.Exit, result.Stderr)
		})
		for begun := time.Now(); time.Since(begun) < 2*time.Second; {
			before := time.Now()
			id := s.submit(ctx, s.job("stamped", "exit 0"))
			got, err := s.get(ctx, id)
			s.must(err)
			if ahead := got.Submitted.AsTime().Sub(before); ahead > time.Minute {
				t.Fatalf("a submission is stamped %s ahead of time", ahead)
			}
			s.wait(ctx, 100*time.Millisecond)
		}
	}
	s.stillRuns(ctx, limited)
	s.cancel(ctx, limited)
	s.await(ctx, limited, "CANCELLED")
	s.must(wrong.SetClock(0)) // it accepts no token before that
	s.idle(ctx)
	s.must(audit.Audit{Cluster: s.Cluster, Answers: s.answers, Runs: &s.runs}.Digests(ctx))
}
