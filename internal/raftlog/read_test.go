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

// Entries that raft keeps for itself are waited for, too.
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

// late is a stream whose connections for probes deliver what is sent to them late.
type late struct {
	Stream
	by func() time.Duration
}

func (l late) Dial(addr string, timeout time.Duration) (net.Conn, error) {
	conn, err := l.Stream.Dial(addr, timeout)
	return lateConn{conn, l.by}, err
}

type lateConn struct {
	net.Conn
	by func() time.Duration
}

func (c lateConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	time.Sleep(c.by())
	return n, err
}

// A leader is cut off right after its peers answered it, and their answers reach it
// only when they have elected another one, which has agreed a write. Had it asked
// before the read began, those answers would confirm it.
func TestAnswersFromBeforeTheReadDoNotConfirmALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		delay := map[string]time.Duration{}
		f := newFleet(t, nil)
		f.tweak = func(c *Config) {
			name := c.ID
			c.Stream = late{f.net.listen(c.Addr), func() time.Duration {
				mu.Lock()
				defer mu.Unlock()
				return delay[name]
			}}
		}
		defer f.close()
		f.grow(3)
		old := f.leader()
		mu.Lock()
		delay[old.cfg.ID] = 5 * time.Second
		mu.Unlock()
		time.Sleep(100 * time.Millisecond)
		for i := range 200 { // reads at all instants around its deposition
			if i == 50 {
				f.until("another leader", func() bool { return f.leader() != old })
				f.propose("by the new leader")
			}
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				defer cancel()
				had := len(f.leader().fsm.list())
				if _, err := old.ReadIndex(ctx); err == nil && len(old.fsm.list()) < had {
					t.Errorf("a stale read: %d commands, %d agreed", len(old.fsm.list()), had)
				}
			}()
			time.Sleep(3 * time.Millisecond)
		}
		time.Sleep(30 * time.Second)
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
