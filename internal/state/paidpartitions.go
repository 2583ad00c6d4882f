package state

import (
	"slices"

	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// paidIn reports whether a pending job may run in one of its partitions with regard to credits: if
// the partition or the job is without charge, or if its lien pays there. O(log n).
func (t *tables) paidIn(j *cluster.Job, partition string) bool {
	if len(j.Spec.Others) == 0 || !t.policy.Credits.Charges(partition) {
		return true
	}
	n, found := t.credits.Lien(accounting.LienID{Job: j.ID, Attempt: j.Attempt + 1})
	return !found || n.State != accounting.Open || n.PaysIn(partition)
}

// paidView returns a pending job as passes see it: without the partitions in which its lien does
// not pay. It returns the job itself if it is paid for in all partitions, or in none.
func (t *tables) paidView(j *cluster.Job) *cluster.Job {
	if len(j.Spec.Others) == 0 || !t.policy.Credits.On {
		return j
	}
	all := j.Spec.AllPartitions()
	paid := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return !t.paidIn(j, name) })
	if len(paid) == len(all) || len(paid) == 0 {
		return j
	}
	narrow, spec := *j, *j.Spec
	spec.Partition, spec.Others = paid[0], paid[1:]
	narrow.Spec = &spec
	return &narrow
}

// PaidIn returns the partitions in which a pending job is paid for and may start; nil means all
// that it lists. O(log n).
func (v *View) PaidIn(j *cluster.Job) []string {
	if n, narrowed := v.narrow.Get(j.ID); narrowed && j.State == cluster.Pending {
		return n.Spec.AllPartitions()
	}
	return nil
}

// paidBy is paidIn for an attempt with an open lien.
func (t *tables) paidBy(spec *cluster.JobSpec, id accounting.LienID) []string {
	all := spec.AllPartitions()
	n, _ := t.credits.Lien(id)
	paid := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return t.policy.Credits.Charges(name) && !n.PaysIn(name) })
	if len(paid) == len(all) {
		return nil
	}
	return paid
}

// keepNarrow updates the job that passes see after a change of it. They see the same pointer while
// nothing changes: plans and promises are stored by the specification for which they were made.
func (s *State) keepNarrow(old, j *cluster.Job) {
	if len(j.Spec.Others) == 0 && (old == nil || len(old.Spec.Others) == 0) {
		return
	}
	was, narrowed := s.narrow.Get(j.ID)
	is := j
	if j.State == cluster.Pending {
		is = s.paidView(j)
	}
	switch {
	case is == j && narrowed:
		s.narrow.Delete(j.ID)
		return
	case is == j:
		return
	case narrowed && old != nil && old.Spec == j.Spec && is.Spec.Partition == was.Spec.Partition && slices.Equal(is.Spec.Others, was.Spec.Others):
		is.Spec = was.Spec
	}
	s.narrow.Set(j.ID, is)
}

// narrowAll calls keepNarrow for all pending jobs, when other partitions are charged, or
// when a snapshot was read. O(pending).
func (s *State) narrowAll() {
	for _, j := range s.pending.All() {
		s.keepNarrow(j, j)
	}
}

// checkNarrow finds jobs for which passes see other partitions than those that are paid for.
func (x *checking) checkNarrow() {
	count := 0
	for id, j := range x.pending.All() {
		is, want := j, x.paidView(j)
		if n, narrowed := x.narrow.Get(id); narrowed {
			is = n
			count++
		}
		if is.Spec.Partition != want.Spec.Partition || !slices.Equal(is.Spec.Others, want.Spec.Others) || is.Version != j.Version {
			x.fault("job %d is planned in %s, and paid for in %s", id, is.Spec.AllPartitions(), want.Spec.AllPartitions())
		}
	}
	if count != x.narrow.Len() {
		x.fault("%d jobs that do not wait are planned in some of their partitions", x.narrow.Len()-count)
	}
}
