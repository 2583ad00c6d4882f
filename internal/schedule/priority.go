package schedule

import (
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// million is a factor of 1: factors count in parts of it.
const million = 1_000_000

// PriorityParts is what a job's priority is made of (slurm.schedmd.com/priority_multifactor.html):
// factors in parts per million, what each adds by its weight, and the sum.
type PriorityParts struct {
	AgeFactor, FairShareFactor, JobSizeFactor, PartitionFactor, QOSFactor int64
	Age, FairShare, JobSize, Partition, QOS                               int64
	Nice                                                                  int64
	Priority                                                              int64
}

// priorities are the multifactor priorities of jobs at the instant of a snapshot.
type priorities struct {
	snap       *cluster.Snapshot
	weights    *cluster.Weights
	qos        map[string]int64 // factors
	partitions map[string]int64 // factors of partitions
	gpus       int64            // in the cluster; -1 until it is asked
	cpus       int64
	fairness   *fairness       // nil until it is asked
	counted    cluster.Instant // when fairness was
	stale      bool            // it has to be counted again
}

// sharesKept is how long fair-share factors are good for. They cost what all users do,
// and change slowly: in so long, less than a thousandth of a half-life of 7 days, what
// was used fades by 0.07 %.
const sharesKept = 10 * time.Minute

// newPriorities prepares the priorities of a snapshot. O(QOS + partitions); the first
// job that asks for its fair share pays O(accounts + users).
func newPriorities(snap *cluster.Snapshot) *priorities {
	p := &priorities{
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

// at is the priorities of another snapshot, in place of these: what hangs on the policy
// alone is the same while that is. p may be nil.
func (p *priorities) at(snap *cluster.Snapshot) *priorities {
	if p == nil || p.snap.Policy != snap.Policy {
		return newPriorities(snap)
	}
	same := p.snap.Accounts != nil && snap.Accounts != nil && snap.Accounts.Tree == p.snap.Accounts.Tree
	p.stale = p.stale || !same || snap.Now < p.counted || snap.Now.Sub(p.counted) >= sharesKept
	p.snap, p.gpus, p.cpus = snap, -1, 0
	return p
}

// steady reports whether priorities change with the policy alone.
func (p *priorities) steady() bool {
	w := p.weights
	return (w.Age == 0 || w.MaxAge == 0) && w.FairShare == 0 && w.JobSize == 0
}

// Priorities answers what the priorities of a snapshot's jobs are made of.
func Priorities(snap *cluster.Snapshot) func(*cluster.Job) PriorityParts {
	return newPriorities(snap).parts
}

// portion is n/most in parts per million, from 0 to all.
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

// of is the priority of a job. O(1).
func (p *priorities) of(job *cluster.Job) int64 { return p.parts(job).Priority }

// parts is what the priority of a job is made of. O(1).
func (p *priorities) parts(job *cluster.Job) PriorityParts {
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

// weighed is weight × factor without overflow: the factor is at most a million.
func weighed(weight, factor int64) int64 {
	return weight/million*factor + weight%million*factor/million
}

// share is the fair-share factor of a job's user in its account.
func (p *priorities) share(job *cluster.Job) int64 {
	if p.snap.Accounts == nil {
		return million
	}
	if p.fairness == nil || p.stale {
		rules := &p.snap.Policy.Scheduling.FairShare
		if p.fairness == nil || !p.fairness.again(p.snap.Accounts, rules, p.snap.Now) {
			p.fairness = newFairness(p.snap.Accounts, rules, p.snap.Now)
		}
		p.counted, p.stale = p.snap.Now, false
	}
	return int64(p.fairness.of(job.Spec.Association()) * million)
}

// size is how much of the cluster a job asks for: of its GPUs, or of its CPUs when the
// job wants none.
func (p *priorities) size(job *cluster.Job) int64 {
	if p.gpus < 0 {
		p.gpus = 0
		for _, n := range p.snap.Nodes {
			p.gpus += int64(len(n.GPUs))
			p.cpus += int64(n.CPUs)
		}
	}
	if gpus := job.Spec.Request.Asked(cluster.ResourceGPU); gpus > 0 {
		return portion(gpus, p.gpus)
	}
	return portion(job.Spec.Request.Asked(cluster.ResourceCPU), p.cpus)
}
