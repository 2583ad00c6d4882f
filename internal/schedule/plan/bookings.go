package plan

import (
	"slices"

	"github.com/greylag/greylag/internal/heap"
	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
)

// Bookings holds the planned starts: in the profile, by host, and by instant. A start enters and leaves
// all of them here.
type Bookings struct {
	Profile *backfill.Profile
	byHost  [][]*Entry
	due     heap.Heap[*Entry] // by planned start, without the jobs that were started
	soft    int               // planned starts that are not promises
	wide    int               // planned starts that may use several hosts
}

func newBookings(now cluster.Instant, r *Resources) Bookings {
	return Bookings{
		Profile: backfill.New(now, r.Hosts, r.levels, r.Licences), byHost: make([][]*Entry, len(r.Hosts)),
		due: heap.NewIndexed(func(a, b **Entry) bool { return (*a).At < (*b).At }, func(e **Entry, place int) { (*e).place = place }),
	}
}

// Due returns the entries with a planned start that were not started, in no order.
func (b *Bookings) Due() []*Entry { return b.due.Items() }

// next returns the earliest planned start of a job that was not started.
func (b *Bookings) next() (cluster.Instant, bool) {
	if b.due.Len() == 0 {
		return 0, false
	}
	return b.due.Items()[0].At, true
}

// Book plans a start. O(its hosts × (steps + bins)).
func (b *Bookings) Book(e *Entry, s backfill.Start, choice int) {
	b.Profile.Book(e.Class.want(choice), s.At, s.Shares)
	b.enter(e, s, choice)
}

// enter records a start that the profile has. O(its hosts + log starts).
func (b *Bookings) enter(e *Entry, s backfill.Start, choice int) {
	e.At, e.Choice, e.Kind, e.Shares = s.At, choice, s.Kind, s.Shares
	for _, share := range s.Shares {
		b.byHost[share.Host] = append(b.byHost[share.Host], e)
	}
	c := e.Class
	c.latest = max(c.latest, e.At)
	if c.queued != nil && e.Rank.Compare(&c.queued.Rank) < 0 { // planned after that one was queued
		c.before = max(c.before, e.At)
	}
	b.due.Push(e)
	b.count(e, 1)
}

// count updates the counts of starts that a full replan could improve.
func (b *Bookings) count(e *Entry, by int) {
	if !e.Promised {
		b.soft += by
	}
	if e.wide() {
		b.wide += by
	}
}

// wide reports whether a start is on several hosts, or might be: it could begin sooner on other hosts
// that overlap its own.
func (e *Entry) wide() bool {
	return len(e.Shares) > 1 || e.Class.want(e.Choice).Need.PerNode < 0
}

// rebook replaces the planned start of an entry. O(hosts of both × (steps + bins + starts of the host)).
func (b *Bookings) rebook(e *Entry, to backfill.Start, choice int) {
	b.Profile.Move(e.Class.want(e.Choice), e.At, e.Shares, e.Class.want(choice), to)
	b.strike(e)
	b.enter(e, to, choice)
}

// Unbook removes a planned start, if there is one. O(its hosts × (steps + bins + starts of the host)).
func (b *Bookings) Unbook(e *Entry) {
	if e.At == 0 {
		return
	}
	b.Profile.Unbook(e.Class.want(e.Choice), e.At, e.Shares)
	b.strike(e)
}

// strike is the inverse of enter. O(its hosts × starts of the host + log starts).
func (b *Bookings) strike(e *Entry) {
	if e.shared != nil {
		e.shared.leave(e.Job.ID)
		e.shared = nil
	}
	for _, share := range e.Shares {
		list := b.byHost[share.Host]
		i := slices.Index(list, e)
		list[i] = list[len(list)-1]
		b.byHost[share.Host] = list[:len(list)-1]
	}
	b.due.Remove(e.place)
	if !e.Starting {
		b.count(e, -1)
	}
	e.At = 0
}
