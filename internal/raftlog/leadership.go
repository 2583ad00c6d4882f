package raftlog

import (
	"time"

	"github.com/hashicorp/raft"
)

// Leadership delivers true when this member has become the leader and its state
// holds everything agreed before, false when it no longer leads; strictly in turn,
// beginning with true. A loss that is over before it could be delivered is still
// delivered, unless the gain before it was not either. A receiver that is slow
// never holds the log up. The channel is closed when the log stops.
func (l *Log) Leadership() <-chan bool { return l.leadership }

// IsLeader reports whether this member believes it leads. Only ReadIndex knows.
func (l *Log) IsLeader() bool { return l.raft.State() == raft.Leader }

// Leader is the member that leads as far as this one knows, "" if none does.
func (l *Log) Leader() (id, addr string) {
	a, i := l.raft.LeaderWithID()
	t, err := parseTarget(string(a))
	if err != nil {
		return "", ""
	}
	return string(i), t.addr
}

// turns is what Leadership has yet to deliver. Invariant: delivered and pending
// together alternate, beginning with true; at most false, true are pending.
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
		q.pending = q.pending[:n-1] // a gain that nobody has seen and that is over
		return
	}
	q.pending = append(q.pending, leads)
}

// followLeadership drains raft's own channel, which holds only the latest change,
// has each gain confirmed, and queues what Leadership delivers. Raft is never asked
// anything from this goroutine, since it may wait for it.
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
			queue.add(false) // also when leadership was lost and won again in between
			l.ruling.Store(0)
			if leads {
				go l.confirmTerm(confirmed)
			} else {
				l.trans.heard.Clear() // when others answered says nothing once another leads
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

// confirmTerm has a mark agreed: then a majority has an entry of this term, and this
// member's state holds everything before it. (Like raft's Barrier, which however is
// never answered if it waits in raft's buffer while raft stops.) Before that it compares
// clocks: time in the log never goes back, so whoever stamps one entry with a wrong
// clock has done the harm, and until this is confirmed nothing is stamped.
func (l *Log) confirmTerm(confirmed chan<- uint64) {
	term := l.raft.CurrentTerm()
	for l.raft.State() == raft.Leader && l.raft.CurrentTerm() == term {
		pause := 10 * time.Millisecond
		if l.guardClock(l.hearClocks()) {
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
