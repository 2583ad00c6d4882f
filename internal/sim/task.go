package sim

import (
	"cmp"
	"slices"

	"github.com/greylag/greylag/pkg/cluster"
)

// TaskID identifies the task of an attempt on a simulated machine.
type TaskID struct {
	Job     cluster.JobID
	Attempt cluster.Attempt
	Granted uint64 // of a node of an elastic job: the log index of its grant; else 0
}

// TaskOf identifies the task of a rank.
func TaskOf(j *cluster.Job, rank int) TaskID {
	id := TaskID{Job: j.ID, Attempt: j.Attempt}
	if j.Members != nil {
		id.Granted = j.GrantOf(rank)
	}
	return id
}

// WantedBy reports whether a job has the task on a node. O(nodes).
func (id TaskID) WantedBy(j *cluster.Job, node string) bool {
	if j.Attempt != id.Attempt || !j.State.HasAllocation() {
		return false
	}
	rank := slices.IndexFunc(j.Alloc.Nodes, func(a cluster.NodeAllocation) bool { return a.Node == node })
	return rank >= 0 && TaskOf(j, rank) == id
}

// Compare orders tasks by job, attempt and grant.
func (id TaskID) Compare(o TaskID) int {
	return cmp.Or(cmp.Compare(id.Job, o.Job), cmp.Compare(id.Attempt, o.Attempt), cmp.Compare(id.Granted, o.Granted))
}
