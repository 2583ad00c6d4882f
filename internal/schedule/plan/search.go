package plan

import (
	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
)

// searcher is a way to search: [backfill.Profile.Earliest], which remembers what it learned, or
// [backfill.Profile.Search], which does not.
type searcher func(p *backfill.Profile, w *backfill.Want, from, before cluster.Instant) (backfill.Start, bool)

// limit is the instant before which a start has to be: one with the requested locality, and one
// without. The latter is earlier by the job's switch wait where the job has a start with locality.
type limit struct{ near, loose cluster.Instant }

// admits reports whether a start is before the limit.
func (l limit) admits(s *backfill.Start, choice int) bool {
	if choice%2 == 1 {
		return s.At < l.near
	}
	return s.At < l.loose
}

// Find returns the earliest start of a class, found without the memory of earlier searches.
func (b *Bookings) Find(c *Class, from, before cluster.Instant) (backfill.Start, int, bool) {
	return b.find(c, from, before, (*backfill.Profile).Search)
}

// findPromised is Find for a promised start: on leased nodes only if the job can start there now, since the cloud may
// reclaim them.
func (b *Bookings) findPromised(c *Class, from, before cluster.Instant) (backfill.Start, int, bool) {
	return b.findWithin(c, from, limit{before, before}, b.Profile.Now()+1, (*backfill.Profile).Search)
}

// findElsewhere returns another start of a planned job at the same time.
func (b *Bookings) findElsewhere(e *Entry) (backfill.Start, int, bool) {
	if e.Promised {
		return b.findPromised(e.Class, e.At, e.At+1)
	}
	return b.Find(e.Class, e.At, e.At+1)
}

// find returns the earliest start of a class: in the partition named first among equally early ones,
// and with the requested locality if that costs no more than the switch wait.
func (b *Bookings) find(c *Class, from, before cluster.Instant, look searcher) (backfill.Start, int, bool) {
	return b.findWithin(c, from, limit{before, before}, cluster.Never, look)
}

// better returns a start that is earlier than the planned one of an entry, or has locality and is later
// by at most the switch wait. A promised start moves to leased nodes only if the job can start there now.
func (b *Bookings) better(e *Entry, look searcher) (backfill.Start, int, bool) {
	leased := cluster.Never
	if e.Promised {
		leased = b.Profile.Now() + 1
	}
	return b.findWithin(e.Class, b.Profile.Now(), e.Class.limitOf(e.At, e.Choice), leased, look)
}

// findWithin returns the best start within a limit, and on leased nodes before an instant.
func (b *Bookings) findWithin(c *Class, from cluster.Instant, within limit, leased cluster.Instant, look searcher) (backfill.Start, int, bool) {
	var best backfill.Start
	choice, found := 0, false
	take := func(s backfill.Start, i int) {
		best, choice, found = s, i, true
		within = c.limitOf(s.At, i)
	}
	for i := range c.Options {
		o := &c.Options[i]
		near, loose := within.near, within.loose
		if o.leased {
			near, loose = min(near, leased), min(loose, leased)
		}
		if o.any != nil {
			if s, ok := look(b.Profile, o.any, from, loose); ok {
				take(s, 2*i)
				near = min(near, s.At.Add(o.Wait)+1)
			} else if loose == near {
				continue // no start without locality: none with it
			}
		}
		if o.near == nil {
			continue
		}
		if s, ok := look(b.Profile, o.near, from, near); ok {
			take(s, 2*i+1)
		}
	}
	return best, choice, found
}

// FitsIn reports whether a class fits into what is free of each host, without the requested locality
// where the job may start without; open, if not nil, are the hosts with a free GPU.
func (b *Bookings) FitsIn(c *Class, free []backfill.Amount, open backfill.HostSet) bool {
	for i := range c.Options {
		o := &c.Options[i]
		w := o.Loosest()
		if b.Profile.FitsIn(w, free, open) {
			return true
		}
	}
	return false
}

// FitsApart reports whether a class fits into what is free of each host: with the requested locality,
// and without.
func (b *Bookings) FitsApart(c *Class, free []backfill.Amount) (near, loose bool) {
	for i := range c.Options {
		o := &c.Options[i]
		loose = loose || o.any != nil && b.Profile.FitsIn(o.any, free, nil)
		near = near || o.near != nil && b.Profile.FitsIn(o.near, free, nil)
	}
	return near, loose
}
