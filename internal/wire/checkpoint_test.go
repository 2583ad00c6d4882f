package wire

import (
	"testing"

	"github.com/greylag/greylag/pkg/cluster"
)

// TestSharesOfElasticJob checks that the nodes of the minimum verify the whole checkpoint, so that the script can start
// without an extra node, and that a node of the minimum cannot be replaced until then.
func TestSharesOfElasticJob(t *testing.T) {
	j := &cluster.Job{
		ID: 1, State: cluster.Configuring, Attempt: 2, Resume: 1, Granted: 5,
		Spec:  &cluster.JobSpec{Request: cluster.Request{Nodes: 2, MaxNodes: 4}, Elastic: cluster.Elastic{Step: 1}},
		Alloc: &cluster.Allocation{Nodes: []cluster.NodeAllocation{{Node: "n1"}, {Node: "n2"}, {Node: "n3"}}}, Members: cluster.NewMembers(3, "n[1-3]", 5, 1),
		Tasks: cluster.NewTasks(cluster.Task{Node: "n1"}, cluster.Task{Node: "n2"}, cluster.Task{Node: "n3"}), Checkpoints: []*cluster.Checkpoint{{Number: 1, Dir: "/c"}},
	}
	for rank, want := range []int32{0, 1, 2} { // 2 of 2: no file
		if p := writeResumePoint(j, rank); p.GetShare() != want || p.GetOf() != 2 {
			t.Errorf("rank %d verifies share %d of %d, want %d of 2", rank, p.GetShare(), p.GetOf(), want)
		}
	}
	if j.MayLose(1) || !j.MayLose(2) {
		t.Errorf("may lose a node of the minimum: %t, the extra node: %t; want false and true", j.MayLose(1), j.MayLose(2))
	}
	if !Waits(j, 0) {
		t.Error("the script starts before the minimum has verified the checkpoint")
	}
	j.Tasks = j.Tasks.With(1, cluster.Task{Node: "n2", Phase: cluster.TaskStarted})
	if Waits(j, 0) {
		t.Error("the script waits for an extra node")
	}
	j.State = cluster.Running
	if !j.MayLose(1) {
		t.Error("a running job ends with a node of the minimum though it has an extra node")
	}
	j.Alloc = &cluster.Allocation{Nodes: []cluster.NodeAllocation{{Node: "n1"}, {Node: "n3"}, {Node: "n4"}}}
	j.Members = j.Members.Without(1).WithMore(1, 6, 2)
	for rank, resumes := range []bool{true, true, false} {
		if p := writeResumePoint(j, rank); (p != nil) != resumes {
			t.Errorf("rank %d is sent %v", rank, p)
		}
	}
	if p := writeResumePoint(j, 1); p.GetShare() != p.GetOf() {
		t.Errorf("the extra node of the start is sent another share later: %d of %d", p.GetShare(), p.GetOf())
	}
}
