package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/test/audit"
	"github.com/greylag/greylag/test/cluster"
)

// five is a cluster of five controllers, which tolerates the loss of two.
func five() cluster.Options {
	options := three()
	options.Controllers = 5
	return options
}

// TestTwoOfFiveKilled kills the leader and one more of five controllers at once, twice under load,
// and lets them come back.
func TestTwoOfFiveKilled(t *testing.T) {
	t.Parallel()
	ctx := limited(t, 4*hang)
	s := newSite(t, five())
	gate := s.gate("all are back")
	runs := s.submit(ctx, s.job("runs on", gate.then("exit 7")))
	s.await(ctx, runs, "RUNNING")
	stop := s.load(16)
	for range 2 {
		leader := s.leader(ctx)
		lost := []*cluster.Controller{leader, s.others(leader)[0]}
		for _, ctl := range lost {
			s.must(ctl.Kill())
		}
		t.Log("two of five were killed; submission acknowledged after", s.probe(ctx).Round(time.Millisecond))
		for _, ctl := range lost {
			s.must(ctl.Start())
		}
		for _, ctl := range lost {
			s.must(audit.AwaitFollower(ctx, s.Cluster, ctl))
		}
	}
	stop()
	gate.open()
	if job := s.await(ctx, runs, "FAILED"); job.ExitCode != 7 || job.Attempt != 1 {
		t.Errorf("job %d ended with %d in attempt %d, want 7 in the first", runs, job.ExitCode, job.Attempt)
	}
	s.idle(ctx)
	s.audit(ctx)
}

// TestThreeOfFiveKilled checks that without a majority nothing is acknowledged, and nothing is
// lost; with one of the three back, the cluster continues.
func TestThreeOfFiveKilled(t *testing.T) {
	t.Parallel()
	ctx := limited(t, 4*hang)
	options := five()
	options.Nodes = 0
	s := newSite(t, options)
	s.probe(ctx)
	for i := range 3 {
		s.must(s.Controller(i).Kill())
	}
	short := limited(t, 3*time.Second)
	if err := audit.Probe(short, s.client.Jobs(), s.answers); err == nil {
		t.Error("two of five controllers acknowledged a submission")
	}
	s.leaderless()
	s.must(s.Controller(1).Start())
	t.Log("three of five are up again; submission acknowledged after", s.probe(ctx).Round(time.Millisecond))
	for _, i := range []int{0, 2} {
		s.must(s.Controller(i).Start())
		s.must(audit.AwaitFollower(ctx, s.Cluster, s.Controller(i)))
	}
	s.audit(ctx)
}

// leaderless checks that read-only commands report the problem, and show stale data where that is
// useful.
func (s *site) leaderless() {
	s.t.Helper()
	for _, command := range [][]string{{"gqueue"}, {"gctl", "info"}} {
		began := time.Now()
		result := s.run(tester, command[0], command[1:]...)
		took := time.Since(began)
		s.t.Logf("%s says after %s: %s", command, took.Round(100*time.Millisecond), result.Stderr)
		if result.Exit != 5 || !strings.Contains(result.Stderr, "there is no leader: ") || strings.Count(result.Stderr, "refuses connections") != 3 {
			s.t.Errorf("%s: exit status %d after %s, want 5:\n%s", command, result.Exit, took, result.Stderr)
		}
		result = s.run(tester, command[0], append(command[1:], "--stale")...)
		if result.Exit != 0 || !strings.Contains(result.Stderr, "stale data: state of controller") {
			s.t.Errorf("%s --stale: exit status %d:\n%s", command, result.Exit, result.Stderr)
		}
	}
}
