package schedule

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// Promises come before all else that is planned anew: each is put where it was, and who
// cannot have it there is told why.

// keepPromises books promises, the earliest first, and behind them those whose jobs ask for
// more now: that is not for them before those who were promised it.
func (p *Planner) keepPromises(r *pass, all []*entry, before map[cluster.JobID]priorPlan, slips bool) {
	var list []priorPromise
	for _, e := range all {
		e.class.jobs = append(e.class.jobs, e)
		old, plan := before[e.job.ID], e.job.Promise
		if e.broken = old.broken; e.broken != "" {
			continue
		}
		e.changed = old.changed
		if old.firm { // perhaps not yet agreed
			if plan = old.plan; old.spec != e.job.Spec {
				e.changed = p.ground.changed(old.spec, e.job.Spec)
			}
		}
		if plan != nil && e.changed != demoted {
			list = append(list, priorPromise{e, plan, old})
		}
	}
	slices.SortStableFunc(list, func(a, b priorPromise) int { return cmp.Compare(a.plan.At, b.plan.At) })
	if !slips {
		list, slips = p.stayOrSlip(r, list)
	}
	for _, changed := range []bool{false, true} {
		for _, x := range list {
			if changed == (x.changed != "") {
				p.keep(r, x.entry, x.plan, &x.old, slips)
			}
		}
	}
}

// priorPromise is a promise that is to be kept, and what was planned for its job.
type priorPromise struct {
	*entry
	plan *cluster.Promise
	old  priorPlan
}

// stayOrSlip books the promises that can be kept where they are, and answers with the others.
// When some cannot although their nodes are there, all are booked within the leeway, if that
// can be. Where a job that should have left its nodes is in the way of one, it books none and
// reports that they slip.
func (p *Planner) stayOrSlip(r *pass, all []priorPromise) (list []priorPromise, slips bool) {
	list = p.stay(r, slices.Clone(all))
	near := false
	for i := range list {
		x := &list[i]
		near = near || x.changed == "" && p.unavailable(x.entry, x.plan) == ""
		r.slips = r.slips || p.overdue(r, x.entry, x.plan, p.ground.leaves) != nil
	}
	if !r.slips && !near {
		return list, false
	}
	p.unbookAll(r, all)
	if r.slips {
		return all, true
	}
	list = nil
	for i := range all {
		if x := &all[i]; x.changed != "" {
			list = append(list, *x)
		} else if s, choice, ok := p.near(r, x.entry, x.plan, &x.old); ok && s.At.Sub(x.plan.At) <= Leeway {
			p.keepAt(r, x.entry, x.plan, s, choice)
		} else {
			p.unbookAll(r, all)
			return p.stay(r, all), false
		}
	}
	return list, false
}

// unbookAll removes promises from the plan that this pass has booked.
func (p *Planner) unbookAll(r *pass, all []priorPromise) {
	for i := range all {
		if e := all[i].entry; e.at > 0 {
			p.unbook(e)
			p.releasePromise(r, e)
			e.promised, e.owed = false, 0
		}
	}
}

// stay books the promises that can be kept where they are, so that none has to give way to one
// whose node is lost. Those that could have GPUs of other pools of their nodes come last: of which
// they were a new leader is not told. It answers with the others.
func (p *Planner) stay(r *pass, list []priorPromise) []priorPromise {
	for _, choosy := range []bool{false, true} {
		for i := range list {
			x := &list[i]
			if x.changed != "" || choosy != x.class.multiPool || r.snap.Now.Sub(x.plan.At) > slack {
				continue
			}
			if s, choice, ok := p.kept(x.entry, x.plan, x.plan.At, &x.old); ok {
				p.pledge(r, x.entry)
				p.book(x.entry, s, choice)
			}
		}
	}
	return slices.DeleteFunc(list, func(x priorPromise) bool { return x.at > 0 })
}

// keep books a promise where it was: on the hosts that are kept for it, else on others
// at the same time or within the leeway. When there are none it is broken; if it slips, it
// is put off as little as can be.
func (p *Planner) keep(r *pass, e *entry, promise *cluster.Promise, old *priorPlan, slips bool) {
	s, choice, ok := p.near(r, e, promise, old)
	if !ok || s.At.Sub(promise.At) > Leeway {
		e.broken = p.brokenReason(r, e, promise)
	}
	if !ok && slips {
		s, choice, ok = p.find(e.class, max(promise.At, r.snap.Now), cluster.Never, (*backfill.Profile).Search)
	}
	if ok {
		p.keepAt(r, e, promise, s, choice)
	}
}

// keepAt books the start of a promise.
func (p *Planner) keepAt(r *pass, e *entry, promise *cluster.Promise, s backfill.Start, choice int) {
	e.owed = promise.At
	p.pledge(r, e)
	p.book(e, s, choice)
}

// near returns a start at the time of a promise or within the leeway; now, if that time has passed.
func (p *Planner) near(r *pass, e *entry, promise *cluster.Promise, old *priorPlan) (backfill.Start, int, bool) {
	s, choice, ok := p.samePlace(r, e, promise, old)
	if !ok {
		s, choice, ok = p.find(e.class, max(promise.At, r.snap.Now), promise.At.Add(Leeway)+1, (*backfill.Profile).Search)
	}
	return s, choice, ok
}

