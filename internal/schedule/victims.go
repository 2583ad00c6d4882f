package schedule

import (
	"cmp"
	"slices"
	"sort"

	"github.com/greylag/greylag/pkg/cluster"
)

// PreemptRequest requests that others end for a job. A chooser selects them: [Victims], or another.
type PreemptRequest struct {
	Job       cluster.JobID
	Partition string
	// Hosts are the hosts on which the job would start without all the candidates, with the GPUs of each:
	// in the narrowest domain that has enough.
	Hosts []cluster.NodeShare
	// Candidates are the jobs that may be preempted for it: by tier, lowest first, then by the number of jobs that
	// have to end on their node, then the youngest first.
	Candidates []Candidate
	// Enough reports whether the job could start without these candidates, delaying no promise and no job
	// ahead of it. O(search).
	Enough func(gone []Candidate) bool
}

// Candidate is a job that may be preempted for another one.
type Candidate struct {
	Job     cluster.JobID
	Attempt cluster.Attempt
	Tier    int32
	GPUs    int32
	Started cluster.Instant
}

// Victims selects the candidates that end: of the lowest tiers that suffice, as few as possible, and of equal jobs the
// youngest. None when even all are not enough.
// O((log candidates + victims) searches).
func Victims(q *PreemptRequest) []Candidate {
	if !q.Enough(q.Candidates) {
		return nil
	}
	n := sort.Search(len(q.Candidates), func(n int) bool { return q.Enough(q.Candidates[:n]) })
	gone := slices.Clone(q.Candidates[:n])
	spared := slices.Clone(gone) // the first to be spared comes first
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

// Evict adds evictions to the plan of a decision: of each request the victims that a chooser selects. Each victim
// is checked again when the plan is committed.
func (d *Decision) Evict(choose func(*PreemptRequest) []Candidate) {
	for i := range d.Preempt {
		for _, c := range choose(&d.Preempt[i]) {
			d.Plan.Evictions = append(d.Plan.Evictions, cluster.Preemption{Job: c.Job, Attempt: c.Attempt, For: d.Preempt[i].Job})
		}
	}
	d.Preempt = nil
}
