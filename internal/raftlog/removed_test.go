package raftlog

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// retirements are the removed ids, as a replicated state keeps them.
type retirements struct {
	mu  sync.Mutex
	ids []string
}

func (r *retirements) add(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids = append(r.ids, id)
}

func (r *retirements) has(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.ids, id)
}

// newRetiringFleet is a fleet whose members know the same retired ids.
func newRetiringFleet(t *testing.T) (*fleet, *retirements) {
	r := &retirements{}
	return newFleet(t, func(c *Config) { c.Retired = r.has }), r
}

// remove retires a member and takes it out of the configuration.
func (f *fleet) remove(r *retirements, id string) {
	f.t.Helper()
	r.add(id)
	f.takeOut(id)
}

// takeOut removes a member from the configuration, which may be the leader.
func (f *fleet) takeOut(id string) {
	f.t.Helper()
	f.change("removal of "+id, func(leader *node) error {
		err := leader.RemoveMember(f.ctx(), id)
		if errors.Is(err, ErrNoMember) {
			return nil
		}
		return err
	})
}

// endsRemoved waits until a member has ended because it was removed.
func (f *fleet) endsRemoved(n *node) {
	f.t.Helper()
	select {
	case <-n.Done():
	case <-time.After(time.Minute):
		f.t.Fatalf("%s goes on: %+v", n.self.ID, n.Status())
	}
	if !errors.Is(n.Err(), ErrRemoved) {
		f.t.Errorf("%s ended with %v", n.self.ID, n.Err())
	}
}

// without fails when a member is in the configuration.
func (f *fleet) without(id string) {
	f.t.Helper()
	for _, m := range f.leader().Status().Members {
		if m.ID == id {
			f.t.Errorf("%s is a member: %v", id, m)
		}
	}
}

func TestRemovedMemberIsRefusedPermanently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r := newRetiringFleet(t)
		defer f.close()
		f.grow(4)
		up, down := f.followers()[0], f.followers()[1]
		f.remove(r, up.self.ID)
		f.endsRemoved(up)
		if _, err := f.open(up.cfg, &journal{}); !errors.Is(err, ErrRemoved) {
			t.Errorf("it starts again: %v", err)
		}
		down.Close()
		f.remove(r, down.self.ID)
		f.endsRemoved(f.restart(down)) // it learns it from the others
		if _, err := f.open(down.cfg, &journal{}); !errors.Is(err, ErrRemoved) {
			t.Errorf("one that was down starts again: %v", err)
		}
		f.propose("two go on")
		cfg := f.config("new")
		cfg.Addr = up.cfg.Addr // the host joins under another id
		f.start(cfg)
		f.add("new", cfg.Addr)
		f.without(up.self.ID)
	})
}

// TestMemberRemovedBeforeItsVoteStaysRemoved checks that a member that was removed before its vote
// is not added by the call that still waits for it.
func TestMemberRemovedBeforeItsVoteStaysRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r := newRetiringFleet(t)
		defer f.close()
		f.grow(2)
		late := f.start(f.config("late"))
		done := make(chan error, 1)
		go func() { done <- f.leader().AddMember(f.ctx(), "late", late.cfg.Addr) }()
		f.until("it is a learner", func() bool { return len(f.leader().Status().Members) == 3 })
		f.remove(r, "late")
		if err := <-done; !errors.Is(err, ErrRetired) && !errors.Is(err, ErrNoMember) && err != nil {
			t.Errorf("the first call: %v", err)
		}
		f.without("late")
		err := f.leader().AddMember(f.ctx(), "late", late.cfg.Addr)
		if err == nil || !errors.Is(err, ErrRetired) && late.runs() {
			t.Errorf("a removed id is added: %v", err)
		}
		f.without("late")
		f.endsRemoved(late)
		f.propose("two of two")
	})
}

func TestLearnerIsRefusedAfterItsRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r := newRetiringFleet(t)
		defer f.close()
		f.grow(2)
		slow := f.start(f.config("slow"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		f.until("a learner", func() bool {
			f.leader().AddMember(ctx, "slow", slow.cfg.Addr)
			return slow.Status().WasMember
		})
		slow.Close()
		f.remove(r, "slow")
		f.endsRemoved(f.restart(slow))
	})
}

// TestLearnerGetsItsVoteWithoutAnotherCall ends the call that added a learner before it has caught
// up.
func TestLearnerGetsItsVoteWithoutAnotherCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		f.grow(1)
		f.propose("x")
		slow := f.start(f.config("slow"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		f.until("a learner", func() bool {
			f.leader().AddMember(ctx, "slow", slow.cfg.Addr)
			return len(f.leader().Status().Members) == 2
		})
		f.until("its vote", func() bool { return f.leader().Status().Members[1].Voter })
	})
}

// TestRetiredMemberVotesUntilItIsTakenOut checks that the member can vote between the two steps of
// its removal, since the cluster may need that vote.
func TestRetiredMemberVotesUntilItIsTakenOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r := newRetiringFleet(t)
		defer f.close()
		f.grow(2)
		other := f.followers()[0]
		r.add(other.self.ID)
		f.restart(f.leader()) // the leader crashes after the first step
		f.propose("both agree")
		if !other.runs() {
			t.Errorf("it ended: %v", other.Err())
		}
		f.takeOut(other.self.ID)
		f.endsRemoved(other)
		f.propose("one goes on")
	})
}

func TestAddressHasOneMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r := newRetiringFleet(t)
		defer f.close()
		f.grow(3)
		gone := f.followers()[0]
		gone.Close()
		cfg := f.config("new")
		cfg.Addr = gone.cfg.Addr
		f.start(cfg)
		err := f.leader().AddMember(f.ctx(), "new", cfg.Addr)
		if taken, is := errors.AsType[*AddressError](err); !is || taken.Holder != gone.self.ID {
			t.Fatalf("two members of one address: %v", err)
		}
		f.remove(r, gone.self.ID)
		f.add("new", cfg.Addr)
		f.propose("three of three")
	})
}

// TestMemberWhoseDataWasSetAsideWaitsForItsAddress checks that a member whose data was set aside
// waits under a new ID at its address while the old one is a member: the two never vote together.
func TestMemberWhoseDataWasSetAsideWaitsForItsAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r := newRetiringFleet(t)
		defer f.close()
		f.grow(3)
		old := f.followers()[0]
		old.Close()
		f.must(quarantine{Reason: "test", At: time.Now()}.write(old.cfg.Dir))
		cfg := old.cfg
		cfg.ID = ""
		again := f.start(cfg)
		if again.self.ID == old.self.ID || !again.Status().Fresh {
			t.Fatalf("it came back as %+v", again.Status())
		}
		for range 3 {
			err := f.leader().AddMember(f.ctx(), again.self.ID, cfg.Addr)
			if taken, is := errors.AsType[*AddressError](err); !is || taken.Holder != old.self.ID {
				t.Fatalf("two members of one address: %v", err)
			}
			f.without(again.self.ID)
		}
		if err := f.leader().AddMember(f.ctx(), old.self.ID, cfg.Addr); !errors.Is(err, ErrWrongMember) {
			t.Errorf("the old id is added at the address again: %v", err)
		}
		f.remove(r, old.self.ID)
		f.add(again.self.ID, cfg.Addr)
		f.without(old.self.ID)
		if members := f.leader().Status().Members; len(members) != 3 {
			t.Errorf("members %v", members)
		}
	})
}

// TestAddressIsGivenOnce adds two IDs for one address at the same time: only one becomes a member.
func TestAddressIsGivenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		f.grow(1)
		leader := f.leader()
		errs := make(chan error, 2)
		for i, id := range []string{"x", "y"} {
			go func() {
				errs <- leader.addLearner(f.ctx(), target{id: id, addr: "same:1", incarnation: uint64(i + 1)})
			}()
		}
		refused := 0
		for range 2 {
			if _, is := errors.AsType[*AddressError](<-errs); is {
				refused++
			}
		}
		if members := leader.Status().Members; refused != 1 || len(members) != 2 {
			t.Errorf("%d refused, members %v", refused, members)
		}
	})
}

