package plan

import (
	"maps"
	"slices"

	"github.com/greylag/greylag/internal/heap"
	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
)

// Bounds of a pass that plans changes alone; the next pass goes on from there, in the same order.
const (
	maxMoves  = 16   // jobs that are planned or move forward
	maxSlides = 4096 // planned starts that are tried and cannot move
)

// move is a job that may start earlier than planned: its class can start at an instant, or something
// became free on its own hosts.
type move struct {
	*Entry
	from cluster.Instant // when its class can start; 0 for its own hosts, or for a job without a planned start
}

// newMoves returns an empty heap of moves by rank. An entry may be in it twice: then by instant.
func newMoves() heap.Heap[move] {
	return heap.New(func(a, b *move) bool {
		if c := a.Rank.Compare(&b.Rank); c != 0 {
			return c < 0
		}
		return a.from < b.from
	})
}

// queueMove queues an entry for what became free on its own hosts, or for its first planned start.
func (p *Pass) queueMove(e *Entry) {
	if !e.queued && !e.removed {
		e.queued = true
		p.moves.Push(move{e, 0})
	}
}

// mover moves planned starts forward into what became free, and plans new jobs, in order.
type mover struct {
	*Pass
	moved   int
	slides  int      // without success
	touched []int    // hosts on which something became free since classes were last queued
	noticed []*Class // a buffer
}

// planChanges plans what changed: it moves planned starts forward into what became free, one at a time in
// order, and plans new jobs around all others. It returns false when all jobs have to be planned again,
// since what is free is not for jobs behind one that may preempt.
func (p *Pass) planChanges() bool {
	p.freeAtEdges()
	m := &mover{Pass: p, touched: slices.Sorted(maps.Keys(p.freedHosts))}
	for _, h := range m.touched {
		for _, e := range p.bookings.byHost[h] {
			p.queueMove(e)
		}
	}
	m.run()
	return !p.outOfTurn
}

// run tries the moves, in order, until there are none or the pass has done enough.
func (m *mover) run() {
	m.queueClasses()
	for m.moves.Len() > 0 {
		if m.moved >= maxMoves || m.slides >= maxSlides {
			m.More = true
			return
		}
		x := m.moves.Pop()
		if x.from == 0 {
			x.queued = false
		} else if x.Class.queued == x.Entry {
			x.Class.queued = nil
		}
		if x.removed || x.blocked != nil { // since it was queued
			if x.from > 0 { // another job of its class may start instead
				m.queueClass(x.Class)
			}
			continue
		}
		m.try(x)
	}
}

// try tries one move. O(its hosts × steps), and once for each other start on a host that it leaves.
func (m *mover) try(x move) {
	e, freed := x.Entry, x.Shares
	switch {
	case e.At == 0:
		m.planNew(e)
		return
	case x.from == 0:
		if m.slides++; !m.slide(e) && !m.regroup(e) {
			return
		}
	case !m.advance(e, x.from):
		m.queueClass(e.Class)
		return
	}
	m.moved++
	m.moveCount++
	for _, share := range freed {
		m.touched = append(m.touched, share.Host)
		for _, other := range m.bookings.byHost[share.Host] {
			if other.tried == m.moveCount {
				continue // on another host that it shares with the moved job
			}
			if other.tried = m.moveCount; compareRanks(e, other) < 0 || m.startsNow(other) || m.canRegroup(other) {
				m.queueMove(other)
			}
		}
	}
	m.queueClasses()
	if x.from > 0 {
		m.queueClass(e.Class)
	}
}

// startsNow reports whether a job could start now on its own hosts. What one job leaves is for those behind
// it, whose turn is later. Those ahead of it had their turn, and get another only if they could start now.
func (m *mover) startsNow(e *Entry) bool {
	if e.At <= m.Snap.Now || e.Starting {
		return false
	}
	for i := range e.Shares {
		if free := m.bookings.Profile.Row(e.Shares[i].Host).Free(m.Snap.Now); !free.Covers(&e.Shares[i].Amount) {
			return false
		}
	}
	at, ok := m.bookings.Profile.EarliestInPlace(e.Class.want(e.Choice), e.At, e.Shares)
	return ok && at == m.Snap.Now
}

// planNew plans a job without a planned start.
func (m *mover) planNew(e *Entry) {
	m.moved++
	last := cluster.Never
	if w := m.Snap.Policy.Scheduling.Window; w > 0 {
		last = m.Snap.Now.Add(w)
	}
	q := &m.sequence
	if q.outOfOrder = q.outOfOrder || e != q.alone && e.Rank.Compare(&q.lowest) < 0; !q.outOfOrder {
		q.lowest = e.Rank
	}
	others := m.bookings.soft
	m.planOne(e, priorPlan{}, last)
	m.markChanged(e)
	m.outOfTurn = m.outOfTurn || others > 0 && m.MayPreempt(e)
}

