package schedule

import (
	"cmp"
	"slices"
	"sort"

	"github.com/greylag/greylag/pkg/cluster"
)

// PreemptRequest asks for room for a job that others may have to make for it. Who
// makes it is for a chooser to say: [Victims], or another.
type PreemptRequest struct {
	Job       cluster.JobID
	Partition string
	// Hosts is where the job would start, and with how many GPUs of each, if all the
	// candidates were gone: of places that do, one in the narrowest domain.
	Hosts []cluster.NodeShare
	// Candidates are the jobs that may be ended for it: those of the lowest tier first,
	// of these those on nodes where the fewest have to go, of these the youngest.
	Candidates []Candidate
	// Enough reports whether the job could start, delaying no promise and nobody ahead
	// of it, if these of the candidates were gone. O(search).
	Enough func(gone []Candidate) bool
}

// Candidate is a job that may be ended for another.
type Candidate struct {
	Job     cluster.JobID
	Attempt cluster.Attempt
	Tier    int32
	GPUs    int32
	Started cluster.Instant
}

// Victims chooses who makes room: of the lowest tiers that suffice, as few as do, of
// jobs of which any would do the youngest. Nobody when not even all would be enough.
// O((log candidates + victims) searches).
func Victims(q *PreemptRequest) []Candidate {
	if !q.Enough(q.Candidates) {
		return nil
	}
	n := sort.Search(len(q.Candidates), func(n int) bool { return q.Enough(q.Candidates[:n]) })
	gone := slices.Clone(q.Candidates[:n])
	spared := slices.Clone(gone) // those who are let stay first, if they can
	slices.SortFunc(spared, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(b.Tier, a.Tier), cmp.Compare(a.GPUs, b.GPUs),
			cmp.Compare(a.Started, b.Started), cmp.Compare(a.Job, b.Job))
	})
	for _, c := range spared {
		i := slices.Index(gone, c)
		fewer := slices.Delete(slices.Clone(gone), i, i+1)
		if q.Enough(fewer) {
			gone = fewer
		}
	}
	return gone
}

// Evict has the requests of a decision met, by a chooser, in its plan. Each victim is
// checked again when the plan is agreed.
func (d *Decision) Evict(choose func(*PreemptRequest) []Candidate) {
	for i := range d.Preempt {
		for _, c := range choose(&d.Preempt[i]) {
			d.Plan.Evictions = append(d.Plan.Evictions, cluster.Eviction{Job: c.Job, Attempt: c.Attempt, For: d.Preempt[i].Job})
		}
	}
	d.Preempt = nil
}
