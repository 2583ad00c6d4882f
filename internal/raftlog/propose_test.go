package raftlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestThreeMembersAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		f.grow(3)
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				if _, _, err := f.leader().Propose(f.ctx(), fmt.Append(nil, i)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		results, _, err := f.leader().ProposeMany(f.ctx(), [][]byte{[]byte("x"), []byte("y"), []byte("z")})
		if err != nil || !slices.Equal(results, []any{51, 52, 53}) {
			t.Fatalf("results %v, err %v: want one for each command, in order", results, err)
		}
		if got := f.same(); len(got) != 53 || !slices.Equal(got[50:], []string{"x", "y", "z"}) {
			t.Fatalf("state %v", got)
		}
	})
}

func TestProposeElsewhereIsNotLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		f.grow(2)
		follower := f.followers()[0]
		if _, _, err := follower.Propose(f.ctx(), []byte("x")); !errors.Is(err, ErrNotLeader) {
			t.Errorf("follower answers %v", err)
		}
		if id, addr := follower.Leader(); id != f.leader().self.ID || addr != f.leader().cfg.Addr {
			t.Errorf("follower names %s at %s", id, addr)
		}
		if _, err := follower.ReadIndex(f.ctx()); !errors.Is(err, ErrNotLeader) {
			t.Errorf("follower reads: %v", err)
		}
		if _, _, err := f.leader().ProposeMany(f.ctx(), [][]byte{make([]byte, MaxEntryBytes)}); !errors.Is(err, ErrTooLarge) {
			t.Errorf("too large: %v", err)
		}
		if _, _, err := f.leader().ProposeMany(f.ctx(), nil); !errors.Is(err, ErrEmpty) {
			t.Errorf("empty: %v", err)
		}
	})
}

// TestLostLeadershipIsOutcomeUnknown checks that a leader cut off from the others reports an
// unknown outcome.
func TestLostLeadershipIsOutcomeUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		f.grow(3)
		old := f.leader()
		f.isolate(old, true)
		if _, _, err := old.Propose(f.ctx(), []byte("lost")); !errors.Is(err, ErrOutcomeUnknown) {
			t.Fatalf("cut off leader answers %v", err)
		}
		if _, err := old.ReadIndex(f.ctx()); !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrNoQuorum) {
			t.Errorf("cut off leader reads: %v", err)
		}
		f.propose("kept")
		f.isolate(old, false)
		if got := f.same(); !slices.Equal(got, []string{"kept"}) {
			t.Errorf("state %v", got)
		}
	})
}

func TestPatienceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		f.grow(3)
		for _, n := range f.followers() {
			f.isolate(n, true)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, _, err := f.nodes[0].Propose(ctx, []byte("x"))
		if !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestClosedLogAnswersErrClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		f.grow(1)
		f.close()
		if _, _, err := f.nodes[0].Propose(t.Context(), []byte("x")); !errors.Is(err, ErrClosed) {
			t.Errorf("propose: %v", err)
		}
		if _, err := f.nodes[0].ReadIndex(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("read: %v", err)
		}
		if err := f.nodes[0].Err(); err != nil {
			t.Errorf("a closed log has no fault: %v", err)
		}
	})
}

