package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/test/cluster"
)

// exitRemoved is the exit status of a controller that was removed from the cluster.
const exitRemoved = 77

// TestControllersComeAndGo removes one controller after another under load, every third time the
// leader, and joins each again with a new token. Every fourth one is also removed right after its
// join, and every fifth one is down while it is removed.
func TestControllersComeAndGo(t *testing.T) {
	t.Parallel()
	rounds := 6
	if everyFault() {
		rounds = 20
	}
	ctx := limited(t, 4*hang)
	s := newSite(t, three())
	stop := s.load(4)
	var ids []string
	for round := range rounds {
		leader := s.leader(ctx)
		ctl := s.others(leader)[round%2]
		if round%3 == 2 {
			ctl = leader
		}
		ids = append(ids, s.removeController(ctx, ctl, round%5 == 1))
		if round%4 == 3 {
			s.must(s.JoinController(ctx, ctl))
			ids = append(ids, s.removeController(ctx, ctl, false))
		}
		s.must(s.JoinController(ctx, ctl))
		s.awaitVoters(ctx, 3)
	}
	stop()
	s.probe(ctx)
	for _, m := range s.awaitVoters(ctx, 3) {
		if slices.Contains(ids, m.Id) {
			t.Errorf("%s was removed and is a member", m.Id)
		}
	}
	s.idle(ctx)
	s.audit(ctx)
}

// TestLeadersRemovedDownToOne removes the leader of three controllers and then that of the two that
// are left. The last one continues alone.
func TestLeadersRemovedDownToOne(t *testing.T) {
	t.Parallel()
	ctx := limited(t, 4*hang)
	options := three()
	options.Nodes = 0
	s := newSite(t, options)
	s.submitWaiting(ctx, 50, "before")
	for left := 2; left > 0; left-- {
		s.removeController(ctx, s.leader(ctx), false)
		s.awaitVoters(ctx, left)
		s.probe(ctx)
	}
	last := s.leader(ctx)
	status, err := last.Status(ctx)
	s.must(err)
	if result := s.run(tester, "gctl", "cluster", "remove", status.Id); result.Exit == 0 || !strings.Contains(result.Stderr, "last") {
		t.Errorf("the last controller is removed: %+v", result)
	}
	s.must(last.Kill())
	s.must(last.Start())
	s.probe(ctx)
	s.audit(ctx)
}

// TestControllerWhoseDataWasSetAside checks a controller that lost its log: it ends, and the
// service manager restarts it. It waits under a new ID and becomes a member once the old one is
// removed.
func TestControllerWhoseDataWasSetAside(t *testing.T) {
	t.Parallel()
	ctx := limited(t, 4*hang)
	options := three()
	options.Nodes = 0
	s := newSite(t, options)
	s.submitWaiting(ctx, 50, "before")
	loser := s.others(s.leader(ctx))[0]
	old, err := loser.Status(ctx)
	s.must(err)
	s.must(loser.Kill())
	s.must(os.Remove(raftDB(loser)))
	s.must(loser.Start())
	s.must(loser.WaitEnd(hang))
	if code := loser.ExitCode(); code != 76 {
		t.Fatalf("the controller without its log ended with %d, want 76", code)
	}
	s.must(loser.Start())
	s.until("it asks to be added", func() (bool, error) {
		return strings.Contains(loser.LogTail(4000), "gctl cluster remove "+old.Id), fmt.Errorf("%s", loser.LogTail(4000))
	})
	again, err := loser.Status(ctx)
	s.must(err)
	members := s.awaitVoters(ctx, 3)
	if again.Id == old.Id || slices.ContainsFunc(members, func(m *greylagv1.Member) bool { return m.Id == again.Id }) {
		t.Errorf("it came back as %s, members %v", again.Id, members)
	}
	s.ok(tester, "gctl", "cluster", "remove", old.Id)
	members = s.awaitVoters(ctx, 3)
	if !slices.ContainsFunc(members, func(m *greylagv1.Member) bool { return m.Id == again.Id }) {
		t.Errorf("it is not added as %s: %v", again.Id, members)
	}
	s.audit(ctx)
}

// removeController removes a controller, which is stopped for that if it is to be down, waits until
// it has ended with the status for that, starts it once more with its data, and empties its folders.
// It returns the member's ID.
func (s *site) removeController(ctx context.Context, ctl *cluster.Controller, down bool) string {
	s.t.Helper()
	status, err := ctl.Status(ctx)
	s.must(err)
	if down {
		s.must(ctl.Stop())
	}
	begun := time.Now()
	s.until(ctl.Name+" is removed", func() (bool, error) {
		result := s.run(tester, "gctl", "cluster", "remove", status.Id)
		return result.Exit == 0, fmt.Errorf("%s", result.Stderr)
	})
	if down {
		s.must(ctl.Start())
	}
	s.endsRemoved(ctl)
	s.t.Logf("%s was removed (down: %t) and ended after %s", ctl.Name, down, time.Since(begun).Round(time.Millisecond))
	s.must(ctl.Start())
	s.endsRemoved(ctl)
	s.must(ctl.Empty())
	return status.Id
}

// endsRemoved waits until a controller ends because it was removed.
func (s *site) endsRemoved(ctl *cluster.Controller) {
	s.t.Helper()
	s.must(ctl.WaitEnd(time.Minute))
	if code, log := ctl.ExitCode(), ctl.LogTail(2000); code != exitRemoved || !strings.Contains(log, "gctl join TOKEN@CONTROLLER") {
		s.t.Fatalf("%s was removed and ended with %d, want %d and how to join it again:\n%s", ctl.Name, code, exitRemoved, log)
	}
}

// awaitVoters waits until the leader has n members, all of them voters, each on an address of its
// own, and returns them.
func (s *site) awaitVoters(ctx context.Context, n int) (members []*greylagv1.Member) {
	s.t.Helper()
	s.until(fmt.Sprint(n, " voters"), func() (bool, error) {
		status, err := s.leader(ctx).Status(ctx)
		if err != nil {
			return false, err
		}
		addresses := map[string]bool{}
		for _, m := range status.Members {
			if addresses[m.Address] {
				s.t.Errorf("two members of %s: %v", m.Address, status.Members)
			}
			addresses[m.Address] = true
		}
		learners := slices.ContainsFunc(status.Members, func(m *greylagv1.Member) bool { return !m.Voter })
		members = status.Members
		return len(members) == n && !learners, fmt.Errorf("members %v", members)
	})
	return members
}
