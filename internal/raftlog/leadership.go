package raftlog

import (
	"time"

	"github.com/hashicorp/raft"
)

// Leadership delivers true when this member has become the leader and its state holds everything
// committed before, false when it no longer leads; they alternate, beginning with true. A loss that
// is over before its delivery is still delivered, unless its gain was not delivered either. A slow
// receiver never delays the log. The channel is closed when the log stops.
func (l *Log) Leadership() <-chan bool { return l.leadership }

// IsLeader reports whether this member believes it leads. Only ReadIndex is certain.
func (l *Log) IsLeader() bool { return l.raft.State() == raft.Leader }

// Leader returns the leader as far as this member knows, "" if none exists.
func (l *Log) Leader() (id, addr string) {
	a, i := l.raft.LeaderWithID()
	t, err := parseTarget(string(a))
	if err != nil {
		return "", ""
	}
	return string(i), t.addr
}

// turns holds what Leadership has yet to deliver. Invariant: delivered and pending together
// alternate, beginning with true; at most false, true are pending.
type turns struct {
	pending []bool
	last    bool // of delivered and pending
}

func (q *turns) add(leads bool) {
	if leads == q.last {
		return
	}
	q.last = leads
	if n := len(q.pending); n > 0 && q.pending[n-1] && !leads {
		q.pending = q.pending[:n-1] // a gain that was never delivered and is over
		return
	}
	q.pending = append(q.pending, leads)
}

// followLeadership drains raft's own channel, which holds only the latest change, confirms each
// gain, and queues what Leadership delivers. This goroutine never calls raft synchronously, since
// raft may wait for it.
func (l *Log) followLeadership() {
	defer close(l.leadership)
	var queue turns
	confirmed := make(chan uint64, 1)
	for {
		var out chan<- bool
		var first bool
		if len(queue.pending) > 0 {
			out, first = l.leadership, queue.pending[0]
		}
		select {
		case leads := <-l.raft.LeaderCh():
			queue.add(false) // also when leadership was lost and regained in between
			l.ruling.Store(0)
			if leads {
				go l.confirmTerm(confirmed)
			} else {
				l.trans.contacts.Clear() // answers of others are worthless once another member leads
			}
		case term := <-confirmed:
			if l.raft.State() == raft.Leader && l.raft.CurrentTerm() == term {
				l.ruling.Store(term)
				queue.add(true)
			}
		case out <- first:
			queue.pending = queue.pending[1:]
		case <-l.stop:
			return
		}
	}
}

// confirmTerm commits a mark: then a majority has an entry of this term, and this member's state
// holds everything before it. (Raft's Barrier does the same, but never returns if it waits in
// raft's buffer while raft stops.) It compares clocks first: time in the log never goes back, so
// one entry stamped with a wrong clock does permanent harm. Nothing is stamped until the term is
// confirmed.
func (l *Log) confirmTerm(confirmed chan<- uint64) {
	term := l.raft.CurrentTerm()
	for l.raft.State() == raft.Leader && l.raft.CurrentTerm() == term {
		pause := 10 * time.Millisecond
		if l.guardClock(l.askClocks()) {
			pause = time.Second
		} else if _, _, err := l.submit(l.life, &proposal{kind: kindMark}); err == nil {
			select {
			case confirmed <- term:
			case <-l.stop:
			}
			return
		}
		select {
		case <-time.After(pause):
		case <-l.stop:
			return
		}
	}
}
