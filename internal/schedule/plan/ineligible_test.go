package plan

import (
	"testing"
	"time"

	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/pkg/cluster"
)

// start is the instant of the snapshots.
const start = cluster.Instant(1_000_000 * time.Second)

// TestUpdatesOfALimitGroup checks that a thousand jobs get another reason at once, and another detail once in about
// fifty seconds.
func TestUpdatesOfALimitGroup(t *testing.T) {
	x, s := newIneligible(), New()
	spec := &cluster.JobSpec{Account: "ml"}
	says := func(reason cluster.Reason, detail string) eligible.Obstacle {
		return eligible.Obstacle{Reason: reason, Detail: detail}
	}
	for id := range cluster.JobID(1000) {
		x.add(nil, &Entry{Job: &cluster.Job{ID: id, Spec: spec}}, says(cluster.ReasonResources, "1 of 8"))
	}
	if len(x.groups) != 1 {
		t.Fatalf("%d groups of jobs with one request", len(x.groups))
	}
	for _, step := range []struct {
		at      time.Duration
		says    eligible.Obstacle
		changed int
	}{
		{time.Minute, says(cluster.ReasonResources, "2 of 8"), 1000},
		{time.Minute + 49*time.Second, says(cluster.ReasonResources, "3 of 8"), 0},
		{time.Minute + 50*time.Second, says(cluster.ReasonResources, "4 of 8"), 1000},
		{time.Minute + 51*time.Second, says(cluster.ReasonResources, "4 of 8"), 0},
		{time.Minute + 52*time.Second, says(cluster.ReasonPriority, "other"), 1000},
	} {
		p := s.Begin(&cluster.Snapshot{Now: start.Add(step.at), Policy: &cluster.Policy{}})
		for _, g := range x.groups {
			g.update(p, step.says)
		}
		if len(p.changed) != step.changed {
			t.Errorf("after %s %d jobs got %+v, want %d", step.at, len(p.changed), step.says, step.changed)
		}
	}
}

// TestAddAgain checks that the index has an entry once that is added again, for the same or another reason.
func TestAddAgain(t *testing.T) {
	x := newIneligible()
	e := &Entry{Job: &cluster.Job{ID: 1, Spec: &cluster.JobSpec{Account: "ml"}}}
	for _, reason := range []cluster.Reason{cluster.ReasonResources, cluster.ReasonBeginTime, cluster.ReasonResources, cluster.ReasonResources} {
		x.add(nil, e, eligible.Obstacle{Reason: reason})
	}
	if x.count != 1 || len(x.groups) != 1 || x.wakeups.Len() != 0 {
		t.Errorf("%d entries, %d groups, %d wakeups", x.count, len(x.groups), x.wakeups.Len())
	}
	if list := x.dueForRecheck(start, nil); list.Len() != 1 || list.Items()[0] != e {
		t.Errorf("due for a check are %v", list.Items())
	}
	x.remove(e)
	if list := x.dueForRecheck(start, nil); x.count != 0 || len(x.groups) != 0 || list.Len() != 0 {
		t.Errorf("%d entries, %d groups after it was removed", x.count, len(x.groups))
	}
}

// TestWithdrawnWhileQueued checks that a queued job which a limit withdraws is not planned again.
func TestWithdrawnWhileQueued(t *testing.T) {
	policy := cluster.DefaultPolicy()
	request := cluster.Request{Nodes: 1, TasksPerNode: 1, CPUsPerTask: 1}
	spec := func(name string) *cluster.JobSpec {
		return &cluster.JobSpec{Name: name, Partition: "main", QOS: "standard", TimeLimit: time.Hour, Request: request}
	}
	p := FromScratch(&cluster.Snapshot{
		Index: 1, Now: start, Policy: &policy, Nodes: []*cluster.Node{{Name: "n1", CPUs: 1, Memory: cluster.GiB}},
		Active: []*cluster.Job{{
			ID: 1, Spec: spec("r"), State: cluster.Running, Attempt: 1, Started: start,
			Alloc: &cluster.Allocation{Nodes: []cluster.NodeAllocation{{Node: "n1", CPUs: 1}}},
		}},
		Pending: []*cluster.Job{{ID: 2, Index: cluster.NoIndex, Spec: spec("j"), State: cluster.Pending, Submitted: start}},
	})
	e := p.Entry(2)
	if e.At == 0 {
		t.Fatal("the job has no planned start to lose")
	}
	p.queueMove(e)
	p.withdraw(e, eligible.Obstacle{Reason: cluster.ReasonArrayTaskLimit})
	(&mover{Pass: p}).run()
	if e.At != 0 || len(p.bookings.Due()) != 0 || e.Eligible() {
		t.Errorf("planned at %v, eligible %v", e.At, e.Eligible())
	}
}