// samePlace is a start at the time of a promise, or now if that is over: on the hosts that
// are kept for it, else on others. A pass that comes a moment late leaves it where it was,
// else its end would be in the way of who follows.
func (p *Planner) samePlace(r *pass, e *entry, promise *cluster.Promise, old *priorPlan) (backfill.Start, int, bool) {
	at := promise.At
	if r.snap.Now.Sub(at) > slack {
		at = r.snap.Now
	}
	if s, choice, ok := p.kept(e, promise, at, old); ok {
		return s, choice, true
	}
	at = max(at, r.snap.Now)
	return p.find(e.class, at, at+1, (*backfill.Profile).Search)
}

// kept is the start that a promise names, when its hosts still have what it needs: of the pools
// that it was of, if that is known.
func (p *Planner) kept(e *entry, promise *cluster.Promise, at cluster.Instant, old *priorPlan) (backfill.Start, int, bool) {
	var hosts []int
	var gpus []int32
	for _, share := range promise.Hosts {
		h, _, ok := p.ground.hostOf(e.job.Spec, share.Node)
		if !ok {
			return backfill.Start{}, 0, false
		}
		hosts, gpus = append(hosts, h), append(gpus, share.GPUs)
	}
	for i := range e.class.options {
		o := &e.class.options[i]
		if o.part.Name != promise.Partition {
			continue
		}
		for choice := 2*i + 1; choice >= 2*i; choice-- { // near, if those hosts are
			w := e.class.want(choice)
			if w == nil {
				continue
			}
			give, asked := given(&w.Need, gpus)
			if !asked {
				continue
			}
			shares, ok := p.profile.Shares(w, promise.Kind, at, hosts, give)
			if same := old.same(e, p.ground, shares, choice); ok && same != nil && p.profile.Fits(w, at, same) {
				shares = same
			}
			if ok && p.profile.Fits(w, at, shares) {
				return backfill.Start{At: at, Kind: promise.Kind, Shares: shares}, choice, true
			}
		}
	}
	return backfill.Start{}, 0, false
}

// same is shares with GPUs of the pools that they were of before, of a job that asks for the same
// and hosts that have the same; nil where that is not known, or all have one pool. A promise does
// not say of which pools its GPUs are, and another may need those that are chosen for it anew.
func (m *priorPlan) same(e *entry, g *resources, shares []backfill.Share, choice int) []backfill.Share {
	if len(m.shares) != len(shares) || m.spec != e.job.Spec || m.choice%2 != choice%2 {
		return nil
	}
	var list []backfill.Share
	for i := range shares {
		is := g.hosts[shares[i].Host]
		if len(is.Pools) < 2 {
			continue
		}
		k := i
		if m.hosts[m.shares[k].Host].Name != is.Name { // in another order now
			k = slices.IndexFunc(m.shares, func(s backfill.Share) bool { return m.hosts[s.Host].Name == is.Name })
		}
		if k < 0 || m.shares[k].GPUs != shares[i].GPUs || !slices.Equal(m.hosts[m.shares[k].Host].Pools, is.Pools) {
			return nil
		}
		if list == nil {
			list = slices.Clone(shares)
		}
		list[i].Amount.GPUs = m.shares[k].Amount.GPUs
	}
	return list
}

// promisedStart returns the promised start of a firm entry: its planned start, or the earlier promised
// start if that is within the leeway.
func (e *entry) promisedStart() cluster.Instant {
	if e.promised && e.owed > 0 && e.owed < e.at && e.at.Sub(e.owed) <= Leeway {
		return e.owed
	}
	return e.at
}

// promiseOf is the promise that a firm entry amounts to.
func (p *Planner) promiseOf(e *entry) *cluster.Promise {
	promise := &cluster.Promise{At: e.promisedStart(), Partition: e.class.options[e.choice/2].part.Name, Kind: e.kind}
	for _, s := range e.shares {
		promise.Hosts = append(promise.Hosts, cluster.NodeShare{Node: p.ground.hosts[s.Host].Name, GPUs: s.GPUs})
	}
	return promise
}

// brokenReason is why a promise cannot be kept.
func (p *Planner) brokenReason(r *pass, e *entry, promise *cluster.Promise) string {
	if e.changed != "" {
		return e.changed
	}
	if why := p.unavailable(e, promise); why != "" {
		return why
	}
	job := p.overdue(r, e, promise, p.overstaysFrom)
	if job != nil && job.State == cluster.Completing {
		return overstays(job)
	}
	if name := p.lostNow(r.snap); name != "" { // another, from which somebody had to move to these
		return "node " + name + " is lost"
	}
	if r.snap.Now.Sub(promise.At) > slack && (p.last == nil || p.last.Now < promise.At) {
		return late
	}
	if other := p.prolonged(r); other != nil {
		return "the time limit of job " + other.Ref().String() + " was raised while it runs"
	}
	if job == nil && r.slips {
		job = cmp.Or(p.overdue(r, e, nil, p.overstaysFrom), p.overdue(r, e, promise, p.ground.leaves), p.overdue(r, e, nil, p.ground.leaves))
	}
	if job != nil {
		return overstays(job)
	}
	return "an administrator changed the nodes, a reservation or the policy"
}

