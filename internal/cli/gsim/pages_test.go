package gsim_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/greylag/greylag/internal/cli/gsim"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/test/scenario"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"gsim": func() {
		none := func(config.Client) (ui.Cluster, error) { return nil, errors.New("no controller responds") }
		os.Exit(gsim.Run(context.Background(), ui.ThisProcess("gsim", none)))
	}})
}

// TestPages runs the real program on the scripts of testdata.
func TestPages(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata", UpdateScripts: scenario.Rewrite(),
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"saved": saved},
	})
}

// saved writes the snapshot of a cluster of one node of 2 GPUs, on which job 1 runs for an hour and
// job 2 is pending; with --burst it may run on cloud nodes. It has an account "ml" that no user is in.
func saved(ts *testscript.TestScript, _ bool, args []string) {
	s := state.New()
	now := cluster.InstantOf(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	policy := cluster.DefaultPolicy()
	policy.KillWait = 0
	user := cluster.Identity{User: "alice", UID: 1001, GID: 1001}
	spec := cluster.JobSpec{Name: "train", Owner: user, TimeLimit: time.Hour, Request: cluster.Request{Nodes: 1, GPUsPerNode: 2}}
	waiting := spec
	if slices.Contains(args, "--burst") {
		policy.Partitions = append(policy.Partitions, cluster.Partition{Name: "cloud", Nodes: []string{cluster.LeasedNodes}})
		waiting.Partition, waiting.OtherPartitions = policy.Partitions[0].Name, []string{"cloud"}
		waiting.Image, waiting.Burst.Mode = "example.org/image:1", cluster.BurstAllow
	}
	gpus := []cluster.GPU{{Index: 0, Type: "h100", Domain: "n1"}, {Index: 1, Type: "h100", Domain: "n1"}}
	where := cluster.Placement{Nodes: []cluster.NodeAllocation{{Node: "n1", GPUs: []int32{0, 1}, CPUs: 1}}}
	for i, c := range []command.Command{
		&command.Init{ClusterID: "c", Policy: policy},
		&command.RegisterNode{Node: cluster.Node{Name: "n1", BootID: "b", CPUs: 8, GPUs: gpus}},
		&command.SubmitJobs{Actor: command.Actor{Identity: user}, Jobs: []command.Submission{{Spec: spec}, {Spec: waiting}}},
		&command.CommitPlan{Plan: cluster.Plan{Index: 3, Starts: []cluster.PlannedStart{{Job: 1, Attempt: 1, Placement: where}}}},
		&command.EditAccounts{Actor: command.Actor{Role: command.RoleAdmin}, Edits: []command.AccountEdit{{Action: command.AddAccount, Account: "ml"}}},
	} {
		if refusal, no := s.Apply(uint64(i+1), now, c).(*command.Refusal); no {
			ts.Fatalf("%s", refusal)
		}
	}
	f, err := os.Create(ts.MkAbs(args[0]))
	ts.Check(err)
	ts.Check(s.View().Encode(f))
	ts.Check(f.Close())
}
