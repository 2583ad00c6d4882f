package schedule

import (
	"cmp"

	"github.com/greylag/greylag/pkg/cluster"
)

// rank is what puts a job before others, most important first.
type rank struct {
	tier      int32 // of the QOS; higher first
	part      int32 // priority of the partition; higher first
	priority  int64 // multifactor; higher first
	submitted cluster.Instant
	id        cluster.JobID
}

// compare is negative when a goes before b; it is 0 for the same job alone.
func (a *rank) compare(b *rank) int {
	return cmp.Or(
		cmp.Compare(b.tier, a.tier), cmp.Compare(b.part, a.part), cmp.Compare(b.priority, a.priority),
		cmp.Compare(a.submitted, b.submitted), cmp.Compare(a.id, b.id),
	)
}

// rankOf is the place of a job in the order. A QOS that the policy no longer has
// ranks last.
func (p *Planner) rankOf(r *round, job *cluster.Job) rank {
	of := rank{tier: p.ground.qos[job.Spec.QOS].Tier, priority: r.prio.of(job), submitted: job.Submitted, id: job.ID}
	if part, ok := p.ground.parts[job.Spec.Partition]; ok {
		of.part = part.Priority
	}
	return of
}
