package credits

import (
	"iter"
	"slices"

	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// PaidIn reports whether a pending job may run in one of its partitions with regard to credits: if
// the partition or the job is without charge, or if its lien pays there. O(log n).
func (x *Credits) PaidIn(p *cluster.Policy, j *cluster.Job, partition string) bool {
	if len(j.Spec.OtherPartitions) == 0 || !p.Credits.Charges(partition) {
		return true
	}
	n, held := x.OpenLien(j.ID, j.Attempt+1)
	return !held || n.PaysIn(partition)
}

// paidView returns a pending job as passes see it: without the partitions in which its lien does
// not pay. It returns the job itself if it is paid for in all partitions, or in none.
func (x *Credits) paidView(p *cluster.Policy, j *cluster.Job) *cluster.Job {
	if len(j.Spec.OtherPartitions) == 0 || !p.Credits.On {
		return j
	}
	n, held := x.OpenLien(j.ID, j.Attempt+1)
	if !held {
		return j
	}
	paid := paidBy(p, j.Spec, &n)
	if len(paid) == 0 {
		return j
	}
	narrow, spec := *j, *j.Spec
	spec.Partition, spec.OtherPartitions = paid[0], paid[1:]
	narrow.Spec = &spec
	return &narrow
}

// paidBy returns the partitions that a lien covers or that are without charge; nil if those are all.
func paidBy(p *cluster.Policy, spec *cluster.JobSpec, n *accounting.Lien) []string {
	paid := slices.DeleteFunc(spec.AllPartitions(), func(name string) bool { return p.Credits.Charges(name) && !n.PaysIn(name) })
	if len(paid) == 1+len(spec.OtherPartitions) {
		return nil
	}
	return paid
}

// PartlyFunded yields the pending jobs that are paid for in some of their partitions, as passes see them.
func (x *Credits) PartlyFunded() iter.Seq2[cluster.JobID, *cluster.Job] { return x.narrow.All() }

// PartitionsOf returns the partitions in which a pending job is paid for, and may start; nil if
// those are all that it lists. O(log n).
func (x *Credits) PartitionsOf(j *cluster.Job) []string {
	if n, narrowed := x.narrow.Get(j.ID); narrowed && j.State == cluster.Pending {
		return n.Spec.AllPartitions()
	}
	return nil
}

// indexNarrow updates the job that passes see after a change of it. They see the same pointer while
// nothing changes: plans and promises are stored by the specification for which they were made.
func (x *Credits) indexNarrow(p *cluster.Policy, old, j *cluster.Job) {
	if len(j.Spec.OtherPartitions) == 0 && (old == nil || len(old.Spec.OtherPartitions) == 0) {
		return
	}
	was, narrowed := x.narrow.Get(j.ID)
	is := j
	if j.State == cluster.Pending {
		is = x.paidView(p, j)
	}
	switch {
	case is == j && narrowed:
		x.narrow.Delete(j.ID)
		return
	case is == j:
		return
	case narrowed && old != nil && old.Spec == j.Spec && is.Spec.Partition == was.Spec.Partition && slices.Equal(is.Spec.OtherPartitions, was.Spec.OtherPartitions):
		is.Spec = was.Spec
	}
	x.narrow.Set(j.ID, is)
}

// NarrowAll calls keepNarrow for all pending jobs, when other partitions are charged, or
// when a snapshot was read. O(pending).
func (x *Credits) NarrowAll(p *cluster.Policy, pending iter.Seq2[cluster.JobID, *cluster.Job]) {
	for _, j := range pending {
		x.indexNarrow(p, j, j)
	}
}
