package schedule

import (
	"github.com/greylag/greylag/internal/heap"
	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
)

// moveCandidate queues an entry to be looked at.
func (p *Planner) moveCandidate(e *entry) {
	if !e.queued && !e.gone {
		e.queued = true
		p.offers.Push(moveCandidate{e, 0})
	}
}

// moveCandidate is an entry that may start sooner than planned: because something is free
// next to its own place, or because its class can start at an instant.
type moveCandidate struct {
	*entry
	at cluster.Instant
}

// newMoves returns an empty heap of candidates by rank. One entry may be in it twice: then by
// instant.
func newMoves() heap.Heap[moveCandidate] {
	return heap.New(func(a, b *moveCandidate) bool {
		if c := a.rank.compare(&b.rank); c != 0 {
			return c < 0
		}
		return a.at < b.at
	})
}

// offerClass finds the first job of a class, in order, that could start sooner than
// it is planned to: where others leave room, or at this moment on hosts that are its own
// in part. When one of them waits for its turn, it looks at those ahead of that one alone.
func (s *incrementalPass) offerClass(c *requestClass) {
	if c.latest <= s.r.snap.Now || len(c.jobs) == 0 || c.offered == c.jobs[0] {
		return
	}
	start, choice, ok := s.find(c, s.r.snap.Now, c.latest, (*backfill.Profile).Earliest)
	if !ok && !c.opens {
		return
	}
	before := start.At
	for _, e := range c.jobs {
		if e == c.offered {
			return
		}
		at := start.At
		if !ok || e.at <= at || !c.limitOf(e.at, e.choice).admits(&start, choice) {
			if before = max(before, e.at); !c.opens || !s.canRegroup(e) {
				continue
			}
			at = s.r.snap.Now
		}
		c.offered, c.before = e, before
		s.offers.Push(moveCandidate{e, at})
		return
	}
	c.opens = false
}

// offerClasses offers what became free to each class that might use it. With one host of
// one pool and no licences there is no need: all that is planned on it was offered it already.
func (s *incrementalPass) offerClasses() {
	if s.profile.Hosts() == 1 && len(s.ground.hosts[0].Pools) < 2 && len(s.ground.counts) == 0 {
		return
	}
	s.heard = s.heard[:0]
	s.profile.EachSooner(func(w *backfill.Want, from cluster.Instant) {
		if c := w.Owner.(*requestClass); c.latest > from {
			if c.offered == nil || c.before > from { // nothing for those ahead of it
				s.hear(c)
			}
			c.opens = c.opens || c.selfOverlapping && from <= s.r.snap.Now
		}
	})
	for _, h := range s.touched {
		s.profile.EachStartable(h, func(w *backfill.Want) {
			if c := w.Owner.(*requestClass); c.selfOverlapping {
				s.hear(c)
				c.opens = true
			}
		})
	}
	s.touched = s.touched[:0]
	for _, c := range s.heard {
		c.hears = false
		s.offerClass(c)
	}
}

// hear has a class offered something.
func (s *incrementalPass) hear(c *requestClass) {
	if !c.hears {
		c.hears = true
		s.heard = append(s.heard, c)
	}
}

// regroup moves a planned start to this moment, on some hosts that are its own and others.
// It could begin on those sooner but for its own booking.
func (s *incrementalPass) regroup(e *entry) bool {
	start, choice, ok := s.regrouped(e)
	if ok {
		s.shift(s.r, e, start, choice)
	}
	return ok
}

// canRegroup reports whether a planned start could be moved so.
func (s *incrementalPass) canRegroup(e *entry) bool {
	_, _, ok := s.regrouped(e)
	return ok
}

// regrouped is the start at this moment that a job could have in place of its own: in the
// partition named first, and near if that can be.
func (s *incrementalPass) regrouped(e *entry) (start backfill.Start, choice int, ok bool) {
	if !e.class.selfOverlapping || e.at <= s.r.snap.Now || e.starts {
		return start, 0, false
	}
	within := e.class.limitOf(e.at, e.choice)
	for i := range e.class.options {
		o := &e.class.options[i]
		if o.near != nil {
			if start, ok = s.profile.Regroup(o.near, e.at, e.shares); ok {
				return start, 2*i + 1, true
			}
		}
		if o.any != nil && s.r.snap.Now < within.loose {
			if start, ok = s.profile.Regroup(o.any, e.at, e.shares); ok {
				return start, 2 * i, true
			}
		}
	}
	return start, 0, false
}
