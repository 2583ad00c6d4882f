package plan

import (
	"slices"

	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
)

// While a preemptor waits for its victims, no other job gets what they leave: not even for the time until the last
// of them has left. Victims that have a notice run on if the preemptor does not wait any more. What they have beyond
// its needs stays theirs until they end, so that no promise depends on that.

// reserveFreed takes from other jobs what is free of the preemptor's hosts until its start, and what victims with a notice
// keep if they are spared. It lasts until all jobs are planned again. O(running jobs).
func (p *Pass) reserveFreed() {
	e := p.entries[p.fullPlan.preemptor]
	if p.keepPlaces || e == nil || e.At <= p.Snap.Now {
		return
	}
	p.reservesFreed = true
	for i := range e.Shares {
		p.takeFree(e.Shares[i].Host, p.Snap.Now, e.At, &e.Shares[i].Amount)
	}
	for _, job := range p.Check.Jobs.Active {
		if job.Preempting == nil || job.Preempting.By == 0 {
			continue
		}
		spared := *job
		spared.Preempting = nil
		t, end := p.running.Job(job.ID), p.res.End(p.Snap.Now, &spared)
		for i, h := range t.Hosts {
			p.takeFree(h, t.Until, end, &t.Amounts[i])
		}
	}
}

// takeFree takes as much of an amount as is free at each instant of an interval. O(steps).
func (p *Pass) takeFree(h int, from, to cluster.Instant, amount *backfill.Amount) {
	row := p.bookings.Profile.Row(h).Clone()
	for s := range row.Steps(from, to) {
		free := s.Free
		free.Limit(amount)
		free.CPUs, free.Slots, free.Memory = max(free.CPUs, 0), max(free.Slots, 0), max(free.Memory, 0)
		for i := range free.Gres {
			free.Gres[i] = max(free.Gres[i], 0)
		}
		p.bookings.Profile.Take(h, s.From, s.To, &free)
	}
}

// mustReserveAgain reports whether the preemptor has started or left, or victims have left hosts of the preemptor.
func (p *Pass) mustReserveAgain() bool {
	e := p.entries[p.preemptor]
	if e == nil || e.Starting || e.At == 0 {
		return true
	}
	on := func(a cluster.NodeAllocation) bool {
		h, known := p.res.index[a.Node]
		return known && slices.ContainsFunc(e.Shares, func(s backfill.HostShare) bool { return s.Host == h })
	}
	return slices.ContainsFunc(changes(p.jobs.Active, p.Check.Jobs.Active), func(c jobChange) bool {
		switch {
		case c.old == nil:
			return false
		case c.now != nil:
			return c.old.Preempting != c.now.Preempting || c.old.Alloc != nil && c.old.Alloc != c.now.Alloc && slices.ContainsFunc(c.old.Alloc.Nodes, on)
		}
		return c.old.Alloc != nil && slices.ContainsFunc(c.old.Alloc.Nodes, on)
	})
}
