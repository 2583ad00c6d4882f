package plan

import (
	"slices"

	"github.com/greylag/greylag/internal/heap"
	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// Running holds the jobs with an allocation, and until when their resources are in use.
type Running struct {
	res         *Resources
	profile     *backfill.Profile
	byID        map[cluster.JobID]*RunningJob
	byEnd       heap.Heap[*RunningJob]
	unallocated []backfill.Amount // of each host
	taken       []topology.GPUSet // allocated GPUs, by host
	elastic     map[cluster.JobID]*RunningJob
	shared      sharedGPUs
	promisedAt  map[string]cluster.Instant // when a full plan begins: from when on nodes are promised to pending jobs
}

// RunningJob is a job with an allocation, or what one has on some of its nodes.
type RunningJob struct {
	Hosts   []int
	Amounts []backfill.Amount // by index of Hosts
	Until   cluster.Instant   // the expected end

	job      *cluster.Job
	alloc    *cluster.Allocation
	licences []backfill.Licence
	members  []memberNode // its extra nodes, and those that leave it
	place    int          // in the heap by end
}

func newRunning(r *Resources, profile *backfill.Profile) Running {
	t := Running{
		res: r, profile: profile, byID: map[cluster.JobID]*RunningJob{}, elastic: map[cluster.JobID]*RunningJob{}, shared: newSharedGPUs(),
		byEnd: heap.NewIndexed(
			func(a, b **RunningJob) bool { return (*a).Until < (*b).Until }, func(j **RunningJob, place int) { (*j).place = place }),
		unallocated: make([]backfill.Amount, len(r.Hosts)), taken: make([]topology.GPUSet, len(r.Hosts)),
	}
	for h := range t.unallocated {
		t.unallocated[h] = profile.All(h)
	}
	return t
}

// Job returns a running job; nil when it is not known.
func (t *Running) Job(id cluster.JobID) *RunningJob { return t.byID[id] }

// newJob describes what a job has until it is expected to end.
func (t *Running) newJob(now cluster.Instant, job *cluster.Job) *RunningJob {
	j := &RunningJob{job: job, Until: t.res.End(now, job)}
	j.alloc = &cluster.Allocation{Nodes: t.newMembers(now, job, j)}
	t.describe(j, j.alloc.Nodes)
	for _, l := range job.Spec.Request.Licences {
		if row, known := t.res.licenceRows[l.Name]; known {
			j.licences = append(j.licences, backfill.Licence{Row: row, Count: l.Count})
		}
	}
	return j
}

// describe adds what a job has of some nodes.
func (t *Running) describe(j *RunningJob, nodes []cluster.NodeAllocation) {
	job := j.job
	for i := range nodes {
		a := &nodes[i]
		h, ok := t.res.index[a.Node]
		if !ok {
			continue
		}
		amount := backfill.Amount{CPUs: a.CPUs, Slots: 1, Memory: a.Memory, Gres: backfill.GresOf(t.res.Hosts[h].Gres, job.Spec.Request.Gres)}
		if !sharesGPU(job) { // the jobs that share a GPU have it together
			amount.GPUs = t.lanes(h, a.GPUs)
		}
		if job.Spec.Request.Exclusive {
			amount.Slots = backfill.Slots
		}
		j.Hosts, j.Amounts = append(j.Hosts, h), append(j.Amounts, amount)
		for _, r := range t.res.reserved[a.Node] {
			if r.host != noHost {
				j.Hosts, j.Amounts = append(j.Hosts, r.host), append(j.Amounts, amount)
			}
		}
	}
}

// add books what a job has.
func (t *Running) add(now cluster.Instant, j *RunningJob) {
	t.byID[j.job.ID] = j
	t.byEnd.Push(j)
	if j.job.Members != nil {
		t.elastic[j.job.ID] = j
	}
	if sharesGPU(j.job) {
		t.share(j.job, j.job.Alloc.Nodes[0].Node, j.job.Alloc.Nodes[0].GPUs[0], j.Until)
	}
	for _, part := range j.Parts() {
		t.Hold(part, now, part.Until)
		for i, h := range part.Hosts {
			t.unallocated[h].Subtract(&part.Amounts[i])
		}
		t.updateTaken(part, topology.GPUSet.Or)
	}
}

// remove is the inverse of add.
func (t *Running) remove(now cluster.Instant, j *RunningJob) {
	t.byEnd.Remove(j.place)
	delete(t.byID, j.job.ID)
	delete(t.elastic, j.job.ID)
	if g := t.sharedBy(j.job); g != nil {
		g.leave(j.job.ID)
	}
	for _, part := range j.Parts() {
		t.Release(part, now, part.Until)
		for i, h := range part.Hosts {
			t.unallocated[h].Add(&part.Amounts[i])
		}
		t.updateTaken(part, topology.GPUSet.Minus)
	}
}

// setEnd changes the expected end of a job, whose place is free for that long.
func (t *Running) setEnd(j *RunningJob, end cluster.Instant) {
	switch {
	case end < j.Until:
		t.Release(j, end, j.Until)
	case end > j.Until:
		t.Hold(j, j.Until, end)
	default:
		return
	}
	if g := t.sharedBy(j.job); g != nil {
		t.share(j.job, g.node, g.gpu, end)
	}
	t.byEnd.Remove(j.place)
	j.Until = end
	t.byEnd.Push(j)
}

// updateTaken adds the GPUs of a job to the allocated ones, or removes them.
func (t *Running) updateTaken(j *RunningJob, change func(topology.GPUSet, topology.GPUSet) topology.GPUSet) {
	if sharesGPU(j.job) {
		return
	}
	for i := range j.alloc.Nodes {
		a := &j.alloc.Nodes[i]
		if h, ok := t.res.index[a.Node]; ok {
			t.taken[h] = change(t.taken[h], topology.SetOf(a.GPUs))
		}
	}
}

// Hold books what a job has for an interval.
func (t *Running) Hold(j *RunningJob, from, to cluster.Instant) {
	for i, h := range j.Hosts {
		t.profile.Take(h, from, to, &j.Amounts[i])
	}
	for _, l := range j.licences {
		t.profile.TakeLicences(l.Row, from, to, l.Count)
	}
}

// Release is the inverse of Hold.
func (t *Running) Release(j *RunningJob, from, to cluster.Instant) {
	for i, h := range j.Hosts {
		t.profile.Release(h, from, to, &j.Amounts[i])
	}
	for _, l := range j.licences {
		t.profile.ReleaseLicences(l.Row, from, to, l.Count)
	}
}

// overlapsPlan reports whether a host or a licence that a job has is planned for another job in an
// interval.
func (t *Running) overlapsPlan(j *RunningJob, from, to cluster.Instant) bool {
	for i, h := range j.Hosts {
		if !t.profile.Has(h, from, to, &j.Amounts[i]) {
			return true
		}
	}
	if t.sharedOverlapsPlan(j, from, to) {
		return true
	}
	return slices.ContainsFunc(j.licences, func(l backfill.Licence) bool {
		return !t.profile.HasLicencesUntil(l.Row, from, to, l.Count)
	})
}

// lanes counts GPUs of a host by pool.
func (t *Running) lanes(h int, gpus []int32) backfill.Lanes {
	var lanes backfill.Lanes
	pools := t.res.Hosts[h].Pools
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
