package state

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// wide is a state in which a job runs on all nodes.
type wide struct {
	t      *testing.T
	s      *State
	epochs map[string]uint64
	names  []string
	job    cluster.JobID
}

// newWide registers nodes and submits a job for all of them.
func newWide(t *testing.T, width int) *wide {
	t.Helper()
	x := &wide{t: t, s: New(), epochs: map[string]uint64{}}
	x.apply(&command.Init{ClusterID: "wide", Policy: cluster.DefaultPolicy()})
	for i := range width {
		name := fmt.Sprintf("n%05d", i+1)
		r := x.apply(&command.RegisterNode{Node: cluster.Node{Name: name, BootID: "b", CPUs: 4, Memory: 4 * cluster.GiB}})
		x.names, x.epochs[name] = append(x.names, name), r.(*command.Registered).Epoch
	}
	who := command.Actor{Identity: cluster.Identity{User: "ann", UID: 1, GID: 1}}
	r := x.apply(&command.SubmitJobs{Actor: who, Jobs: []command.Submission{{Spec: cluster.JobSpec{
		Name: "wide", Owner: who.Identity, TimeLimit: 3600e9,
		Request: cluster.Request{Nodes: int32(width), TasksPerNode: 1, CPUsPerTask: 1}, Requeue: true,
	}}}})
	x.job = r.(*command.Submitted).First[0]
	return x
}

func (x *wide) apply(c command.Command) command.Result {
	x.t.Helper()
	r := x.s.Apply(x.s.index+1, x.s.now+1e9, c)
	if no, is := r.(*command.Refusal); is {
		x.t.Fatalf("%T: %s", c, no.Message)
	}
	x.s.Effects()
	x.s.View()
	return r
}

// start starts the job on all nodes.
func (x *wide) start(attempt cluster.Attempt) {
	x.t.Helper()
	p := cluster.PlannedStart{Job: x.job, Attempt: attempt}
	for _, name := range x.names {
		p.Placement.Nodes = append(p.Placement.Nodes, cluster.NodeAllocation{Node: name, CPUs: 1, Memory: cluster.GiB})
	}
	r := x.apply(&command.CommitPlan{Plan: cluster.Plan{Index: x.s.index, Starts: []cluster.PlannedStart{p}}})
	if len(r.(*command.Committed).Started) != 1 {
		x.t.Fatalf("the job did not start: %+v", r)
	}
}

// report has one node report its task, as of the newest index.
func (x *wide) report(name string, attempt cluster.Attempt, task cluster.Task) *command.ReportTasks {
	x.t.Helper()
	return x.reportAsOf(x.s.index, name, attempt, task)
}

func (x *wide) reportAsOf(seen uint64, name string, attempt cluster.Attempt, task cluster.Task) *command.ReportTasks {
	x.t.Helper()
	c := &command.ReportTasks{
		Node: name, Epoch: x.epochs[name], Seen: seen, Tasks: []command.TaskReport{{Job: x.job, Attempt: attempt, Task: task}},
	}
	x.apply(c)
	return c
}

// reportAll has each node report its task in a phase.
func (x *wide) reportAll(attempt cluster.Attempt, task cluster.Task) {
	x.t.Helper()
	for _, name := range x.names {
		x.report(name, attempt, task)
	}
}

// allocated returns the bytes that f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

var (
	begun = cluster.Task{Phase: cluster.TaskStarted, Started: 5}
	ended = cluster.Task{Phase: cluster.TaskClean, Cause: cluster.Exited, Started: 5, Ended: 6}
)

// TestWideJobGrowth checks that a start, all reports and the end of a job allocate memory in proportion
// to its nodes, in logarithmic terms at most: a cost that grows with the square would be 50 times as
// much for each node of the widest job.
func TestWideJobGrowth(t *testing.T) {
	var perNode []uint64
	for _, width := range []int{100, 1000, 5000} {
		x := newWide(t, width)
		bytes := allocated(func() {
			x.start(1)
			x.reportAll(1, begun)
			x.reportAll(1, ended)
		})
		if j, found := x.s.job(x.job); !found || j.State != cluster.Completed {
			t.Fatalf("a job on %d nodes is %s", width, j.State)
		}
		perNode = append(perNode, bytes/uint64(width))
	}
	t.Logf("bytes for each node at 100, 1,000 and 5,000 nodes: %d", perNode)
	if perNode[2] > 3*perNode[0] {
		t.Errorf("bytes for each node at 100, 1,000 and 5,000 nodes: %d", perNode)
	}
}

// TestWideJobReports checks reports that a wide job gets twice, late, or of an earlier attempt.
func TestWideJobReports(t *testing.T) {
	x := newWide(t, 5000)
	x.start(1)
	x.reportAll(1, begun)
	again := x.report(x.names[4321], 1, begun)
	if again.Seen = x.s.index; !x.s.View().NothingNew(again) {
		t.Error("a repeated report is news")
	}
	lost := &command.SetLiveness{Nodes: []command.NodeLiveness{{Node: x.names[17], Epoch: x.epochs[x.names[17]], Liveness: cluster.Dead}}}
	x.apply(lost)
	for i, name := range x.names {
		if i != 17 {
			x.report(name, 1, cluster.Task{Phase: cluster.TaskClean, Cause: cluster.Stopped, Started: 5, Ended: 6})
		}
	}
	j, _ := x.s.active(x.job)
	if j == nil || j.State != cluster.Pending || j.Causes.NodeFailed+j.Causes.TaskFailed != 1 {
		t.Fatalf("after the loss of a node the job is %+v", j)
	}
	x.apply(&command.RegisterNode{Node: cluster.Node{Name: x.names[17], BootID: "b", CPUs: 4, Memory: 4 * cluster.GiB}})
	x.report(x.names[17], 1, ended) // what the node did after it was lost
	for x.s.now < j.Eligible {
		x.apply(&command.Tick{})
	}
	seen := x.s.index
	x.start(2)
	before := x.s.Digest()
	x.reportAsOf(seen, x.names[42], 1, ended) // it does not know the second one yet
	if j, _ := x.s.active(x.job); j.Attempt != 2 || j.Tasks.Reached(cluster.TaskStarted) != 0 {
		t.Errorf("a report of the first attempt changed the second: %d tasks have started", j.Tasks.Reached(cluster.TaskStarted))
	}
	x.report(x.names[42], 2, begun)
	if j, _ := x.s.active(x.job); j.Tasks.Reached(cluster.TaskStarted) != 1 || x.s.Digest() == before {
		t.Errorf("%d tasks have started, want 1, and another digest", j.Tasks.Reached(cluster.TaskStarted))
	}
	if err := x.s.Check(); err != nil {
		t.Error(err)
	}
}
