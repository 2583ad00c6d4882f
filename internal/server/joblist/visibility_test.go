package joblist

import (
	"strings"
	"testing"

	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestSummaryHasNoTextOfTasks checks that users who see a summary of another user's job do not see what its tasks or
// earlier attempts reported.
func TestSummaryHasNoTextOfTasks(t *testing.T) {
	const private = "/home/ada/project does not exist"
	members := cluster.NewMembers(2, "", 1, 1)
	members.List[1].Leaves, members.List[1].Why = 5, "lost: "+private
	j := &cluster.Job{
		ID: 1, State: cluster.Running, Attempt: 2, Detail: private, Members: members,
		Spec:     &cluster.JobSpec{Owner: cluster.Identity{User: "ada"}, Request: cluster.Request{Nodes: 1, MaxNodes: 2}, Elastic: cluster.Elastic{Step: 1}},
		Alloc:    &cluster.Allocation{Nodes: []cluster.NodeAllocation{{Node: "n1"}, {Node: "n2"}}},
		Tasks:    cluster.NewTasks(cluster.Task{Node: "n1", Message: private}, cluster.Task{Node: "n2"}),
		Attempts: []cluster.AttemptRecord{{Attempt: 1, Outcome: cluster.NodeFailed, Detail: private}},
	}
	policy := cluster.DefaultPolicy()
	var other auth.Caller
	other.User.User, other.User.UID = "bob", 2
	seen := (&Visibility{policy: &policy, caller: other}).See(j)
	if seen == nil {
		t.Fatal("the summary is hidden")
	}
	if text := wire.WriteJob(seen).String(); strings.Contains(text, "project") {
		t.Error(text)
	}
}
