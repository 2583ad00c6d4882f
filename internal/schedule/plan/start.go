package plan

import (
	"slices"
	"strings"

	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// MaxStarts ends the starts of one pass, so that its plan is committed soon; another pass follows.
const MaxStarts = 1024

// startDue starts the jobs whose planned start has come, in order. The hosts and GPUs of each are chosen
// now, among all that are free for the whole time of the job.
func (p *Pass) startDue() {
	due := slices.DeleteFunc(p.started, func(e *Entry) bool { return e.removed || e.blocked != nil }) // stale starts
	p.started = nil
	for {
		if at, ok := p.bookings.next(); !ok || at > p.Snap.Now {
			break
		}
		due = append(due, p.bookings.due.Pop())
	}
	slices.SortFunc(due, compareRanks)
	p.startNames = map[eligible.JobName]bool{}
	p.running.openOn(p.freedHosts)
	for _, e := range due {
		// A singleton waits for the outcome of another start of its name.
		if len(p.Starts) == MaxStarts || p.startNames[eligible.JobNameOf(e.Job)] && eligible.IsSingleton(e.Job.Spec) {
			p.More = true
			p.bookings.due.Push(e)
			continue
		}
		o, limited := p.Check.Limits.First(e.Job)
		if !limited && !p.promises.jobs[e] {
			o, limited = p.promises.exceeded(e.Job)
		}
		if limited {
			p.freeForNext(e)
			p.More = true // others may have its place
			p.bookings.due.Push(e)
			p.withdraw(e, o)
			continue
		}
		p.start(e)
	}
	p.startSharing()
}

// freeForNext records that the next pass may use the hosts of a planned start.
func (p *Pass) freeForNext(e *Entry) {
	for _, share := range e.Shares {
		p.freed[share.Host] = true
	}
}

// start starts a job.
func (p *Pass) start(e *Entry) {
	p.promises.release(e)
	if !e.Starting {
		p.bookings.due.Push(e)
		p.choose(e)
		p.bookings.due.Remove(e.place)
		p.bookings.count(e, -1)
		e.Starting = true
	}
	p.started = append(p.started, e)
	where := cluster.Placement{}
	for i := range e.Shares {
		if e.shared != nil {
			where.Nodes = append(where.Nodes, e.shareOf(p.res))
			continue
		}
		where.Nodes = append(where.Nodes, p.allocate(&e.Shares[i], p.used))
	}
	slices.SortFunc(where.Nodes, func(a, b cluster.NodeAllocation) int { return strings.Compare(a.Node, b.Node) })
	p.Starts = append(p.Starts, cluster.PlannedStart{
		Job: e.Job.ID, Attempt: e.Job.Attempt + 1, Partition: e.Option().Partition, Placement: where,
	})
	p.Check.Limits.Start(e.onNodes(int32(len(e.Shares))))
	if len(p.singletons.byName) > 0 {
		p.startNames[eligible.JobNameOf(e.Job)] = true
	}
}

// choose chooses where a job starts that is due.
func (p *Pass) choose(e *Entry) {
	shares := e.Job.Spec.Request.Share.On()
	if shares && (e.shared != nil || p.join(e)) {
		return
	}
	p.chooseHosts(e)
	p.widen(e)
	if shares {
		p.beginSharing(e)
	}
}

// chooseHosts chooses the hosts of a start again that an earlier pass planned: the best ones may be
// others now. A job that waited for locality keeps it: a pass that comes a moment late may find enough
// time for the job only elsewhere.
func (p *Pass) chooseHosts(e *Entry) {
	now := p.Snap.Now
	if e.At == now {
		return // this pass planned it
	}
	w := e.Class.want(e.Choice)
	p.bookings.Profile.Hide(w, e.At, e.Shares)
	s, choice, ok := p.bookings.Find(e.Class, now, now+1)
	p.bookings.Profile.Show(w, e.At, e.Shares)
	if ok && (choice%2 == 1 || !e.Near()) {
		p.freeForNext(e)
		p.bookings.rebook(e, s, choice)
	}
}

// widen adds hosts to the start of a job that takes a range of nodes: as many as can serve it now for its
// whole time without delaying other planned starts, and as its limits allow.
func (p *Pass) widen(e *Entry) {
	q := &e.Job.Spec.Request
	most := q.MaxNodes
	if e.Job.Spec.Elastic.On() { // it gets extra nodes when all is planned
		return
	}
	if part := p.res.parts[e.Option().Partition]; part.MaxNodes > 0 {
		most = min(most, part.MaxNodes)
	}
	most = p.withinLimits(e, q.Nodes, most)
	if most <= q.Nodes {
		return
	}
	w := e.Class.want(e.Choice)
	p.bookings.Profile.Hide(w, e.At, e.Shares)
	s, ok := p.bookings.Profile.Widest(w, e.Kind, p.Snap.Now, most)
	p.bookings.Profile.Show(w, e.At, e.Shares)
	if ok {
		p.freeForNext(e)
		p.bookings.rebook(e, s, e.Choice)
	}
}

// withinLimits returns the largest number of nodes from least to most that the limits of a job allow, and
// what they keep for promises.
func (p *Pass) withinLimits(e *Entry, least, most int32) int32 {
	if !p.Check.Limits.Limited() {
		return most
	}
	for least < most {
		middle := least + (most-least+1)/2
		if p.promises.allow(e.onNodes(middle)) {
			least = middle
		} else {
			most = middle - 1
		}
	}
	return least
}

// onNodes returns the job with a number of nodes, if it takes a range of them.
func (e *Entry) onNodes(n int32) *cluster.Job {
	spec := e.Job.Spec.OnNodes(n)
	if spec == e.Job.Spec {
		return e.Job
	}
	job := *e.Job
	job.Spec = spec
	return &job
}

// allocate chooses the GPUs of one host: of each pool the lowest free ones, as many as are planned.
func (p *Pass) allocate(share *backfill.HostShare, used map[int]topology.GPUSet) cluster.NodeAllocation {
	host := p.res.Hosts[share.Host]
	h := p.res.index[host.Name]
	taken, known := used[h]
	if !known {
		taken = p.running.taken[h]
	}
	var gpus topology.GPUSet
	for i := range min(len(host.Pools), backfill.MaxPools) {
		free := host.Pools[i].GPUs.Minus(taken)
		gpus = gpus.Or(free.Lowest(share.Amount.GPUs.Of(i)))
	}
	used[h] = taken.Or(gpus)
	return cluster.NodeAllocation{Node: host.Name, GPUs: gpus.Indices(), CPUs: share.Amount.CPUs, Memory: share.Amount.Memory}
}
