package schedule

import (
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// leaves are five nodes under three leaf switches.
const leaves = `
		node n1 gpus=1
		node n2 gpus=1
		node n3 gpus=1
		node n4 gpus=1
		node n5 gpus=1
		switch s0 nodes=n[1-2]
		switch s1 nodes=n[3-4]
		switch s2 nodes=n5
		switch top under=s0,s1,s2`

// TestLocalityIsKept has a job that waits for locality. It is not spread over the cluster when
// something becomes free meanwhile, nor when all jobs are planned again.
func TestLocalityIsKept(t *testing.T) {
	snap := draw(t, leaves+`
		run 1 on=n1:0 gpus=1 left=4m limit=2h
		run 2 on=n4:0 gpus=1 left=1h limit=2h
		run 5 on=n5:0 gpus=1 left=3h limit=4h
		job 3 nodes=2 gpus=1 switches=1 late=5m
		job 4 nodes=3 gpus=1
		rules . replan=10s`)
	p := NewPlanner()
	settle(snap, p.Pass(snap))
	pass := func(passed time.Duration, gone ...cluster.JobID) Decision {
		snap = later(snap, passed, gone...)
		return p.Pass(snap)
	}
	if d := pass(time.Second, 5); len(d.Plan.Starts) > 0 || d.Stats.Full {
		t.Errorf("n5 became free: %s", write(d))
	}
	if d := pass(time.Minute); len(d.Plan.Starts) > 0 || d.Stats.Full {
		t.Errorf("all jobs planned again after 6 replan intervals: %v, %s", d.Stats.Full, write(d))
	}
	if d := pass(time.Minute); len(d.Plan.Starts) > 0 || !d.Stats.Full {
		t.Errorf("all jobs planned again after 12 replan intervals: %v, %s", d.Stats.Full, write(d))
	}
	if d := pass(time.Minute, 1); !strings.HasPrefix(write(d), "3 starts on n1:0 n2:0\n") {
		t.Errorf("n1 became free: %s", write(d))
	}
}

// TestLocalityIsKeptLate has a pass that comes a moment late, with other jobs planned right behind.
func TestLocalityIsKeptLate(t *testing.T) {
	snap := draw(t, leaves+`
		run 1 on=n1:0 gpus=1 left=4m limit=2h
		run 2 on=n4:0 gpus=1 left=24h limit=48h
		job 3 nodes=2 gpus=1 switches=1 late=5m
		job 4 nodes=2 gpus=1 switches=1 after=1m`)
	snap.Policy.Scheduling.Replan = 0
	p := NewPlanner()
	settle(snap, p.Pass(snap))
	if d := p.Pass(later(snap, 4*time.Minute-slack+time.Second, 1)); !strings.HasPrefix(write(d), "3 starts on n1:0 n2:0\n") {
		t.Errorf("a second late: %s", write(d))
	}
}