// TestCallersShareEntries checks that callers gather while entries are under way, and share the
// next one.
func TestCallersShareEntries(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil)
	defer f.close()
	f.grow(1)
	n := f.leader()
	before := n.sent.Load()
	const callers, each = 64, 20
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range each {
				if _, _, err := n.Propose(context.Background(), []byte("x")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if entries := n.sent.Load() - before; entries > callers*each/4 {
		t.Errorf("%d entries for %d commands", entries, callers*each)
	}
	if got := len(n.fsm.list()); got != callers*each {
		t.Errorf("%d commands applied, not %d", got, callers*each)
	}
}

func TestGatherKeepsTheLimits(t *testing.T) {
	l := &Log{queue: make(chan *proposal, 1000)}
	put := func(kind byte, count, size int) *proposal {
		p := &proposal{kind: kind, commands: make([][]byte, count), size: size}
		l.queue <- p
		return p
	}
	put(kindCommands, 200, 1000)
	gone := put(kindCommands, 10, 10)
	gone.state.Store(abandoned)
	put(kindCommands, 50, 1000)
	put(kindCommands, 7, 1000)       // 257 commands: too many
	put(kindCommands, 1, batchBytes) // too many bytes
	put(kindCheckpoint, 0, 0)        // shares with none
	put(kindCommands, 5000, 900000)  // alone it may exceed both
	var shapes [][]int
	for next := <-l.queue; next != nil; {
		var parts []*proposal
		parts, next = l.gather(next, 0)
		var shape []int
		for _, p := range parts {
			shape = append(shape, len(p.commands))
		}
		shapes = append(shapes, shape)
	}
	if got, want := fmt.Sprint(shapes), "[[200 50] [7] [1] [0] [5000]]"; got != want {
		t.Errorf("entries %s, want %s", got, want)
	}
}

// TestGatherWaitsForTheCrowd checks that callers that were answered together share the next entry,
// too, if they come back soon.
func TestGatherWaitsForTheCrowd(t *testing.T) {
	for _, x := range []struct {
		callers, come int           // the callers, and those who come after the first
		took          time.Duration // committing it
		parts         int
		after         time.Duration
	}{
		{callers: 20, come: 19, took: 3 * time.Millisecond, parts: 20, after: time.Millisecond},
		{callers: 20, come: 12, took: 2 * time.Millisecond, parts: 13, after: 4 * time.Millisecond},
		{callers: 20, come: 12, took: time.Hour, parts: 13, after: mostPatience},
		{callers: crowd - 1, come: 12, took: time.Hour, parts: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := &Log{queue: make(chan *proposal, 100), slots: make(chan struct{}, inFlight), stop: make(chan struct{})}
			l.took.Store(int64(x.took))
			var others sync.WaitGroup
			defer others.Wait()
			others.Go(func() {
				time.Sleep(time.Millisecond)
				for range x.come {
					l.queue <- &proposal{commands: make([][]byte, 1)}
				}
			})
			began, first := time.Now(), &proposal{commands: make([][]byte, 1)}
			parts, next := l.gather(first, l.expected(first, x.callers))
			if d := time.Since(began); len(parts) != x.parts || d != x.after || next != nil {
				t.Errorf("%+v: %d callers after %v", x, len(parts), d)
			}
		})
	}
}

func TestLeadershipAlternatesAndWaitsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		f.grow(3)
		first := f.leader()
		for range 5 { // without a receiver
			old := f.leader()
			f.must(old.Transfer(f.ctx(), ""))
			f.until("a handover", func() bool { return f.leader() != old })
		}
		f.close()
		var delivered []bool
		for leads := range first.Leadership() {
			delivered = append(delivered, leads)
		}
		for i, leads := range delivered {
			if leads != (i%2 == 0) {
				t.Errorf("delivered %v: not alternating from true", delivered)
			}
		}
	})
}

func TestFailoverLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		f.grow(3)
		var want []string
		for i := range 10 {
			command := fmt.Sprint("command ", i)
			want = append(want, command)
			f.propose(command)
			old := f.leader()
			f.isolate(old, true)
			f.until("another leader", func() bool { return f.leader() != old || !old.IsLeader() })
			f.isolate(old, false)
		}
		if got := f.same(); !slices.Equal(got, want) {
			t.Errorf("state %v, want %v", got, want)
		}
		n := f.restart(f.leader())
		if f.until("replay", func() bool { return slices.Equal(n.fsm.list(), want) }); n.Err() != nil {
			t.Error(n.Err())
		}
	})
}

// TestLoneCallerDoesNotWait checks that an idle log answers a lone caller at once, without a timer.
func TestLoneCallerDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		f.grow(1)
		start := time.Now()
		f.propose("x")
		if took := time.Since(start); took > 0 {
			t.Errorf("took %v of nothing but waiting", took)
		}
	})
}

func TestTurnsAlternate(t *testing.T) {
	var q turns
	for _, c := range []struct {
		add  bool
		want string
	}{
		{false, "[]"}, {true, "[true]"}, {false, "[]"}, {true, "[true]"}, {true, "[true]"},
	} {
		if q.add(c.add); fmt.Sprint(q.pending) != c.want {
			t.Errorf("after %v: %v, want %s", c.add, q.pending, c.want)
		}
	}
	q.pending = nil // true is delivered
	for _, c := range []struct {
		add  bool
		want string
	}{
		{false, "[false]"}, {true, "[false true]"}, {false, "[false]"}, {true, "[false true]"},
	} {
		if q.add(c.add); fmt.Sprint(q.pending) != c.want {
			t.Errorf("after %v: %v, want %s", c.add, q.pending, c.want)
		}
	}
}
