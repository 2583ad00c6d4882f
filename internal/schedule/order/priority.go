package order

import (
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// million is a factor of 1: factors are in parts per million.
const million = 1_000_000

// PriorityParts are the parts of a job's priority (slurm.schedmd.com/priority_multifactor.html):
// factors in parts per million, each factor times its weight, and the sum.
type PriorityParts struct {
	AgeFactor, FairShareFactor, JobSizeFactor, PartitionFactor, QOSFactor int64
	Age, FairShare, JobSize, Partition, QOS                               int64
	Nice                                                                  int64
	Priority                                                              int64
}

// Priorities computes multifactor priorities at the instant of a snapshot.
type Priorities struct {
	snap       *cluster.Snapshot
	weights    *cluster.Weights
	qos        map[string]int64 // factors
	partitions map[string]int64 // factors of partitions
	gpus       int64            // of the cluster, in 1/MIGShares; -1 before the first use
	instances  map[string]int64 // the largest share of the instances of each MIG profile
	cpus       int64
	fairness   *fairness       // nil before the first use
	counted    cluster.Instant // when fairness was computed
	stale      bool            // fairness has to be computed again
}

// recomputeAfter is the lifetime of fair-share factors. They cost O(users) and change slowly: in
// that time, 0.1 % of a half-life of 7 days, usage decays by 0.07 %.
const recomputeAfter = 10 * time.Minute

// newPriorities prepares the priorities of a snapshot. O(QOS + partitions); the first fair-share
// factor costs O(accounts + users).
func newPriorities(snap *cluster.Snapshot) *Priorities {
	p := &Priorities{
		snap: snap, weights: &snap.Policy.Scheduling.Weights, gpus: -1,
		qos: map[string]int64{}, partitions: map[string]int64{},
	}
	var mostQOS, mostPart int32
	for _, q := range snap.Policy.QOS {
		mostQOS = max(mostQOS, q.Priority)
	}
	for _, part := range snap.Policy.Partitions {
		mostPart = max(mostPart, part.Priority)
	}
	for _, q := range snap.Policy.QOS {
		p.qos[q.Name] = portion(int64(q.Priority), int64(mostQOS))
	}
	for _, part := range snap.Policy.Partitions {
		p.partitions[part.Name] = portion(int64(part.Priority), int64(mostPart))
	}
	return p
}

// At returns the priorities of another snapshot and invalidates p, which may be nil. The factors that
// depend on the policy alone are kept while the policy is the same.
func (p *Priorities) At(snap *cluster.Snapshot) *Priorities {
	if p == nil || p.snap.Policy != snap.Policy {
		return newPriorities(snap)
	}
	same := p.snap.Accounts != nil && snap.Accounts != nil && snap.Accounts.Tree == p.snap.Accounts.Tree
	p.stale = p.stale || !same || snap.Now < p.counted || snap.Now.Sub(p.counted) >= recomputeAfter
	p.snap, p.gpus, p.cpus = snap, -1, 0
	return p
}

// Constant reports whether priorities change with the policy alone.
func (p *Priorities) Constant() bool {
	w := p.weights
	return (w.Age == 0 || w.MaxAge == 0) && w.FairShare == 0 && w.JobSize == 0
}

// PartsOf returns a function that returns the parts of the priority of a job of the snapshot.
func PartsOf(snap *cluster.Snapshot) func(*cluster.Job) PriorityParts {
	return newPriorities(snap).parts
}

// portion returns n/most in parts per million, at least 0 and at most a million.
func portion(n, most int64) int64 {
	switch {
	case n <= 0 || most <= 0:
		return 0
	case n >= most:
		return million
	case n > (1<<62)/million:
		return n / (most/million + 1)
	}
	return n * million / most
}

// of returns the priority of a job. O(1).
func (p *Priorities) of(job *cluster.Job) int64 { return p.parts(job).Priority }

// parts returns the parts of a job's priority. O(1).
func (p *Priorities) parts(job *cluster.Job) PriorityParts {
	w := p.weights
	x := PriorityParts{
		QOSFactor: p.qos[job.Spec.QOS], PartitionFactor: p.partitions[job.Spec.Partition], Nice: int64(job.Spec.Nice),
	}
	if w.MaxAge > 0 {
		since := max(job.Submitted, job.Eligible)
		x.AgeFactor = portion(int64(p.snap.Now.Sub(since)/time.Second), int64(w.MaxAge/time.Second))
	}
	if w.FairShare != 0 {
		x.FairShareFactor = p.share(job)
	}
	if w.JobSize != 0 {
		x.JobSizeFactor = p.size(job)
	}
	x.Age, x.FairShare = weighed(w.Age, x.AgeFactor), weighed(w.FairShare, x.FairShareFactor)
	x.JobSize, x.Partition, x.QOS = weighed(w.JobSize, x.JobSizeFactor), weighed(w.Partition, x.PartitionFactor), weighed(w.QOS, x.QOSFactor)
	x.Priority = x.Age + x.FairShare + x.JobSize + x.Partition + x.QOS - x.Nice
	return x
}

// weighed returns weight × factor without overflow: the factor is at most a million.
func weighed(weight, factor int64) int64 {
	return weight/million*factor + weight%million*factor/million
}

// share returns the fair-share factor of a job's user in its account.
func (p *Priorities) share(job *cluster.Job) int64 {
	if p.snap.Accounts == nil {
		return million
	}
	if p.fairness == nil || p.stale {
		rules := &p.snap.Policy.Scheduling.FairShare
		if p.fairness == nil || !p.fairness.update(p.snap.Accounts, rules, p.snap.Now) {
			p.fairness = newFairness(p.snap.Accounts, rules, p.snap.Now)
		}
		p.counted, p.stale = p.snap.Now, false
	}
	return int64(p.fairness.of(job.Spec.Association()) * million)
}

// size returns the part of the cluster that a job requests: of its GPUs, or of its CPUs when the job
// requests no GPU. A MIG instance counts its share of a GPU.
func (p *Priorities) size(job *cluster.Job) int64 {
	if p.gpus < 0 {
		p.countCluster()
	}
	r := &job.Spec.Request
	gpus := r.Requested(cluster.ResourceGPU)
	if gpus <= 0 {
		return portion(r.Requested(cluster.ResourceCPU), p.cpus)
	}
	each := int64(0)
	for _, t := range r.GPUTypes {
		share, instance := p.instances[t]
		if !instance {
			share = cluster.MIGShares
		}
		each = max(each, share)
	}
	if each == 0 { // any whole GPU
		each = cluster.MIGShares
	}
	return portion(gpus*each, p.gpus)
}

// countCluster counts the CPUs and GPUs of the snapshot. O(GPUs).
func (p *Priorities) countCluster() {
	p.gpus, p.instances = 0, map[string]int64{}
	for _, n := range p.snap.Nodes {
		p.cpus += int64(n.CPUs)
		for i := range n.GPUs {
			_, parent, share := cluster.CutPricedType(n.GPUs[i].PricedType())
			if parent == "" {
				share = cluster.MIGShares
			} else {
				p.instances[n.GPUs[i].Type] = max(p.instances[n.GPUs[i].Type], share)
			}
			p.gpus += share
		}
	}
}
