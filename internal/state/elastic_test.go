package state

import (
	"fmt"
	"testing"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/schedule"
	"github.com/greylag/greylag/pkg/cluster"
)

// planned makes a pass with a planner that keeps its plan, and commits it.
func planned(x *script, planner *schedule.Planner) schedule.Decision {
	x.run("tick")
	d := planner.Pass(x.s.View().Snapshot())
	if !d.Plan.Empty() {
		x.apply(&command.CommitPlan{Plan: d.Plan})
	}
	return d
}

// TestExtraNodesReturnInTime has a rigid job planned to start in 15 minutes where an elastic job has extra nodes. The
// nodes return in time, and the promise is kept.
func TestExtraNodesReturnInTime(t *testing.T) {
	x := newScript(t)
	planner := schedule.NewPlanner()
	x.run("at 1h")
	for i := range 4 {
		x.run(fmt.Sprintf("node n%d gpus=4:h100", i+1))
	}
	x.run("submit bob gpusper=4 time=13m on=n4") // and 40 s to clean up
	x.run("submit ada nodes=1 upto=4 step=1 gpusper=4 time=10h")
	planned(x, planner)
	x.run("report n4 1/1 started")
	for i := range 3 {
		x.run(fmt.Sprintf("report n%d 2/1 started", i+1))
	}
	x.run("submit bob nodes=3 gpusper=4 time=5m")
	planned(x, planner)
	j, _ := x.s.View().Job(3)
	if j.Promise == nil || j.Promise.At < cluster.Instant(73*60e9) {
		t.Fatalf("promised for %v", j.Promise)
	}
	promise := j.Promise.At
	for at := 3600 + 30; at < 3600+15*60; at += 10 {
		x.run(fmt.Sprintf("at %ds", at))
		planned(x, planner)
		if j, _ := x.s.View().Job(2); j.Members.Staying() == 1 {
			break
		}
	}
	if j, _ := x.s.View().Job(2); j.Members.Staying() != 1 || x.s.now < promise.Add(-150e9) {
		t.Fatalf("at %s, for a promise at %s: %s", x.s.now.Sub(0), promise.Sub(0), x.run("jobs"))
	}
	x.run(fmt.Sprintf("at %ds", int(x.s.now/1e9)+30))
	x.run("report n2 2/1 clean")
	x.run("report n3 2/1 clean")
	planned(x, planner)
	x.run("report n4 1/1 clean")
	planned(x, planner)
	if j, _ := x.s.View().Job(3); j.State != cluster.Configuring || j.Started > promise {
		t.Errorf("it has not started at %s, promised for %s: %s", x.s.now.Sub(0), promise.Sub(0), x.run("jobs"))
	}
	if err := x.s.Check(); err != nil {
		t.Error(err)
	}
}

// TestExtraNodesFreeEarly has extra nodes reclaimed for a job on two nodes. It starts when they are clean, before the end
// of their grace time.
func TestExtraNodesFreeEarly(t *testing.T) {
	x := newScript(t)
	planner := schedule.NewPlanner()
	x.run("at 1h")
	for i := range 4 {
		x.run(fmt.Sprintf("node n%d gpus=4:h100", i+1))
	}
	x.run("submit ada nodes=2 upto=4 step=1 gpusper=4 time=10h")
	planned(x, planner)
	for i := range 4 {
		x.run(fmt.Sprintf("report n%d 1/1 started", i+1))
	}
	planned(x, planner)
	x.run("submit bob nodes=2 gpusper=4 time=5m")
	planned(x, planner)
	planned(x, planner)
	x.run("at 3602s")
	x.run("report n3 1/1 clean")
	planned(x, planner)
	x.run("report n4 1/1 clean")
	planned(x, planner)
	if j, _ := x.s.View().Job(2); j.State != cluster.Configuring {
		t.Errorf("it has not started: %s", x.run("jobs"))
	}
}
