package sim

import (
	"bytes"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestLostPart compares with published figures: 64 nodes at 6.5 failures per 1,000 node-days, restarts of 10
// minutes.
func TestLostPart(t *testing.T) {
	const mttf = 207_692 * time.Second
	for _, x := range []struct {
		every, write time.Duration
		want         float64
	}{{34 * time.Minute, 10 * time.Second, 98.7}, {83 * time.Minute, time.Minute, 97.3}, {186 * time.Minute, 5 * time.Minute, 94.5}, {time.Hour, time.Minute, 97.2}} {
		if got := 100 * (1 - lostPart(x.every, x.write, 10*time.Minute, mttf)); math.Abs(got-x.want) > 0.15 {
			t.Errorf("every %s of %s: %.2f %% effective, want %.1f", x.every, x.write, got, x.want)
		}
	}
}

// TestCheckpointCosts: a wide job without checkpoints saves most, one that has them nothing.
func TestCheckpointCosts(t *testing.T) {
	s := state.New()
	user := cluster.Identity{User: "alice", UID: 1001, GID: 1001}
	wide := cluster.JobSpec{Name: "wide", Owner: user, TimeLimit: 7 * 24 * time.Hour, Request: cluster.Request{Nodes: 2, GPUsPerNode: 8}}
	small, every := wide, wide
	small.Name, small.Request.Nodes, small.TimeLimit = "short", 1, 20*time.Minute
	every.Name, every.CheckpointEvery, every.CheckpointDir = "every", 30*time.Minute, "/c"
	every.CheckpointSignal = cluster.WarnSignal{Number: 10, Before: time.Minute}
	gpus := make([]cluster.GPU, 8)
	for i := range gpus {
		gpus[i] = cluster.GPU{Index: int32(i), Type: "h100"}
	}
	for i, c := range []command.Command{
		&command.Init{ClusterID: "c", Policy: cluster.DefaultPolicy()},
		&command.RegisterNode{Node: cluster.Node{Name: "n1", BootID: "b", CPUs: 8, GPUs: gpus}},
		&command.RegisterNode{Node: cluster.Node{Name: "n2", BootID: "b", CPUs: 8, GPUs: gpus}},
		&command.SubmitJobs{Actor: command.Actor{Identity: user}, Jobs: []command.Submission{{Spec: every}, {Spec: small}, {Spec: wide}}},
	} {
		if no, refused := s.Apply(uint64(i+1), Epoch, c).(*command.Refusal); refused {
			t.Fatal(no)
		}
	}
	var b bytes.Buffer
	if err := s.View().Encode(&b); err != nil {
		t.Fatal(err)
	}
	list, _, err := CheckpointCosts(b.Bytes(), CheckpointOptions{Every: 30 * time.Minute, Write: 10 * time.Second, Restart: 4 * time.Minute, Rate: 6.5})
	if err != nil || len(list) != 3 {
		t.Fatal(list, err)
	}
	first := list[0]
	if first.Name != "wide" || first.Saved < 8 || first.Saved > 20 || first.Now != 0 || first.LostThen > 0.01 {
		t.Errorf("%+v", first)
	}
	for _, c := range list[1:] {
		if c.Saved != 0 || c.LostNow != c.LostThen {
			t.Errorf("%+v", c)
		}
	}
	if _, rate, err := CheckpointCosts(b.Bytes(), CheckpointOptions{Every: time.Hour}); err != nil || rate != 3.8 {
		t.Errorf("a new cluster: %g failures, %v", rate, err)
	}
	if _, _, err := CheckpointCosts([]byte("x"), CheckpointOptions{}); !errors.Is(err, ErrSnapshot) {
		t.Error(err)
	}
}
