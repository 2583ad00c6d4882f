package schedule_test

import (
	"slices"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// slowNode returns an arena of one node with one GPU, which takes a while to be clean after a job.
func slowNode(t *testing.T, slow time.Duration) *arena {
	x := newArena(t)
	for n := range 3 {
		x.apply(&command.UpdateNodes{Actor: operator, Names: []string{"n" + string(rune('1'+n))}, Action: command.RemoveNodes, Reason: "too many", Force: true})
	}
	x.do([]string{"node", "n0", "gpus=1", "type=h100"})
	policy := *x.s.View().Policy()
	policy.KillWait = 30 * time.Second
	x.apply(&command.ApplyPolicy{Actor: operator, Policy: policy})
	x.slow = slow
	return x
}

// brokenOf returns the different causes of a job's broken promises.
func (x *arena) brokenOf(id cluster.JobID) (causes []string) {
	j, _ := x.s.View().Job(id)
	for _, n := range j.History {
		if n.Broken != "" && !slices.Contains(causes, n.Broken) {
			causes = append(causes, n.Broken)
		}
	}
	return causes
}

// TestANodeThatCleansUpSlowly promises a job the node of another, which ends by its time limit, by
// a cancellation or for the promised job. Within the documented time for cleaning up no promise is
// broken; after that the node and the job are the cause.
func TestANodeThatCleansUpSlowly(t *testing.T) {
	job := cluster.JobSpec{QOS: "low", TimeLimit: 10 * time.Minute, Request: cluster.Request{Nodes: 1, GPUsPerNode: 1}}
	cases := map[string]func(x *arena){
		"the time limit": func(x *arena) {
			x.give(job)
			x.pass(9*60, time.Second)
		},
		"a cancellation": func(x *arena) {
			x.give(job)
			x.pass(60, time.Second)
			x.apply(&command.CancelJobs{Actor: operator, Jobs: []cluster.JobRef{{ID: 1, Index: cluster.NoIndex}}})
		},
		"preemption": func(x *arena) {
			high := job
			high.QOS = "high"
			x.give(high)
			x.pass(5, time.Second)
		},
	}
	for what, end := range cases {
		for _, slow := range []time.Duration{20 * time.Second, 40 * time.Second, 70 * time.Second} {
			x := slowNode(t, slow)
			x.give(job)
			x.pass(5, time.Second)
			end(x)
			x.pass(180, time.Second)
			want := []string{"node n0 is still cleaning up after job 1"}
			if slow <= 40*time.Second {
				want = nil
			}
			if got := x.brokenOf(2); !slices.Equal(got, want) {
				t.Errorf("%s, clean after %s: broken for %q, want %q", what, slow, got, want)
			}
			if j, _ := x.s.View().Job(2); j.State == cluster.Pending {
				t.Errorf("%s, clean after %s: job 2 waits: %s", what, slow, j.Detail)
			}
		}
	}
}
