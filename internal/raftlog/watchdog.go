package raftlog

import (
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const (
	watchTick = 250 * time.Millisecond
	// commitLimit and handoverLimit bound how long a leader's entry may stay uncommitted, and how
	// long it may refuse entries for a transfer: a leader beyond them does not lead
	// (hashicorp/raft#503, #614, #696).
	commitLimit   = 5 * time.Second
	handoverLimit = 10 * time.Second
	// applyLimit is commitLimit while the state executes a committed entry: one with an array of a
	// million jobs takes seconds, and another leader would take them as well.
	applyLimit = time.Minute
)

// stalls records which disk operations are under way and for how many ticks of the watchdog. It
// counts ticks, not time: a process that was paused for a minute has not had a hanging disk for a
// minute.
type stalls struct {
	mu   sync.Mutex
	next uint64
	ops  map[uint64]*operation
}

type operation struct {
	what  string
	ticks int
}

func newStalls() *stalls { return &stalls{ops: map[uint64]*operation{}} }

// begin records an operation; calling the result ends it.
func (s *stalls) begin(what string) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	n := s.next
	s.ops[n] = &operation{what: what}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.ops, n)
	}
}

// tick counts one tick and returns the operation that took longest.
func (s *stalls) tick() (what string, ticks int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, op := range s.ops {
		op.ticks++
		if op.ticks > ticks {
			what, ticks = op.what, op.ticks
		}
	}
	return what, ticks
}

// idleLeader counts the ticks in which a leader made no progress.
type idleLeader struct {
	term    uint64
	settled uint64
	stuck   int
	refused int
}

// look returns why the leader is useless, or "".
func (i *idleLeader) look(l *Log) string {
	term, settled := l.raft.CurrentTerm(), l.settled.Load()
	if l.raft.State() != raft.Leader || term != i.term {
		*i = idleLeader{term: term, settled: settled}
		return ""
	}
	i.stuck++
	if settled != i.settled || settled == l.sent.Load() {
		i.stuck, i.settled = 0, settled
	}
	i.refused++
	if !l.refused.Load() {
		i.refused = 0
	}
	limit := commitLimit
	if l.machine.applying.Load() {
		limit = applyLimit
	}
	switch {
	case i.stuck > ticks(limit):
		return fmt.Sprintf("this member leads but committed no entry for %v", limit)
	case i.refused > ticks(handoverLimit):
		return fmt.Sprintf("a leadership transfer has been pending for %v", handoverLimit)
	}
	return ""
}

func ticks(d time.Duration) int { return int((d + watchTick - 1) / watchTick) }

// watch ends the process when the disk hangs or this leader makes no progress. It touches no disk:
// such a call may never return.
func (l *Log) watch() {
	tick := time.NewTicker(watchTick)
	defer tick.Stop()
	var idle idleLeader
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
		if what, n := l.store.stalls.tick(); n > ticks(l.cfg.StallLimit) {
			l.halt(ExitStalled, false, fmt.Sprintf("disk hang: %s has taken more than %v", what, l.cfg.StallLimit))
			return
		}
		if why := idle.look(l); why != "" {
			l.halt(ExitStalled, false, why)
			return
		}
	}
}
