package order

import (
	"cmp"

	"github.com/greylag/greylag/pkg/cluster"
)

// Rank is the place of a job in the order.
type Rank struct {
	Tier      int32 // of the QOS, or the lowest of the policy; higher first
	Partition int32 // priority of the partition; higher first
	Priority  int64 // multifactor priority; higher first
	Submitted cluster.Instant
	ID        cluster.JobID
}

// Compare returns a negative number when r comes before o, and 0 for the same job alone.
func (r *Rank) Compare(o *Rank) int {
	switch {
	case r.Tier != o.Tier:
		return cmp.Compare(o.Tier, r.Tier)
	case r.Partition != o.Partition:
		return cmp.Compare(o.Partition, r.Partition)
	case r.Priority != o.Priority:
		return cmp.Compare(o.Priority, r.Priority)
	case r.Submitted != o.Submitted:
		return cmp.Compare(r.Submitted, o.Submitted)
	}
	return cmp.Compare(r.ID, o.ID)
}

// Ranking ranks jobs by the policy of one snapshot.
type Ranking struct {
	Demotion
	tiers      map[string]int32 // by QOS
	partitions map[string]int32 // priority by partition
}

// NewRanking reads the tiers and partitions of a policy. O(QOS + partitions).
func NewRanking(snap *cluster.Snapshot) *Ranking {
	r := &Ranking{Demotion: newDemotion(snap), tiers: map[string]int32{}, partitions: map[string]int32{}}
	for i := range snap.Policy.QOS {
		r.tiers[snap.Policy.QOS[i].Name] = snap.Policy.QOS[i].Tier
	}
	for i := range snap.Policy.Partitions {
		r.partitions[snap.Policy.Partitions[i].Name] = snap.Policy.Partitions[i].Priority
	}
	return r
}

// Rank returns the rank of a job. A QOS that the policy no longer has ranks last.
func (r *Ranking) Rank(job *cluster.Job, p *Priorities) Rank {
	rank := r.WithoutPriority(job)
	rank.Priority = p.of(job)
	return rank
}

// WithoutPriority returns the rank of a job with a priority of 0, which costs nothing.
func (r *Ranking) WithoutPriority(job *cluster.Job) Rank {
	return Rank{Tier: r.Tier(job.Spec), Partition: r.PartitionPriority(job.Spec), Submitted: job.Submitted, ID: job.ID}
}

// Tier returns the tier of a job's QOS, or the lowest when its account is over its budget.
func (r *Ranking) Tier(spec *cluster.JobSpec) int32 {
	return r.tier(spec, r.tiers[spec.QOS])
}

// PartitionPriority returns the priority of a job's first partition; 0 if that does not exist.
func (r *Ranking) PartitionPriority(spec *cluster.JobSpec) int32 { return r.partitions[spec.Partition] }
