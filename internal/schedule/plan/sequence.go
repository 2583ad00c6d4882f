package plan

import (
	"slices"

	"github.com/greylag/greylag/internal/schedule/order"
	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
)

// sequence records in which order jobs were planned.
type sequence struct {
	turns      int                 // jobs that were planned
	lowest     order.Rank          // of the planned jobs without a promise, unless outOfOrder
	outOfOrder bool                // a job was planned after one of lower rank
	checked    cluster.Instant     // when the order was last known to be that of the priorities
	planned    cluster.Instant     // when all jobs were planned last
	freed      backfill.FreedSoFar // what was freed by then
	alone      *Entry              // the only eligible job, whose priority was not computed; nil for none
}

// rank ranks an eligible entry. The priority of the only one is not computed before there is another:
// it can cost O(users).
func (p *Pass) rank(e *Entry) {
	q := &p.sequence
	if len(p.entries)-p.ineligible.count == 1 {
		e.Rank, q.alone, q.outOfOrder = p.res.WithoutPriority(e.Job), e, false
		return
	}
	e.Rank = p.res.Rank(e.Job, p.priorities)
	x := q.alone
	if q.alone = nil; x == nil || x.removed {
		return
	}
	if x.Rank = p.res.Rank(x.Job, p.priorities); q.lowest.ID == x.Job.ID {
		q.lowest = x.Rank
	}
	p.moves.Init()
}

// rankAll ranks all jobs of a full plan.
func (p *Pass) rankAll() {
	for _, e := range p.fullPlan.jobs {
		p.rank(e)
	}
	slices.SortFunc(p.fullPlan.jobs, compareRanks)
}

// Rank returns the rank of a job.
func (p *Pass) Rank(job *cluster.Job) order.Rank { return p.res.Rank(job, p.priorities) }

// Ahead returns the pending jobs that come before a job and are not held, in order.
func (p *Pass) Ahead(job *cluster.Job) []*cluster.Job {
	type ranked struct {
		order.Rank
		job *cluster.Job
	}
	own := p.Rank(job)
	var list []ranked
	for _, j := range p.Check.Jobs.Pending {
		if j.Hold != cluster.NotHeld || j.ID == job.ID {
			continue
		}
		if r := p.Rank(j); r.Compare(&own) < 0 {
			list = append(list, ranked{r, j})
		}
	}
	slices.SortFunc(list, func(a, b ranked) int { return a.Rank.Compare(&b.Rank) })
	jobs := make([]*cluster.Job, len(list))
	for i := range list {
		jobs[i] = list[i].job
	}
	return jobs
}

// inOrder reports whether the starts without a promise were planned in the present order of priorities:
// each was moved as early as possible, one at a time, and planning them again would only give to one job
// what it takes from another. Then the entries get their present ranks, and those inside the promise
// horizon a verdict, which makes a promise. O(jobs log jobs).
func (p *Pass) inOrder() bool {
	q, horizon := &p.sequence, p.horizon()
	allPlanned := p.bookings.due.Len()+len(p.started)+p.ineligible.count == len(p.entries)
	if allPlanned && !q.outOfOrder && p.priorities.Constant() {
		for _, e := range p.bookings.Due() {
			if !e.Promised && e.At <= horizon {
				p.markChanged(e)
			}
		}
		q.checked = p.Snap.Now
		return true
	}
	list := make([]*Entry, 0, len(p.entries))
	for _, e := range p.entries {
		switch {
		case !e.Eligible():
		case e.At == 0: // it was outside the planning window, which has moved
			return false
		default:
			list = append(list, e)
		}
	}
	slices.SortFunc(list, compareRanks)
	ranks := make([]order.Rank, len(list))
	turn := 0
	for i, e := range list {
		if ranks[i] = e.Rank; len(list) > 1 {
			ranks[i] = p.Rank(e.Job)
		}
		if i > 0 && ranks[i-1].Compare(&ranks[i]) > 0 {
			return false
		}
		if !e.Promised && !e.Starting {
			if e.turn < turn {
				return false
			}
			turn = e.turn
		}
	}
	for i, e := range list {
		if e.Rank = ranks[i]; !e.Promised && e.At <= horizon {
			p.markChanged(e)
		}
	}
	if q.checked, q.outOfOrder = p.Snap.Now, false; len(list) > 0 {
		q.lowest = list[len(list)-1].Rank
	}
	return true
}
