package schedule

import (
	"slices"
	"strings"

	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// startDue starts every job whose planned start has come, in order. Which hosts and
// which GPUs it gets is chosen only now, among all that are free for as long as it
// may run.
func (p *Planner) startDue(r *pass) {
	due := slices.DeleteFunc(p.started, func(e *entry) bool { return e.gone || e.kept != nil }) // that still wait
	p.started = nil
	for {
		if at, ok := p.nextDue(); !ok || at > r.snap.Now {
			break
		}
		due = append(due, p.due.Pop())
	}
	if len(due) == 0 {
		return
	}
	slices.SortFunc(due, func(a, b *entry) int { return a.rank.compare(&b.rank) })
	r.begun = map[jobName]bool{}
	used := map[int]topology.Set{} // with what starts in this pass, of the hosts that it concerns
	for _, e := range due {
		if len(r.decision.Plan.Starts) == maxStarts {
			r.decision.More = true
			p.due.Push(e)
			continue
		}
		if r.begun[bearerOf(e.job)] && isSingleton(e.job.Spec) { // if that start holds
			r.decision.More = true
			p.due.Push(e)
			continue
		}
		v, limited := r.limits.bar(e.job)
		if !limited && !p.pledged[e] {
			v, limited = p.promisedAway(r, e.job)
		}
		if limited {
			p.postpone(r, e, v)
			continue
		}
		p.start(r, e, used)
	}
}

// postpone takes a job out of the plan that may not start now.
func (p *Planner) postpone(r *pass, e *entry, v verdict) {
	for _, share := range e.shares {
		p.left[share.Host] = true
	}
	r.decision.More = true // others may have its place
	p.due.Push(e)
	p.withhold(r, e, v)
}

// withhold takes a job out of the plan until a limit lets it start.
func (p *Planner) withhold(r *pass, e *entry, v verdict) {
	p.unbook(e)
	p.releasePromise(r, e)
	e.class.remove(e)
	p.unlimit(r, e)
	p.singles.remove(e)
	e.promised, e.starts = false, false
	p.barred.add(r, e, v)
	r.markChanged(e)
}

// start decides that a job starts now.
func (p *Planner) start(r *pass, e *entry, used map[int]topology.Set) {
	if !e.starts {
		p.due.Push(e)
		p.settleOn(r, e)
		p.due.Remove(e.place)
		p.count(e, -1)
		e.starts = true
	}
	p.releasePromise(r, e)
	p.started = append(p.started, e)
	where := cluster.Placement{}
	for i := range e.shares {
		where.Nodes = append(where.Nodes, p.grant(e, &e.shares[i], used))
	}
	slices.SortFunc(where.Nodes, func(a, b cluster.NodeAllocation) int { return strings.Compare(a.Node, b.Node) })
	r.decision.Plan.Starts = append(r.decision.Plan.Starts, cluster.PlannedStart{
		Job: e.job.ID, Attempt: e.job.Attempt + 1, Partition: e.class.options[e.choice/2].part.Name, Placement: where,
	})
	r.limits.start(e.job)
	if len(p.singles.of) > 0 {
		r.begun[bearerOf(e.job)] = true
	}
}

// settleOn chooses anew on which hosts a job starts that was planned before: what was
// best when it was planned need not be now. Who waited to have its nodes near each other
// has them: a pass that comes a moment late may see room for all of its time elsewhere only.
func (p *Planner) settleOn(r *pass, e *entry) {
	now := r.snap.Now
	if e.at == now {
		return // it was planned in this pass
	}
	w := e.class.want(e.choice)
	p.profile.Lift(w, e.at, e.shares)
	s, choice, ok := p.find(e.class, now, now+1, (*backfill.Profile).Search)
	p.profile.Lower(w, e.at, e.shares)
	if ok && (choice%2 == 1 || e.choice%2 == 0) {
		for _, share := range e.shares {
			p.left[share.Host] = true // for those who were planned behind it, in the pass that follows
		}
		p.rebook(e, s, choice)
	}
}

// grant chooses the GPUs of one host: of each pool as many as are kept, the lowest
// that nobody has.
func (p *Planner) grant(e *entry, share *backfill.Share, used map[int]topology.Set) cluster.NodeAllocation {
	host := p.ground.hosts[share.Host]
	h := p.ground.places[host.Name]
	taken, known := used[h]
	if !known {
		taken = p.taken[h]
	}
	var gpus topology.Set
	for i := range min(len(host.Pools), backfill.MaxPools) {
		free := host.Pools[i].GPUs.Minus(taken)
		gpus = gpus.Or(free.Lowest(share.Amount.GPUs.Of(i)))
	}
	used[h] = taken.Or(gpus)
	return cluster.NodeAllocation{Node: host.Name, GPUs: gpus.Indices(), CPUs: share.Amount.CPUs, Memory: share.Amount.Memory}
}
