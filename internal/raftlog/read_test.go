package raftlog

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestReadsSeeWhatWasAgreedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		f.grow(3)
		for i := range 20 {
			written := f.propose(fmt.Sprint(i))
			index, err := f.leader().ReadIndex(f.ctx())
			if err != nil || index < written {
				t.Fatalf("read index %d, %v, after a write at %d", index, err, written)
			}
			if got := len(f.leader().fsm.list()); got != i+1 {
				t.Fatalf("%d commands in the state, %d agreed", got, i+1)
			}
			for _, n := range f.followers() {
				f.must(n.WaitApplied(f.ctx(), index))
				if got := len(n.fsm.list()); got != i+1 {
					t.Fatalf("%d commands in a follower's state, %d agreed", got, i+1)
				}
			}
		}
	})
}

// TestWaitAppliedOfAnEntryWithoutACommand checks that entries that raft keeps for itself are waited
// for, too.
func TestWaitAppliedOfAnEntryWithoutACommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		f.grow(3)
		for _, n := range f.nodes {
			f.must(n.WaitApplied(f.ctx(), n.Status().CommitIndex))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := f.leader().WaitApplied(ctx, f.leader().Status().LastIndex+1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an entry to come: %v", err)
		}
	})
}

// TestReadWaitsForTheState checks that a read waits until the committed entries are in the state.
func TestReadWaitsForTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		gate := make(chan struct{})
		n, err := f.open(f.config("a"), &journal{gate: gate})
		f.must(err)
		f.nodes = append(f.nodes, n)
		f.must(n.Bootstrap())
		f.leader()
		go n.Propose(f.ctx(), []byte("x"))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.ReadIndex(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("read %v before the state holds what is agreed", err)
		}
		close(gate)
		if _, err := n.ReadIndex(f.ctx()); err != nil || len(n.fsm.list()) != 1 {
			t.Errorf("read %v, state %v", err, n.fsm.list())
		}
	})
}

// late is a stream on which raft's answers, and only raft's, arrive late.
type late struct{ Stream }

func (l late) Dial(addr string, timeout time.Duration) (net.Conn, error) {
	conn, err := l.Stream.Dial(addr, timeout)
	if err != nil {
		return nil, err
	}
	return &lateConn{Conn: conn}, nil
}

type lateConn struct {
	net.Conn
	use use // as its hello says
}

func (c *lateConn) Write(p []byte) (int, error) {
	if c.use == 0 {
		c.use = use(p[5])
	}
	return c.Conn.Write(p)
}

func (c *lateConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.use == useRaft {
		time.Sleep(100 * time.Millisecond) // within the lease
	}
	return n, err
}

// TestAnswersFromBeforeTheReadDoNotConfirmALeader deposes a leader that does not know it: it still
// gets answers that its peers sent before. The library's VerifyLeader takes them for answers to a
// later question, and the read would miss what the new leader has committed.
func TestAnswersFromBeforeTheReadDoNotConfirmALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		f.tweak = func(c *Config) {
			if c.ID == "a" {
				c.Stream = late{f.net.listen(c.Addr)}
			}
		}
		f.grow(3)
		time.Sleep(time.Second)
		old, heir := f.nodes[0], f.nodes[1]
		f.net.mu.Lock()
		f.net.deaf = old.cfg.Addr // the news cannot reach it
		f.net.mu.Unlock()
		go old.Transfer(f.ctx(), heir.self.ID)
		for heir.ruling.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		if _, _, err := heir.Propose(f.ctx(), []byte("new")); err != nil {
			t.Fatal(err)
		}
		if !old.IsLeader() {
			t.Fatal("the old leader knows: this test shows nothing")
		}
		if _, err := old.ReadIndex(f.ctx()); !errors.Is(err, ErrNotLeader) {
			t.Errorf("the deposed leader reads: %v; its state is %v", err, old.fsm.list())
		}
		f.close()
		time.Sleep(time.Second) // for the answers still under way
	})
}

func TestReadersShareRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		f.grow(3)
		leader := f.leader()
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				if _, err := leader.ReadIndex(f.ctx()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		open := 0
		leader.prober.mu.Lock()
		for _, idle := range leader.prober.idle {
			open += len(idle)
		}
		leader.prober.mu.Unlock()
		if open > 2*probeIdle {
			t.Errorf("%d connections kept", open)
		}
	})
}
