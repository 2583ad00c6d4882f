package schedule

import (
	"slices"

	"github.com/greylag/greylag/internal/heap"
	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
)

// The plan is kept in several places: in the profile, by host, by class and by instant.
// A start enters and leaves all of them here.

// newDue returns an empty heap of entries by planned start.
func newDue() heap.Heap[*entry] {
	return heap.NewIndexed(func(a, b **entry) bool { return (*a).at < (*b).at }, func(e **entry, place int) { (*e).place = place })
}

// nextDue returns the earliest planned start of a job that was not started.
func (p *Planner) nextDue() (cluster.Instant, bool) {
	if p.due.Len() == 0 {
		return 0, false
	}
	return p.due.Items()[0].at, true
}

// book enters a start into the plan.
func (p *Planner) book(e *entry, s backfill.Start, choice int) {
	p.profile.Book(e.class.want(choice), s.At, s.Shares)
	p.enter(e, s, choice)
}

// enter notes where a start was booked.
func (p *Planner) enter(e *entry, s backfill.Start, choice int) {
	w := e.class.want(choice)
	e.at, e.until, e.choice, e.kind, e.shares = s.At, s.At.Add(w.Lasts), choice, s.Kind, s.Shares
	for _, share := range s.Shares {
		p.on[share.Host] = append(p.on[share.Host], e)
	}
	c := e.class
	c.latest = max(c.latest, e.at)
	if c.offered != nil && e.rank.compare(&c.offered.rank) < 0 { // it came meanwhile
		c.before = max(c.before, e.at)
	}
	p.due.Push(e)
	p.count(e, 1)
}

// count keeps count of what a pass that follows an event does not wholly see to.
func (p *Planner) count(e *entry, by int) {
	if !e.promised {
		p.soft += by
	}
	if p.isWide(e) {
		p.wide += by
	}
}

// isWide reports whether a start is on several hosts, or might be: such a one could
// begin sooner on other hosts that overlap its own.
func (p *Planner) isWide(e *entry) bool {
	return len(e.shares) > 1 || e.class.want(e.choice).Need.PerNode < 0
}

// rebook books another start in place of the one that an entry has.
func (p *Planner) rebook(e *entry, to backfill.Start, choice int) {
	p.profile.Move(e.class.want(e.choice), e.at, e.shares, e.class.want(choice), to)
	p.strike(e)
	p.enter(e, to, choice)
}

// unbook takes a start out of the plan.
func (p *Planner) unbook(e *entry) {
	if e.at == 0 {
		return
	}
	p.profile.Unbook(e.class.want(e.choice), e.at, e.shares)
	p.strike(e)
}

// strike is the inverse of enter.
func (p *Planner) strike(e *entry) {
	for _, share := range e.shares {
		list := p.on[share.Host]
		i := slices.Index(list, e)
		list[i] = list[len(list)-1]
		p.on[share.Host] = list[:len(list)-1]
	}
	p.due.Remove(e.place)
	if !e.starts {
		p.count(e, -1)
	}
	e.at = 0
}
