package schedule

import (
	"cmp"

	"github.com/greylag/greylag/pkg/cluster"
)

// rank is what puts a job before others, most important first.
type rank struct {
	tier      int32 // of the QOS, or the lowest; higher first
	part      int32 // priority of the partition; higher first
	priority  int64 // multifactor; higher first
	submitted cluster.Instant
	id        cluster.JobID
}

// compare is negative when a goes before b; it is 0 for the same job alone.
func (a *rank) compare(b *rank) int {
	switch {
	case a.tier != b.tier:
		return cmp.Compare(b.tier, a.tier)
	case a.part != b.part:
		return cmp.Compare(b.part, a.part)
	case a.priority != b.priority:
		return cmp.Compare(b.priority, a.priority)
	case a.submitted != b.submitted:
		return cmp.Compare(a.submitted, b.submitted)
	}
	return cmp.Compare(a.id, b.id)
}

// enrol gives an entry its rank. The priority of one that nobody else waits beside is
// not asked for until there is another: it can cost what all users of the cluster do.
func (p *Planner) enrol(r *pass, e *entry) {
	if len(p.entries)-p.barred.count == 1 {
		e.rank, p.alone, p.outOfOrder = p.placeOf(e.job), e, false
		return
	}
	e.rank = p.rankOf(r, e.job)
	x := p.alone
	if p.alone = nil; x == nil || x.gone {
		return
	}
	if x.rank = p.rankOf(r, x.job); p.lowestPlanned.id == x.job.ID {
		p.lowestPlanned = x.rank
	}
	p.offers.Init()
}

// rankOf is the place of a job in the order. A QOS that the policy no longer has
// ranks last.
func (p *Planner) rankOf(r *pass, job *cluster.Job) rank {
	of := p.placeOf(job)
	of.priority = r.prio.of(job)
	return of
}

// placeOf is the rank of a job without its priority.
func (p *Planner) placeOf(job *cluster.Job) rank {
	of := rank{tier: p.ground.tierOf(job.Spec), submitted: job.Submitted, id: job.ID}
	of.part = p.ground.priorityOf(job.Spec)
	return of
}

// tierOf is the tier of a job's QOS, or the lowest when its account is over its budget.
func (g *resources) tierOf(spec *cluster.JobSpec) int32 {
	return g.lowered.tierOf(spec, g.qos[spec.QOS].Tier)
}

// priorityOf is the priority of a job's first partition; 0 where there is none of that name.
func (g *resources) priorityOf(spec *cluster.JobSpec) int32 {
	if part, ok := g.parts[spec.Partition]; ok {
		return part.Priority
	}
	return 0
}
