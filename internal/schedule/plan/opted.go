package plan

import (
	"slices"

	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
)

// Opted returns the jobs that may run on leased nodes and were checked in this pass: all of them in a full one.
func (p *Pass) Opted() []*Entry { return p.opted }

// Removed reports whether the job is no longer in the schedule by this entry.
func (e *Entry) Removed() bool { return e.removed }

// MayLease reports whether the job could start as soon as leased nodes joined: it is eligible and does not start now, or only
// the lack of a leased node keeps it pending.
func (e *Entry) MayLease() bool {
	return !e.removed && !e.Starting && (e.Eligible() || e.Class != nil && e.Class.Waits)
}

// ShortOfLicences returns the first licence that a job needs more of than are free now, if there is one. others are licences that
// other jobs need first, by name.
func (p *Pass) ShortOfLicences(job *cluster.Job, others map[string]int32) (string, bool) {
	for _, l := range job.Spec.Request.Licences {
		if row, known := p.res.licenceRows[l.Name]; !known || !p.bookings.Profile.HasLicences(row, p.Snap.Now, others[l.Name]+l.Count) {
			return l.Name, true
		}
	}
	return "", false
}

// OfLongLeases returns what is free of each host, without leased hosts whose leases end before a job of a class could end.
// O(leased nodes), and O(hosts) where one does.
func (p *Pass) OfLongLeases(c *Class, free []backfill.Amount) []backfill.Amount {
	end, copied := p.Snap.Now.Add(p.res.HoldTime(c.Spec)), false
	for _, n := range p.res.leased {
		if n.Rental.Until >= end {
			continue
		}
		if !copied {
			free, copied = slices.Clone(free), true
		}
		free[p.res.index[n.Name]] = backfill.Amount{}
	}
	return free
}
