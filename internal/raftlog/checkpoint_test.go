package raftlog

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

func twisted(text string) string {
	if text == "bad" {
		return "twisted"
	}
	return text
}

func reason(f *fleet, n *node) string {
	select {
	case r := <-n.fatal:
		return r
	case <-time.After(time.Minute):
		f.t.Helper()
		f.t.Fatal("the member did not stop")
		return ""
	}
}

// TestDivergedFollowerStops checks that a replica whose state differs stops, that the next start
// sets its data aside, and that it rejoins as a new member.
func TestDivergedFollowerStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		f.grow(3)
		sick := f.followers()[0]
		sick.fsm.twist = twisted
		f.propose("bad")
		f.propose("more")
		if r := reason(f, sick); !strings.HasPrefix(r, "76 state diverged") {
			t.Errorf("stopped with %q", r)
		}
		f.propose("others go on")
		if got := sick.fsm.list(); slices.Contains(got, "others go on") {
			t.Errorf("entries still reach the stopped state machine: %v", got)
		}
		cfg := sick.cfg
		again := f.restart(sick)
		if !again.Status().Fresh {
			t.Errorf("came back with state: %+v", again.Status())
		}
		aside, _ := filepath.Glob(filepath.Join(cfg.Dir, "quarantine-*", databaseFile))
		if len(aside) != 1 {
			t.Errorf("set aside: %v", aside)
		}
		if err := f.leader().AddMember(f.ctx(), cfg.ID, cfg.Addr); !errors.Is(err, ErrWrongMember) {
			t.Errorf("it was taken for the member it was: %v", err)
		}
		f.must(f.leader().RemoveMember(f.ctx(), cfg.ID))
		f.must(f.leader().AddMember(f.ctx(), cfg.ID, cfg.Addr))
		if got := f.same(); !slices.Equal(got, []string{"bad", "more", "others go on"}) {
			t.Errorf("state %v", got)
		}
	})
}

// TestDivergedLeaderStops checks that a leader whose state differs stops, and not the others.
func TestDivergedLeaderStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		f.grow(3)
		sick := f.leader()
		sick.fsm.twist = twisted
		f.propose("bad")
		if r := reason(f, sick); !strings.HasPrefix(r, "76 state diverged") {
			t.Errorf("stopped with %q", r)
		}
		if _, err := os.Stat(filepath.Join(sick.cfg.Dir, quarantineFile)); err != nil {
			t.Errorf("not marked: %v", err)
		}
		f.propose("others go on")
		if got := f.same(); !slices.Equal(got, []string{"bad", "others go on"}) {
			t.Errorf("state %v", got)
		}
	})
}

func TestEqualStatesGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		f.grow(3)
		f.propose("x")
		before := f.leader().Status().CommitIndex
		time.Sleep(10 * time.Minute)
		if got := f.leader().Status().CommitIndex - before; got < 55 || got > 65 {
			t.Errorf("%d checkpoints in 10 minutes", got)
		}
		for _, n := range f.nodes {
			if n.Err() != nil {
				t.Errorf("stopped: %v", n.Err())
			}
		}
	})
}

func TestCompareDigests(t *testing.T) {
	voter := func(digest uint64) peerAnswer {
		return peerAnswer{server: raft.Server{Suffrage: raft.Voter}, peerStatus: peerStatus{DigestKnown: true, Digest: digest}}
	}
	other := voter(2)
	other.DigestVersion = 9
	learner := voter(2)
	learner.server.Suffrage = raft.Nonvoter
	silent := peerAnswer{err: errors.New("silent")}
	for _, c := range []struct {
		name    string
		answers []peerAnswer
		need    int
		want    finding
	}{
		{"alone", nil, 1, agreed},
		{"all", []peerAnswer{voter(1), voter(1)}, 2, agreed},
		{"one differs", []peerAnswer{voter(2), voter(1)}, 2, agreed},
		{"one differs, one silent", []peerAnswer{voter(2), silent}, 2, undecided},
		{"both differ alike", []peerAnswer{voter(2), voter(2)}, 2, outvoted},
		{"all differ", []peerAnswer{voter(2), voter(3)}, 2, undecided},
		{"learners have no say", []peerAnswer{learner, learner, silent, silent}, 3, undecided},
		{"another version says nothing", []peerAnswer{other, other}, 2, undecided},
		{"nor does it hinder", []peerAnswer{other, voter(1)}, 2, agreed},
		{"five, two sick alike", []peerAnswer{voter(2), voter(2), voter(1), voter(1)}, 3, agreed},
	} {
		if got := compare(checkpoint{digest: 1}, c.answers, c.need); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestPanicInTheStateMachineStopsTheMemberButKeepsItsData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		f.grow(3)
		sick := f.followers()[0]
		sick.fsm.panicOn = "poison"
		f.propose("poison")
		if r := reason(f, sick); !strings.Contains(r, "state machine panicked: poison") {
			t.Errorf("stopped with %q", r)
		}
		again := f.restart(sick)
		f.until("replay", func() bool { return slices.Equal(again.fsm.list(), []string{"poison"}) })
	})
}

// TestDigestsOfTwoVersions checks that members with different digest versions, as during an
// upgrade, run together, and compare digests once the versions are the same.
func TestDigestsOfTwoVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		f.grow(3)
		newer := f.followers()[0]
		cfg := newer.cfg
		newer.Close()
		again, err := f.open(cfg, &journal{version: 2, salt: 7})
		f.must(err)
		f.nodes[slices.Index(f.nodes, newer)] = again
		f.propose("x")
		if f.leader().AllCompatible(f.ctx()) {
			t.Error("two versions are called alike")
		}
		time.Sleep(time.Minute)
		f.must(f.leader().Transfer(f.ctx(), again.self.ID))
		f.until("the newer one leads", func() bool { return f.leader() == again })
		f.propose("y")
		f.must(again.SnapshotNow(f.ctx()))
		time.Sleep(time.Minute)
		for _, n := range f.nodes {
			if err := n.Err(); err != nil {
				t.Errorf("%s stopped: %v", n.cfg.ID, err)
			}
		}
		f.must(again.Close())
		downgraded, err := f.open(cfg, &journal{}) // reads the other version's snapshot
		f.must(err)
		f.nodes[slices.Index(f.nodes, again)] = downgraded
		f.propose("z")
		if got := f.same(); !slices.Equal(got, []string{"x", "y", "z"}) {
			t.Errorf("state %v", got)
		}
		if !f.leader().AllCompatible(f.ctx()) {
			t.Error("members of one version are not called alike")
		}
		downgraded.fsm.twist = twisted
		f.propose("bad")
		if r := reason(f, downgraded); !strings.HasPrefix(r, "76 state diverged") {
			t.Errorf("equal versions are no longer compared: stopped with %q", r)
		}
	})
}
