package raftlog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"
)

// slow makes queued entries wait for the gate.
func slow(s *logStore, gate <-chan error) {
	b := s.behind
	b.close()
	b.queue, b.ended, b.once = make(chan []*raft.Log, maxWriteBehind), make(chan struct{}), sync.Once{}
	go b.run(func(logs []*raft.Log) error {
		if err := <-gate; err != nil {
			return err
		}
		return s.writeBehind(logs)
	})
}

// TestNothingIsAgreedBeforeTheLeadersDiskHasIt checks that followers' acknowledgements commit
// nothing while the leader's own disk does not have it.
func TestNothingIsAgreedBeforeTheLeadersDiskHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		f.grow(3)
		n, gate := f.leader(), make(chan error)
		f.propose("before")
		synctest.Wait()
		slow(n.store, gate)
		agreed, answer := n.raft.CommitIndex(), make(chan error, 1)
		go func() {
			_, _, err := n.Propose(f.ctx(), []byte("x"))
			answer <- err
		}()
		synctest.Wait()
		for _, other := range f.followers() {
			if last := other.raft.LastIndex(); last != agreed+1 {
				t.Errorf("%s has entries up to %d, want %d", other.self.ID, last, agreed+1)
			}
		}
		if now := n.raft.CommitIndex(); now != agreed || len(answer) > 0 {
			t.Errorf("agreed up to %d, %d before; answered: %v", now, agreed, len(answer) > 0)
		}
		close(gate)
		if err := <-answer; err != nil {
			t.Error(err)
		}
	})
}

// TestFailingDiskOfALeaderThatIsBehind checks that a leader whose disk fails acknowledges nothing.
func TestFailingDiskOfALeaderThatIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		f.grow(3)
		n := f.leader()
		f.must(n.store.db.Close())
		if _, _, err := n.Propose(f.ctx(), []byte("x")); !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("the caller hears %v", err)
		}
		if r := reason(f, n); !strings.HasPrefix(r, "75 the disk fails: store entries") {
			t.Errorf("stopped with %q", r)
		}
		if slices.Contains(n.fsm.list(), "x") {
			t.Error("the leader has carried it out")
		}
	})
}

// slowStore is a store whose leader's entries reach the disk when the gate is opened.
func slowStore(t *testing.T) (s *logStore, gate chan error) {
	t.Helper()
	s, gate = testStore(t, t.TempDir()), make(chan error)
	s.behind.leads = func() bool { return true }
	s.behind.allowed.Store(true)
	s.reserve.roomy.Store(true)
	slow(s, gate)
	return s, gate
}

// TestTheRestWaitsForWhatIsBehind checks that every write that is not a leader's entry waits for
// those under way.
func TestTheRestWaitsForWhatIsBehind(t *testing.T) {
	logs := func(from, to uint64) (all []*raft.Log) {
		for i := from; i <= to; i++ {
			all = append(all, entryLog(i, fmt.Sprint("command ", i)))
		}
		return all
	}
	for what, op := range map[string]func(s *logStore) error{
		"a term": func(s *logStore) error { return s.SetUint64([]byte("CurrentTerm"), 2) },
		"a vote": func(s *logStore) error { return s.Set([]byte("LastVoteCand"), []byte("b")) },
		"a tail": func(s *logStore) error { return s.DeleteRange(2, 3) },
		"the last index": func(s *logStore) error {
			if last, err := s.LastIndex(); err != nil || last != 3 {
				return fmt.Errorf("last is %d, %w", last, err)
			}
			return nil
		},
		"an entry that is not in memory": func(s *logStore) error { s.cache.clear(); return s.GetLog(3, new(raft.Log)) },
		"another leader's entries":       func(s *logStore) error { s.behind.allowed.Store(false); return s.StoreLogs(logs(4, 5)) },
		"the voters":                     func(s *logStore) error { return s.StoreLog(&raft.Log{Index: 4, Term: 1, Type: raft.LogConfiguration}) },
		"entries on a full disk":         func(s *logStore) error { s.reserve.roomy.Store(false); return s.StoreLogs(logs(4, 4)) },
	} {
		s, gate := slowStore(t)
		for _, batch := range [][]*raft.Log{logs(1, 2), logs(3, 3)} {
			if err := s.StoreLogs(batch); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.GetLog(3, new(raft.Log)); err != nil {
			t.Errorf("an entry to be sent: %v", err)
		}
		done := make(chan error, 1)
		go func() { done <- op(s) }()
		gate <- nil
		select {
		case err := <-done:
			t.Errorf("%s did not wait: %v", what, err)
		case gate <- nil:
		}
		if err := <-done; err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestWaitingForOneEntry checks that an acknowledgement waits for its own entry, and no longer.
func TestWaitingForOneEntry(t *testing.T) {
	s, gate := slowStore(t)
	for i := range uint64(3) {
		if err := s.StoreLog(entryLog(i+1, "x")); err != nil {
			t.Fatal(err)
		}
	}
	gate <- nil
	if err := s.behind.wait(1, nil); err != nil {
		t.Error(err)
	}
	stop := make(chan struct{})
	close(stop)
	if err := s.behind.wait(2, stop); !errors.Is(err, ErrClosed) {
		t.Errorf("an entry that is not written: %v", err)
	}
	broken := errors.New("broken")
	gate <- broken
	for index, want := range map[uint64]error{1: nil, 2: broken, 3: broken, everything: broken} {
		if err := s.behind.wait(index, nil); !errors.Is(err, want) {
			t.Errorf("entry %d: %v, want %v", index, err, want)
		}
	}
	if err := s.SetUint64([]byte("CurrentTerm"), 2); !errors.Is(err, broken) {
		t.Errorf("a term after entries that were lost: %v", err)
	}
}

// TestWaitingUnderLoad checks that a caller that waits for all of it is served although there is
// always more.
func TestWaitingUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, gate := newBehind(), make(chan error)
		go b.run(func([]*raft.Log) error { return <-gate })
		defer b.close()
		defer close(gate)
		b.hand([]*raft.Log{entryLog(1, "x"), entryLog(2, "x")})
		waited := make(chan error, 1)
		go func() { waited <- b.wait(everything, nil) }()
		synctest.Wait()
		b.hand([]*raft.Log{entryLog(3, "x")})
		gate <- nil
		synctest.Wait()
		select {
		case err := <-waited:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("still waits, for an entry that came later")
		}
	})
}
