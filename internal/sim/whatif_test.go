package sim

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// saved returns a cluster of two nodes of 8 GPUs: job 1 has both for an hour, job 2 needs one for
// two hours, job 3 both for an hour, job 4 is held.
func saved(t *testing.T) []byte {
	fleet, err := Uniform(2, 8)
	if err != nil {
		t.Fatal(err)
	}
	policy := cluster.DefaultPolicy()
	policy.KillWait = 0
	v, err := assembled(fleet, &policy, true)
	if err != nil {
		t.Fatal(err)
	}
	var jobs []Job
	for _, x := range []struct{ nodes, hours int32 }{{2, 1}, {1, 2}, {2, 1}} {
		jobs = append(jobs, Job{Submit: Epoch, Run: 1, Spec: new(jobOf(x.nodes, time.Duration(x.hours)*time.Hour))})
	}
	begin(t, v, jobs)
	held := v.submission(new(jobOf(1, time.Hour)))
	held.Jobs[0].Held = true
	if err := v.Must(held); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := v.State.View().Encode(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// begin submits jobs and starts those that can start.
func begin(t *testing.T, v *Virtual, jobs []Job) {
	r := NewReplayer(v, jobs, Options{})
	if err := errors.Join(r.processInstant(), r.runPasses()); err != nil {
		t.Fatal(err)
	}
}

func jobOf(nodes int32, limit time.Duration) cluster.JobSpec {
	return cluster.JobSpec{
		Name: "j", Owner: cluster.Identity{User: "alice", UID: 1001, GID: 1001}, TimeLimit: limit, Requeue: true,
		Request: cluster.Request{Nodes: nodes, GPUsPerNode: 8, TasksPerNode: 1, CPUsPerTask: 1},
	}
}

func TestWhatIf(t *testing.T) {
	data := saved(t)
	for _, x := range []struct {
		name    string
		changes Changes
		hours   []float64 // from the snapshot to the start of each pending job; -1: never
	}{
		{"nothing", Changes{}, []float64{1, 3, -1}},
		{"two nodes more", Changes{Add: []Addition{{2, "h100"}}}, []float64{0, 1, -1}},
		{"a job more", Changes{Jobs: []cluster.JobSpec{jobOf(1, time.Hour)}}, []float64{1, 3, -1, 1}},
		{"a node less", Changes{Remove: []string{"n00002"}}, []float64{-1, 0, -1, -1}},
	} {
		list, now, err := WhatIf(data, &x.changes, Options{Check: true})
		if err != nil {
			t.Fatal(x.name, err)
		}
		if len(list) != len(x.hours) {
			t.Fatalf("%s: %+v", x.name, list)
		}
		for i, f := range list {
			got := -1.0
			if f.After > 0 {
				got = f.After.Sub(now).Round(time.Minute).Hours()
			}
			if got != x.hours[i] || (f.After == 0) != (f.Why != "") {
				t.Errorf("%s: job %d starts after %.2f hours, want %.2f (%+v)", x.name, f.Job, got, x.hours[i], f)
			}
		}
	}
}

func TestWhatIfRefuses(t *testing.T) {
	data := saved(t)
	for _, c := range []Changes{{Remove: []string{"absent"}}, {Add: []Addition{{1, "a100"}}}, {Add: []Addition{{0, "h100"}}}, {Policy: &cluster.Policy{}}} {
		if _, _, err := WhatIf(data, &c, Options{}); !errors.Is(err, ErrRefused) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, _, err := WhatIf(data[:len(data)/2], &Changes{}, Options{}); err == nil {
		t.Error("half a snapshot was accepted")
	}
}

// TestWhatIfReturns: a job whose nodes are lost while it completes is pending again, and runs
// again.
func TestWhatIfReturns(t *testing.T) {
	fleet, _ := Uniform(1, 8)
	policy := cluster.DefaultPolicy()
	v, err := assembled(fleet, &policy, true)
	if err != nil {
		t.Fatal(err)
	}
	begin(t, v, []Job{{Submit: Epoch, Run: time.Hour, Spec: new(jobOf(1, time.Hour))}})
	lost := &command.ReportTasks{Node: "n00001", Epoch: v.Epochs["n00001"], Tasks: []command.TaskReport{
		{Job: 1, Attempt: 1, Task: cluster.Task{Node: "n00001", Phase: cluster.TaskEnded, Cause: cluster.NodeFault}},
	}}
	if err := v.Must(lost); err != nil {
		t.Fatal(err)
	}
	again := NewReplayer(v, nil, Options{})
	again.adoptJobs(limitOf)
	if err := again.run(); err != nil {
		t.Fatal(err)
	}
	last := again.Results[0]
	if last.End.Sub(last.Start) != time.Hour || v.State.View().Counts().Active != 0 {
		t.Errorf("%+v", last)
	}
}

// TestWhatIfExpected: after a job of alice has taken ten minutes of its hour, her next jobs are
// expected to take as long. A job that has run for longer runs until its limit, and so do the jobs
// of bob, who has used more than she has.
func TestWhatIfExpected(t *testing.T) {
	fleet, _ := Uniform(1, 8)
	policy := cluster.DefaultPolicy()
	policy.KillWait = 0
	v, err := assembled(fleet, &policy, true)
	if err != nil {
		t.Fatal(err)
	}
	short := Job{Submit: Epoch, Run: 10 * time.Minute, Spec: new(jobOf(1, time.Hour))}
	if err := NewReplayer(v, []Job{short}, Options{}).run(); err != nil {
		t.Fatal(err)
	}
	bobs := jobOf(1, 2*time.Hour)
	bobs.Owner.User = "bob"
	bobs.Owner.UID = 1002
	begin(t, v, []Job{{Submit: Epoch, Run: 1, Spec: new(jobOf(1, time.Hour))}, {Submit: Epoch, Run: 1, Spec: new(jobOf(1, time.Hour))}, {Submit: Epoch, Run: 1, Spec: &bobs}, {Submit: Epoch, Run: 1, Spec: &bobs}})
	check := func(what string, c Changes, minutes ...float64) {
		t.Helper()
		var b bytes.Buffer
		if err := v.State.View().Encode(&b); err != nil {
			t.Fatal(err)
		}
		list, now, err := WhatIf(b.Bytes(), &c, Options{Check: true})
		if err != nil || len(list) != len(minutes) {
			t.Fatalf("%s: %+v, %v", what, list, err)
		}
		for i, f := range list {
			if got := f.After.Sub(now).Round(time.Minute).Minutes(); got != minutes[i] {
				t.Errorf("%s: job %d starts after %.0f minutes, want %.0f", what, f.Job, got, minutes[i])
			}
		}
	}
	check("limits", Changes{}, 60, 120, 240)
	check("expected", Changes{Expected: true}, 10, 20, 140)
	check("expected, and one more of hers", Changes{Expected: true, Jobs: []cluster.JobSpec{jobOf(1, time.Hour)}}, 10, 20, 150, 140)
	v.Now = v.Now.Add(30 * time.Minute)
	if err := v.Must(&command.Tick{}); err != nil {
		t.Fatal(err)
	}
	check("expected, half an hour later", Changes{Expected: true}, 30, 40, 160)
}
