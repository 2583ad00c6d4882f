package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/pkg/cluster"
)

// BrokenReason returns why a promise cannot be kept.
func (p *Pass) BrokenReason(e *Entry, promise *cluster.Promise) string {
	if e.changed != "" {
		return e.changed
	}
	if why := p.unavailable(e, promise); why != "" {
		return why
	}
	job := p.overdue(e, promise, p.overstaysFrom)
	if job != nil && job.State == cluster.Completing {
		return overstays(job)
	}
	if name := p.lostNode(); name != "" { // its jobs may have moved to these nodes
		return "node " + name + " is lost"
	}
	if p.Snap.Now.Sub(promise.At) > slack && (p.last == nil || p.last.Now < promise.At) {
		return noController
	}
	if other := p.prolonged(); other != nil {
		return "the time limit of job " + other.Ref().String() + " was raised while it runs"
	}
	if other := p.spared(); other != nil {
		return "job " + other.Ref().String() + " runs on: the job for which it was to end does not wait any more"
	}
	if job == nil && p.slips {
		job = cmp.Or(p.overdue(e, nil, p.overstaysFrom), p.overdue(e, promise, p.res.leaves), p.overdue(e, nil, p.res.leaves))
	}
	if job != nil {
		return overstays(job)
	}
	return "an administrator changed the nodes, a reservation or the policy"
}

// unavailable returns why the partition of a promise refuses its job, or which of its nodes may not
// be used; "" if the promise can be kept.
func (p *Pass) unavailable(e *Entry, promise *cluster.Promise) string {
	if x, refuses := p.res.Refusal(e.Job.Spec, promise.Partition); refuses {
		return fmt.Sprintf("partition %s %s", promise.Partition, x.Says)
	}
	for _, share := range promise.Hosts {
		n, known := p.res.Nodes[share.Node]
		switch {
		case !known:
			return "node " + share.Node + " is gone"
		case n.Drain:
			return "node " + share.Node + " was drained"
		case n.Fault != "":
			return "node " + share.Node + " has a fault"
		case n.Orphans > 0 && n.Liveness == cluster.Alive:
			return "node " + share.Node + " is still cleaning up after another job"
		case !n.Usable():
			return "node " + share.Node + " is lost"
		case n.Degraded() != "" && e.Job.Spec.Request.NeedsSeveral():
			return "node " + share.Node + " is degraded"
		}
	}
	return ""
}

// overdue returns the first job that should have left its nodes by now. With a promise it considers
// only jobs on its nodes, or with a licence that the promised job asks for.
func (p *Pass) overdue(e *Entry, promise *cluster.Promise, due func(*cluster.Job) cluster.Instant) *cluster.Job {
	for _, job := range p.Check.Jobs.Active {
		if due(job) <= p.Snap.Now && (promise == nil || inTheWay(job, e.Job.Spec, promise)) {
			return job
		}
	}
	return nil
}

// overstaysFrom returns from when on a job, or a node of it, counts as the cause of a broken promise: a
// job whose end was late has its whole time to clean up.
func (p *Pass) overstaysFrom(job *cluster.Job) cluster.Instant {
	if job.State == cluster.Completing {
		return job.Ended.Add(p.res.Grace)
	}
	return p.res.leaves(job)
}

// inTheWay reports whether a running job has a node of a promise, or a licence that the promised job
// asks for.
func inTheWay(job *cluster.Job, spec *cluster.JobSpec, promise *cluster.Promise) bool {
	for _, share := range promise.Hosts {
		if job.Alloc != nil && slices.ContainsFunc(job.Alloc.Nodes, func(a cluster.NodeAllocation) bool { return a.Node == share.Node }) {
			return true
		}
	}
	return slices.ContainsFunc(spec.Request.Licences, func(l cluster.Licence) bool {
		return slices.ContainsFunc(job.Spec.Request.Licences, func(x cluster.Licence) bool { return x.Name == l.Name })
	})
}

// prolonged returns a running job whose time limit was raised since the last pass; nil for none.
func (p *Pass) prolonged() (job *cluster.Job) {
	for _, c := range changes(p.jobs.Active, p.Check.Jobs.Active) {
		if c.old != nil && c.now != nil && c.old.Spec != c.now.Spec && eligible.TimeLimit(c.now.Spec) > eligible.TimeLimit(c.old.Spec) {
			job = c.now
		}
	}
	return job
}

// spared returns a running job that was to end for another one in the last pass, and is not any more; nil for none.
func (p *Pass) spared() (job *cluster.Job) {
	for _, c := range changes(p.jobs.Active, p.Check.Jobs.Active) {
		if c.old != nil && c.now != nil && c.old.Preempting != nil && c.now.Preempting == nil && c.now.State != cluster.Completing {
			job = c.now
		}
	}
	return job
}

// lostNode returns the first node that is not alive, but was in the last pass, if there was one; "" when
// all nodes are.
func (p *Pass) lostNode() string {
	alive := map[string]bool{}
	if p.last != nil {
		for _, n := range p.last.Nodes {
			alive[n.Name] = n.Liveness == cluster.Alive
		}
	}
	for _, n := range p.Snap.Nodes {
		if n.Liveness != cluster.Alive && (p.last == nil || alive[n.Name]) {
			return n.Name
		}
	}
	return ""
}

// Why a job may lose its promised start when its request changes.
const (
	outgrown = "the request was changed and does not fit the promised start"
	demoted  = "the job was moved to a lower tier, or to a partition of lower priority, than its start was promised for"
)

// changeReason returns why a job whose request changed may lose its promise; "" where it requests no more
// than before. A job that moves to a lower tier loses it: else it would keep a place of the high tier at
// the price, and under the limits, of the low one.
func (r *Resources) changeReason(old, now *cluster.JobSpec) string {
	switch {
	case r.Tier(now) < r.Tier(old) || r.PartitionPriority(now) < r.PartitionPriority(old):
		return demoted
	case r.asksNoMore(old, now):
		return ""
	}
	return outgrown
}

// asksNoMore reports whether a job asks for the same as before under the same limits, or for
// less time, GPUs or CPUs on as many nodes.
func (r *Resources) asksNoMore(old, now *cluster.JobSpec) bool {
	was, is := keyOf(old), keyOf(now)
	if r.HoldTime(now) > r.HoldTime(old) || is.perNode > was.perNode || is.cpus > was.cpus {
		return false
	}
	is.limit, is.perNode, is.cpus = was.limit, was.perNode, was.cpus
	return is == was && now.Account == old.Account && now.QOS == old.QOS && now.ArrayLimit == old.ArrayLimit
}

// noController is the cause when a pass was missed.
const noController = "no controller was running to start jobs in time"

// overstays returns the cause when a job has not left its nodes, or one of its nodes is not clean after
// it.
func overstays(job *cluster.Job) string {
	if job.State == cluster.Completing {
		for _, t := range job.Tasks.All() {
			if t.Phase < cluster.TaskClean {
				return "node " + t.Node + " is still cleaning up after job " + job.Ref().String()
			}
		}
	}
	return "job " + job.Ref().String() + " has not left its nodes in time"
}
