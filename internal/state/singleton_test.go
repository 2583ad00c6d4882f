package state

import (
	"strings"
	"testing"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestSingletonIsCheckedAgain: a plan starts the only job of a name, and before it is committed
// another job of that name starts.
func TestSingletonIsCheckedAgain(t *testing.T) {
	x := &script{t: t, s: newState(limits{tail: 20, requests: 10, requestBytes: 1 << 20, levels: 1000}, new(table.Hasher)), now: 1}
	x.apply(&command.Init{ClusterID: "test"})
	for _, line := range []string{"node n1 gpus=4:h100", "policy root"} {
		x.run(line)
	}
	for i, name := range []string{"only", "only", "other"} {
		spec := cluster.JobSpec{Name: name, TimeLimit: 1e12, Request: cluster.Request{Nodes: 1, GPUsPerNode: 1, TasksPerNode: 1, CPUsPerTask: 1}}
		if i == 0 {
			spec.Depends = []cluster.Dependency{{Kind: cluster.Singleton}}
		}
		x.apply(&command.SubmitJobs{Request: command.RequestID{Key: [16]byte{byte(i + 1)}}, Actor: command.Actor{Identity: cluster.Identity{User: "ada", UID: 1000, GID: 1000}}, Jobs: []command.Submission{{Spec: spec}}})
	}
	x.run("pass")
	plan := x.plan
	if len(plan.Starts) != 3 {
		t.Fatalf("the pass starts %+v", plan.Starts)
	}
	early := plan
	early.Starts, early.Verdicts = plan.Starts[1:2], nil
	x.apply(&command.CommitPlan{Plan: early})
	x.plan = plan
	got := x.commit()
	if !strings.Contains(got, "started [3]") || !strings.Contains(got, "stale 1: job 2 of the same name was started since the plan") {
		t.Errorf("agreed: %s", got)
	}
}