// TestRecoveryOfARemovedMemberGetsANewID checks that recovery gives a removed controller an ID that
// is not refused: its data can be the last copy.
func TestRecoveryOfARemovedMemberGetsANewID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r := newRetiringFleet(t)
		defer f.close()
		f.grow(2)
		f.propose("kept")
		gone := f.followers()[0]
		f.remove(r, gone.self.ID)
		f.endsRemoved(gone)
		f.leader().Close()
		cfg := gone.cfg
		cfg.ID = ""
		report, err := Recover(cfg, &journal{}, nil)
		f.must(err)
		n := f.start(cfg)
		if n.self.ID == gone.self.ID || len(report.Members) != 1 {
			t.Errorf("it is %s, %v", n.self.ID, report.Members)
		}
		f.propose("on")
	})
}

// copyLog gives a stopped member the entries that it lacks of another one's log.
func (f *fleet) copyLog(from, to *node) {
	f.t.Helper()
	r, err := openRecovery(to.cfg.withDefaults())
	f.must(err)
	defer r.store.close()
	last, err := r.store.LastIndex()
	f.must(err)
	for i := last + 1; i <= from.Status().LastIndex; i++ {
		var e raft.Log
		f.must(from.store.GetLog(i, &e))
		f.must(r.store.StoreLog(&e))
	}
}

// TestRemovalIsLearnedFromTheLogAlone checks that a member whose log holds its removal, and that
// reaches no peer, ends all the same.
func TestRemovalIsLearnedFromTheLogAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		f.grow(3)
		gone := f.followers()[0]
		gone.Close()
		f.takeOut(gone.self.ID)
		f.propose("two go on")
		f.copyLog(f.leader(), gone)
		f.isolate(gone, true)
		f.endsRemoved(f.restart(gone))
		if _, err := f.open(gone.cfg, &journal{}); !errors.Is(err, ErrRemoved) {
			t.Errorf("it starts again: %v", err)
		}
	})
}

// TestRemovalWhileDownIsLearnedFromPeers checks that a member that was down while it was removed
// learns it from any peer that knows its log.
func TestRemovalWhileDownIsLearnedFromPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil) // no peer refuses its connections
		defer f.close()
		f.grow(4)
		gone := f.followers()[0]
		gone.Close()
		f.takeOut(gone.self.ID)
		f.endsRemoved(f.restart(gone))
		f.propose("three go on")
	})
}

// TestRemovalThatWasNotAgreedEndsNothing checks that a removal that was not committed is dropped
// from the log, and that its member continues.
func TestRemovalThatWasNotAgreedEndsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		f.grow(3)
		stays := f.followers()[0]
		servers := slices.DeleteFunc(slices.Clone(f.leader().raft.GetConfiguration().Configuration().Servers),
			func(s raft.Server) bool { return string(s.ID) == stays.self.ID })
		stays.Close()
		r, err := openRecovery(stays.cfg.withDefaults())
		f.must(err)
		last, err := r.store.LastIndex()
		f.must(err)
		f.must(r.store.StoreLog(&raft.Log{
			Index: last + 1, Term: stays.Status().Term, Type: raft.LogConfiguration,
			Data: raft.EncodeConfiguration(raft.Configuration{Servers: servers}),
		}))
		f.must(r.store.close())
		f.isolate(stays, true)
		f.restart(f.leader()) // it leads no more in the term of that entry
		stays = f.restart(stays)
		f.propose("agreed without it")
		f.isolate(stays, false)
		f.until("it has what was agreed", func() bool { return len(stays.fsm.list()) == 1 })
		if !stays.runs() || !stays.IsMember() {
			t.Errorf("it ended: %v", stays.Err())
		}
	})
}
