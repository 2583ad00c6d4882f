package schedule

import (
	"github.com/greylag/greylag/internal/heap"
	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// Tenants are the jobs that have nodes: what they have, and until when, is not for others.

// newLeaving returns an empty heap of running jobs by expected end.
func newLeaving() heap.Heap[*runningJob] {
	return heap.NewIndexed(func(a, b **runningJob) bool { return (*a).until < (*b).until }, func(t **runningJob, place int) { (*t).place = place })
}

// newRunningJob describes what a job that runs has, until it is expected to leave.
func (p *Planner) newRunningJob(r *pass, job *cluster.Job) *runningJob {
	t := &runningJob{job: job, alloc: job.Alloc, until: p.ground.end(r.snap.Now, job)}
	for i := range job.Alloc.Nodes {
		a := &job.Alloc.Nodes[i]
		h, ok := p.ground.places[a.Node]
		if !ok {
			continue
		}
		amount := backfill.Amount{CPUs: a.CPUs, Slots: 1, Memory: a.Memory, GPUs: p.lanes(h, a.GPUs)}
		if job.Spec.Request.Exclusive {
			amount.Slots = backfill.Slots
		}
		t.hosts, t.amounts = append(t.hosts, h), append(t.amounts, amount)
		for _, twin := range p.ground.twins[a.Node] {
			if twin.host != noHost {
				t.hosts, t.amounts = append(t.hosts, twin.host), append(t.amounts, amount)
			}
		}
	}
	for _, l := range job.Spec.Request.Licences {
		if row, known := p.ground.licences[l.Name]; known {
			t.licences = append(t.licences, backfill.Licence{Row: row, Count: l.Count})
		}
	}
	return t
}

// occupy books what a tenant has.
func (p *Planner) occupy(r *pass, t *runningJob) {
	p.hold(t, r.snap.Now, t.until)
	p.tenants[t.job.ID] = t
	p.leaving.Push(t)
	for i, h := range t.hosts {
		p.unallocated[h].Take(&t.amounts[i])
	}
	p.tookGPUs(t, topology.Set.Or)
}

// release is the inverse of occupy.
func (p *Planner) release(r *pass, t *runningJob) {
	p.leave(t, r.snap.Now, t.until)
	p.leaving.Remove(t.place)
	delete(p.tenants, t.job.ID)
	for i, h := range t.hosts {
		p.unallocated[h].Give(&t.amounts[i])
	}
	p.tookGPUs(t, topology.Set.Minus)
}

// tookGPUs adds the GPUs of a tenant to those that jobs have, or takes them away.
func (p *Planner) tookGPUs(t *runningJob, change func(topology.Set, topology.Set) topology.Set) {
	for i := range t.alloc.Nodes {
		a := &t.alloc.Nodes[i]
		if h, ok := p.ground.places[a.Node]; ok {
			p.taken[h] = change(p.taken[h], topology.SetOf(a.GPUs))
		}
	}
}

// hold books what a tenant has for an interval.
func (p *Planner) hold(t *runningJob, from, to cluster.Instant) {
	for i, h := range t.hosts {
		p.profile.Take(h, from, to, &t.amounts[i])
	}
	for _, l := range t.licences {
		p.profile.TakeExtra(l.Row, from, to, l.Count)
	}
}

// leave is the inverse of hold.
func (p *Planner) leave(t *runningJob, from, to cluster.Instant) {
	for i, h := range t.hosts {
		p.profile.Give(h, from, to, &t.amounts[i])
	}
	for _, l := range t.licences {
		p.profile.GiveExtra(l.Row, from, to, l.Count)
	}
}

// lanes counts GPUs of a host by pool.
func (p *Planner) lanes(h int, gpus []int32) backfill.Lanes {
	var lanes backfill.Lanes
	pools := p.ground.hosts[h].Pools
	for i := range min(len(pools), backfill.MaxPools) {
		n := int32(0)
		for _, g := range gpus {
			if pools[i].GPUs.Has(g) {
				n++
			}
		}
		lanes |= backfill.Lane(i, n)
	}
	return lanes
}