// advance moves a planned start to where its class can start before it, or by regrouping.
func (m *mover) advance(e *Entry, from cluster.Instant) bool {
	if e.At <= from || e.Starting {
		return false
	}
	start, choice, ok := m.bookings.better(e, (*backfill.Profile).Earliest)
	if ok && start.At <= m.Snap.Now || !m.regroup(e) {
		if ok {
			m.move(e, start, choice)
		}
		return ok
	}
	return true
}

// slide moves a planned start forward on its own hosts. The search of its class finds other hosts, and
// regroup finds other and own ones together.
func (m *mover) slide(e *Entry) bool {
	if e.At <= m.Snap.Now || e.Starting {
		return false
	}
	at, ok := m.bookings.Profile.EarliestInPlace(e.Class.want(e.Choice), e.At, e.Shares)
	if ok {
		m.move(e, backfill.Start{At: at, Kind: e.Kind, Shares: e.Shares}, e.Choice)
	}
	return ok
}

// queueClass queues the first job of a class, in order, that could start earlier than planned: where others
// leave room, or now on hosts that are its own in part. When one of its jobs is queued, only those ahead of
// it are considered.
func (p *Pass) queueClass(c *Class) {
	if c.latest <= p.Snap.Now || len(c.jobs) == 0 || c.queued == c.jobs[0] {
		return
	}
	start, choice, ok := p.bookings.find(c, p.Snap.Now, c.latest, (*backfill.Profile).Earliest)
	if !ok && !c.startable {
		return
	}
	before := start.At
	for _, e := range c.jobs {
		if e == c.queued {
			return
		}
		from := start.At
		if !ok || e.At <= from || !c.limitOf(e.At, e.Choice).admits(&start, choice) ||
			e.Promised && from > p.Snap.Now && c.Options[choice/2].leased {
			if before = max(before, e.At); !c.startable || !p.canRegroup(e) {
				continue
			}
			from = p.Snap.Now
		}
		c.queued, c.before = e, before
		p.moves.Push(move{e, from})
		return
	}
	c.startable = false
}

// queueClasses queues jobs of the classes that may use what became free. On a single host with one pool and
// without licences all planned jobs are queued already.
func (m *mover) queueClasses() {
	if m.bookings.Profile.Hosts() == 1 && len(m.res.Hosts[0].Pools) < 2 && len(m.res.Licences) == 0 {
		return
	}
	m.noticed = m.noticed[:0]
	m.bookings.Profile.EachSooner(func(w *backfill.Want, from cluster.Instant) {
		if c := w.Owner.(*Class); c.latest > from {
			if c.queued == nil || c.before > from { // else the jobs ahead of the queued one cannot use it
				m.notice(c)
			}
			c.startable = c.startable || c.selfOverlapping && from <= m.Snap.Now
		}
	})
	for _, h := range m.touched {
		m.bookings.Profile.EachStartable(h, func(w *backfill.Want) {
			if c := w.Owner.(*Class); c.selfOverlapping {
				m.notice(c)
				c.startable = true
			}
		})
	}
	m.touched = m.touched[:0]
	for _, c := range m.noticed {
		c.noticed = false
		m.queueClass(c)
	}
}

// notice adds a class to those whose jobs may start earlier.
func (m *mover) notice(c *Class) {
	if !c.noticed {
		c.noticed = true
		m.noticed = append(m.noticed, c)
	}
}

// regroup moves a planned start to now, on some of its own hosts and others. Only its own booking kept it
// from starting there.
func (p *Pass) regroup(e *Entry) bool {
	start, choice, ok := p.regrouped(e)
	if ok {
		p.move(e, start, choice)
	}
	return ok
}

// canRegroup reports whether regroup would move a planned start.
func (p *Pass) canRegroup(e *Entry) bool {
	_, _, ok := p.regrouped(e)
	return ok
}

// regrouped returns the start now that would replace the planned one: in the partition named first, and with
// locality if possible.
func (p *Pass) regrouped(e *Entry) (start backfill.Start, choice int, ok bool) {
	if !e.Class.selfOverlapping || e.At <= p.Snap.Now || e.Starting {
		return start, 0, false
	}
	within := e.Class.limitOf(e.At, e.Choice)
	for i := range e.Class.Options {
		o := &e.Class.Options[i]
		if o.near != nil {
			if start, ok = p.bookings.Profile.Regroup(o.near, e.At, e.Shares); ok {
				return start, 2*i + 1, true
			}
		}
		if o.any != nil && p.Snap.Now < within.loose {
			if start, ok = p.bookings.Profile.Regroup(o.any, e.At, e.Shares); ok {
				return start, 2 * i, true
			}
		}
	}
	return start, 0, false
}
