package raftlog

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestBootstrapOnlyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		f.grow(2)
		for _, n := range f.nodes {
			if err := n.Bootstrap(); !errors.Is(err, ErrHasState) {
				t.Errorf("bootstrap of a member: %v", err)
			}
		}
		again := f.restart(f.followers()[0])
		if err := again.Bootstrap(); !errors.Is(err, ErrHasState) {
			t.Errorf("bootstrap after a restart: %v", err)
		}
	})
}

// TestClosedLeaderIsSucceededSoon checks that a cluster continues within a few elections after its
// leader is closed.
func TestClosedLeaderIsSucceededSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		f.grow(3)
		start := time.Now()
		f.leader().Close()
		f.propose("after")
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("a leader that closes costs %v", took)
		}
	})
}

func TestLearnerGetsItsVoteWhenItHasCaughtUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		f.grow(1)
		f.propose("x")
		slow := f.start(f.config("slow"))
		f.until("learner", func() bool {
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // no time to catch up: it stays a learner
			err := f.leader().AddMember(ctx, "slow", slow.cfg.Addr)
			return errors.Is(err, ErrOutcomeUnknown) || errors.Is(err, ErrNotCaughtUp)
		})
		time.Sleep(time.Second)
		want := []Member{{"a", "a:1", true}, {"slow", "slow:1", false}}
		if got := f.leader().Status().Members; !slices.Equal(got, want) {
			t.Errorf("members %v", got)
		}
		f.must(f.leader().AddMember(f.ctx(), "slow", slow.cfg.Addr))
		want[1].Voter = true
		if got := f.leader().Status().Members; !slices.Equal(got, want) {
			t.Errorf("members %v", got)
		}
	})
}

func TestMembersOfAnotherClusterAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		f.grow(1)
		cfg := f.config("foreign")
		cfg.ClusterID = "other"
		foreign := f.start(cfg)
		if err := f.leader().AddMember(f.ctx(), "foreign", cfg.Addr); !errors.Is(err, ErrWrongCluster) {
			t.Errorf("foreign member added: %v", err)
		}
		if err := f.leader().AddMember(f.ctx(), "imposter", f.leader().cfg.Addr); !errors.Is(err, ErrWrongMember) {
			t.Errorf("another id answers there: %v", err)
		}
		if _, _, err := foreign.mux.dial(useRaft, f.leader().target(), time.Second); !errors.Is(err, ErrWrongCluster) {
			t.Errorf("foreign member's raft connection: %v", err)
		}
	})
}

func TestRemovedMemberStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		f.grow(4)
		gone := f.followers()
		// One receives its removal; one is cut off while it is removed and learns it later; the
		// leader removes itself.
		f.must(f.leader().RemoveMember(f.ctx(), gone[0].self.ID))
		f.isolate(gone[1], true)
		f.must(f.leader().RemoveMember(f.ctx(), gone[1].self.ID))
		f.isolate(gone[1], false)
		leader := f.leader()
		f.must(leader.RemoveMember(f.ctx(), leader.self.ID))
		for _, n := range []*node{gone[0], gone[1], leader} {
			select {
			case <-n.Done():
			case <-time.After(2 * time.Minute):
				t.Fatalf("%s goes on: %+v", n.self.ID, n.Status())
			}
			if !errors.Is(n.Err(), ErrRemoved) {
				t.Errorf("%s stopped with %v", n.self.ID, n.Err())
			}
		}
		last := f.leader()
		if err := last.RemoveMember(f.ctx(), last.self.ID); !errors.Is(err, ErrLastVoter) {
			t.Errorf("last voter removed: %v", err)
		}
		if err := last.Transfer(f.ctx(), ""); !errors.Is(err, ErrOnlyVoter) {
			t.Errorf("leadership of the last voter transferred: %v", err)
		}
		if err := last.RemoveMember(f.ctx(), "unknown"); !errors.Is(err, ErrNoMember) {
			t.Errorf("unknown member removed: %v", err)
		}
		f.propose("one goes on")
	})
}

// wipe empties a member's directory and opens it again under the same id.
func wipe(f *fleet, n *node) *node {
	n.Close()
	f.must(os.RemoveAll(n.cfg.Dir))
	return f.restart(n)
}

// TestWipedMemberDoesNotVote checks that a member that lost its directory does not count: it has
// forgotten its votes and what it acknowledged, even if its configuration still gives the same ID.
func TestWipedMemberDoesNotVote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		f.grow(3)
		f.propose("kept")
		wiped := wipe(f, f.followers()[0])
		f.propose("more")
		time.Sleep(time.Minute)
		if s := wiped.Status(); s.LastIndex != 0 || s.Term != 0 {
			t.Errorf("it takes part: %+v", s)
		}
		// With it alone, no leader: other members may have the entries that the lost member held.
		leader := f.leader()
		leader.Close()
		time.Sleep(time.Minute)
		for _, n := range f.nodes {
			if n.IsLeader() {
				t.Errorf("%s leads with a vote that should not have been given", n.self.ID)
			}
		}
		f.restart(leader)
		f.must(f.leader().RemoveMember(f.ctx(), wiped.self.ID))
		f.must(f.leader().AddMember(f.ctx(), wiped.self.ID, wiped.cfg.Addr))
		if got := f.same(); !slices.Equal(got, []string{"kept", "more"}) {
			t.Errorf("state %v", got)
		}
	})
}

func TestEmptyDirectoryGetsANewID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		cfg := f.config("")
		cfg.Addr = "x:1"
		n := f.start(cfg)
		first := n.self.ID
		n = f.restart(n)
		if n.self.ID != first {
			t.Errorf("restart changed the id from %s to %s", first, n.self.ID)
		}
		if n = wipe(f, n); n.self.ID == first {
			t.Errorf("a wiped member came back as %s", first)
		}
		cfg.ID = "other"
		if _, err := f.open(cfg, &journal{}); !errors.Is(err, ErrIdentity) {
			t.Errorf("another member's directory: %v", err)
		}
	})
}
