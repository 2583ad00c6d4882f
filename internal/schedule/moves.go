package schedule

import (
	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
)

// moveCandidate queues an entry to be looked at.
func (p *Planner) moveCandidate(e *entry) {
	if !e.queued && !e.gone {
		e.queued = true
		p.offers.push(moveCandidate{e, 0})
	}
}

// moveCandidate is an entry that may start sooner than planned: because something is free
// next to its own place, or because its class can start at an instant.
type moveCandidate struct {
	*entry
	at cluster.Instant
}

// moveHeap is a heap by rank. It is written out, since a pass may offer something to all
// who wait: container/heap would have each of them allocated.
type moveHeap []moveCandidate

func (o moveHeap) less(i, j int) bool {
	if c := o[i].rank.compare(&o[j].rank); c != 0 {
		return c < 0
	}
	return o[i].at < o[j].at // one entry, offered twice: in an order that chance has no part in
}

func (o *moveHeap) push(x moveCandidate) {
	*o = append(*o, x)
	h := *o
	for i := len(h) - 1; i > 0 && h.less(i, (i-1)/2); i = (i - 1) / 2 {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
	}
}

// pop removes the first in order.
func (o *moveHeap) pop() moveCandidate {
	h, last := *o, len(*o)-1
	x := h[0]
	h[0], h[last] = h[last], moveCandidate{}
	*o = h[:last]
	o.down(0)
	return x
}

// settle puts all into order, after ranks have changed.
func (o *moveHeap) settle() {
	for i := len(*o)/2 - 1; i >= 0; i-- {
		o.down(i)
	}
}

func (o *moveHeap) down(i int) {
	for h := *o; ; {
		least := i
		for c := 2*i + 1; c < min(2*i+3, len(h)); c++ {
			if h.less(c, least) {
				least = c
			}
		}
		if least == i {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
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
		s.offers.push(moveCandidate{e, at})
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