// unavailable returns why the partition of a promise refuses its job, or which of its nodes may not
// be used; "" if the promise can be kept.
func (p *Planner) unavailable(e *entry, promise *cluster.Promise) string {
	if x, refuses := p.ground.refusalBy(e.job.Spec, promise.Partition); refuses {
		return fmt.Sprintf("partition %s %s", promise.Partition, x.says)
	}
	for _, share := range promise.Hosts {
		n, known := p.ground.nodes[share.Node]
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
		}
	}
	return ""
}

// overdue returns the first job that should have left its nodes by now. With a promise it considers
// only jobs on its nodes, or with a licence that the promised job asks for.
func (p *Planner) overdue(r *pass, e *entry, promise *cluster.Promise, due func(*cluster.Job) cluster.Instant) *cluster.Job {
	for _, job := range r.jobs.active {
		if due(job) <= r.snap.Now && (promise == nil || inTheWay(job, e.job.Spec, promise)) {
			return job
		}
	}
	return nil
}

// overstaysFrom is from when on a job, or a node of it, is the cause of a promise that is not
// kept: one that was ended late has all of its time to clean up.
func (p *Planner) overstaysFrom(job *cluster.Job) cluster.Instant {
	if job.State == cluster.Completing {
		return job.Ended.Add(p.ground.grace)
	}
	return p.ground.leaves(job)
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

// prolonged is a job that runs and was given more time since the last pass; nil for none.
func (p *Planner) prolonged(r *pass) (job *cluster.Job) {
	for _, c := range changes(p.active, r.jobs.active) {
		if c.old != nil && c.now != nil && c.old.Spec != c.now.Spec && limitOf(c.now.Spec) > limitOf(c.old.Spec) {
			job = c.now
		}
	}
	return job
}

// lostNow is the first node that was heard when the last pass was made and is not any
// more; before there was one, the first that is not heard. "" when there is none.
func (p *Planner) lostNow(snap *cluster.Snapshot) string {
	heard := map[string]bool{}
	if p.last != nil {
		for _, n := range p.last.Nodes {
			heard[n.Name] = n.Liveness == cluster.Alive
		}
	}
	for _, n := range snap.Nodes {
		if n.Liveness != cluster.Alive && (p.last == nil || heard[n.Name]) {
			return n.Name
		}
	}
	return ""
}

// Why a job loses the start it was promised when it asks for something else.
const (
	outgrown = "what the job asks for was changed, and does not fit where it was promised to start"
	demoted  = "the job was moved to a QOS of a lower tier, or to a partition of lower priority, than it was promised its start in"
)

// changed is why a job may lose its promise that asks for something else now; "" where that
// is no more than before. One that goes to a lower tier does: else a place got in a high one
// would be had at the price, and under the limits, of a low one.
func (g *resources) changed(old, now *cluster.JobSpec) string {
	switch {
	case g.tierOf(now) < g.tierOf(old) || g.priorityOf(now) < g.priorityOf(old):
		return demoted
	case g.asksNoMore(old, now):
		return ""
	}
	return outgrown
}

// asksNoMore reports whether a job asks for the same as before under the same limits, or for
// less time, GPUs or CPUs on as many nodes.
func (g *resources) asksNoMore(old, now *cluster.JobSpec) bool {
	was, is := keyOf(old), keyOf(now)
	if g.holdTime(now) > g.holdTime(old) || is.perNode > was.perNode || is.cpus > was.cpus {
		return false
	}
	is.limit, is.perNode, is.cpus = was.limit, was.perNode, was.cpus
	return is == was && now.Account == old.Account && now.QOS == old.QOS && now.ArrayLimit == old.ArrayLimit
}

// late is the cause that nobody but the controllers gives.
const late = "no controller was there to start jobs in time"

// overstays is the cause that a job gives by not leaving, or one of its nodes by not being
// clean after it.
func overstays(job *cluster.Job) string {
	if job.State == cluster.Completing {
		for i := range job.Tasks {
			if t := &job.Tasks[i]; t.Phase < cluster.TaskClean {
				return "node " + t.Node + " is still cleaning up after job " + job.Ref().String()
			}
		}
	}
	return "job " + job.Ref().String() + " has not left its nodes in time"
}

// given is how many GPUs each of the hosts of a promise gives to what is asked for now, which
// may be less than then; false when that is something else on so many hosts.
func given(need *topology.Need, gpus []int32) ([]int32, bool) {
	if need.Nodes > 0 && len(gpus) != int(need.Nodes) {
		return nil, false
	}
	if need.PerNode >= 0 {
		return slices.Repeat([]int32{need.PerNode}, len(gpus)), true
	}
	sum := int32(0)
	for _, n := range gpus {
		sum += n
	}
	return gpus, sum == need.Total
}
