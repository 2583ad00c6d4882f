package schedule

import (
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// TestReplan checks that after the replan interval all jobs are planned again if a job is behind
// one of lower priority, and not if all are in order. Planned starts inside the horizon become
// promises in both cases.
func TestReplan(t *testing.T) {
	snap := draw(t, "node n gpus=4\nrun 1 on=n:0-3 cpus=1 gpus=4 left=90m limit=2h\n")
	submit := func(id cluster.JobID, nice int32) {
		spec := &cluster.JobSpec{Name: "j", Partition: "main", QOS: "standard", TimeLimit: time.Hour, Nice: nice,
			Request: cluster.Request{Nodes: 1, GPUsPerNode: 4, TasksPerNode: 1, CPUsPerTask: 1}}
		snap.Pending = append(snap.Pending, &cluster.Job{ID: id, Index: cluster.NoIndex, Spec: spec, State: cluster.Pending, Submitted: snap.Now})
	}
	p := NewPlanner()
	pass := func(later time.Duration, full bool) Decision {
		t.Helper()
		next := *snap
		next.Now, next.Index = snap.Now.Add(later), snap.Index+1
		snap = &next
		d := p.Pass(snap)
		if d.Stats.Full != full {
			t.Fatalf("all jobs planned again: %v", d.Stats.Full)
		}
		return d
	}
	submit(2, 0)
	pass(0, true)
	submit(3, 0)
	pass(time.Second, false)
	pass(time.Hour, false)
	if e := p.schedule.Entry(2); !e.Promised || p.schedule.Entry(3).Promised {
		t.Fatal("the job whose start has come near has no promise, or the other has")
	}
	submit(4, -100)
	pass(time.Second, false)
	if p.schedule.Entry(4).At < p.schedule.Entry(3).At {
		t.Fatal("a pass after an event put a job before another")
	}
	pass(time.Minute, true)
	if at := p.schedule.Entry(4).At; at > p.schedule.Entry(3).At || at < p.schedule.Entry(2).At.Add(p.schedule.Resources().HoldTime(p.schedule.Entry(2).Job.Spec)) {
		t.Fatal("the job that matters most does not stand behind the promise alone")
	}
	pass(time.Minute, false)
}
