package schedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// later returns a snapshot of a later time, without some of the jobs.
func later(snap *cluster.Snapshot, passed time.Duration, gone ...cluster.JobID) *cluster.Snapshot {
	left := func(j *cluster.Job) bool { return slices.Contains(gone, j.ID) }
	next := *snap
	next.Index, next.Now = snap.Index+1, snap.Now.Add(passed)
	next.Active = slices.DeleteFunc(slices.Clone(snap.Active), left)
	next.Pending = slices.DeleteFunc(slices.Clone(snap.Pending), left)
	return &next
}

// TestWhatAStartLeaves checks that a due job takes the node that it fits best, and that the job
// planned behind it on the other node starts there at once.
func TestWhatAStartLeaves(t *testing.T) {
	snap := draw(t, `
		node a gpus=8
		node b gpus=8
		run 1 on=a:0-7 gpus=8 left=10m limit=2h
		run 2 on=b:0-3 gpus=4 left=3h limit=4h
		run 3 on=b:4-7 gpus=4 left=3h limit=4h
		job 4 gpus=4 limit=1h
		job 5 gpus=8 limit=1h after=1m`)
	p := NewPlanner()
	settle(snap, p.Pass(snap))
	snap = later(snap, 10*time.Minute, 1, 3)
	d := p.Pass(snap)
	if got := write(d); !strings.HasPrefix(got, "4 starts on b:4-7\n") {
		t.Fatalf("two jobs ended: %s", got)
	}
	snap = started(snap, d)
	snap.Index++
	if got := write(p.Pass(snap)); !strings.HasPrefix(got, "5 starts on a:0-7") {
		t.Errorf("the start was agreed: %s", got)
	}
}

// TestManyWideJobsLeaveTurns has thousands of jobs on several hosts each, for which the freed host
// is too little. They use up no moves: a job of one GPU that is submitted then starts.
func TestManyWideJobsLeaveTurns(t *testing.T) {
	snap := full(640, 1, 0, 7)
	snap.Policy.Scheduling.Replan = 0
	spec := &cluster.JobSpec{Name: "w", Partition: "main", QOS: "standard", TimeLimit: time.Hour,
		Request: cluster.Request{Nodes: 50, GPUsPerNode: 1, TasksPerNode: 1, CPUsPerTask: 1}}
	wait := func(id cluster.JobID, spec *cluster.JobSpec) {
		snap.Pending = append(snap.Pending, &cluster.Job{ID: id, Index: cluster.NoIndex, Spec: spec, State: cluster.Pending, Submitted: start})
	}
	for _, job := range snap.Active {
		running := *job.Spec
		running.TimeLimit = 5 * time.Hour
		job.Spec = &running
	}
	for i := range cluster.JobID(4096 + 100) {
		wait(1000+i, spec)
	}
	p := NewPlanner()
	settle(snap, p.Pass(snap))
	snap = later(snap, time.Second, snap.Active[0].ID)
	small := *spec
	small.Request.Nodes, small.TimeLimit = 1, 30*time.Minute
	wait(100_000, &small)
	if d := p.Pass(snap); len(d.Plan.Starts) != 1 || d.Stats.Full {
		t.Errorf("%d starts with a free node, more to do %v, full %v", len(d.Plan.Starts), d.More, d.Stats.Full)
	}
}

// TestAnotherTypeOfTheSameNode frees a GPU of the other type of a node whose CPUs the job's own
// planned start has.
func TestAnotherTypeOfTheSameNode(t *testing.T) {
	snap := draw(t, `
		node a gpus=2 type=h100,a100 cpus=8
		node b
		run 1 on=a:0 gpus=1 cpus=1 left=1h limit=2h
		run 2 on=a:1 gpus=1 cpus=1 left=3h limit=4h
		job 4 gpus=1 cpus=7 type=h100,a100 limit=2h`)
	p := NewPlanner()
	settle(snap, p.Pass(snap))
	if d := p.Pass(later(snap, time.Second, 2)); !strings.HasPrefix(write(d), "4 starts on a:1") {
		t.Errorf("job 2 ended: %s", write(d))
	}
}

// TestTurnsOfAClass has two jobs with one request. The one ahead gets what becomes free while the
// one behind is queued for another move.
func TestTurnsOfAClass(t *testing.T) {
	snap := draw(t, `
		node a gpus=8
		node b gpus=8
		node c gpus=8
		reservation maint nodes=c from=70m to=100m
		reservation later nodes=a from=185m to=300m
		run 1 on=a:0-7 gpus=8 left=60m limit=2h
		run 2 on=b:0-7 gpus=8 left=90m limit=2h
		run 3 on=c:0-7 gpus=8 left=50m limit=2h
		job 4 gpus=8 limit=59m
		job 5 gpus=8 limit=3h after=1m only=c
		job 6 gpus=8 limit=2h after=2m
		job 7 gpus=8 limit=2h after=3m`)
	p := NewPlanner()
	settle(snap, p.Pass(snap)) // 4 on a, 5 on c, 6 on b, 7 behind it
	if d := p.Pass(later(snap, time.Second, 3, 5)); !strings.HasPrefix(write(d), "4 starts on c:0-7") || p.schedule.Entry(7).At < p.schedule.Entry(6).At {
		t.Errorf("job 7 is before job 6: %s", write(d))
	}
}

// TestTurnsOfANewOne submits a job ahead of a queued one of its class: it gets what becomes free
// first.
func TestTurnsOfANewOne(t *testing.T) {
	snap := draw(t, `
		node a gpus=8
		node b gpus=8
		node c gpus=8
		node d gpus=8
		run 1 on=b:0-7 gpus=8 left=60m limit=2h
		run 2 on=a:0-7 gpus=8 left=10h limit=11h
		run 3 on=c:0-7 gpus=8 left=30m limit=2h
		run 4 on=d:0-7 gpus=8 left=5h limit=6h
		job 5 gpus=8 limit=2h only=b
		job 7 gpus=8 limit=3h nice=2 only=c,d nodes=1
		job 8 gpus=8 limit=59m nice=3 not=d`)
	p := NewPlanner()
	settle(snap, p.Pass(snap)) // 5 on b, 7 on c, 8 on b behind 5
	snap = later(snap, time.Second, 1, 4)
	job := *snap.Pending[2]
	spec := *job.Spec
	spec.Nice, job.ID, job.Spec = 1, 6, &spec
	snap.Pending = slices.Insert(snap.Pending, 1, &job)
	d := p.Pass(snap) // 5 moves on b, 6 is planned behind it, 7 leaves c for d
	if got := write(d); p.schedule.Entry(6).At >= p.schedule.Entry(8).At || !strings.Contains(got, "7 starts on d:0-7") {
		t.Errorf("job 8 is before job 6: %s", got)
	}
}

// TestNoDuplicateNode changes the fabric, in which the nodes of a promise have another order: the
// promise is kept. When it moves forward on some of its nodes and others, it has each of them once.
func TestNoDuplicateNode(t *testing.T) {
	snap := draw(t, `
		rules . horizon=24h
		node a gpus=2 cpus=64
		node b gpus=4 cpus=1
		node c gpus=4 cpus=1
		node d gpus=4 cpus=64
		run 1 on=b:0-3 gpus=4 cpus=1 left=1h limit=2h
		run 2 on=c:0-3 gpus=4 cpus=1 left=1h limit=2h
		run 3 on=d:0-3 gpus=4 left=10h limit=11h
		job 4 nodes=3 gpus=1 cpus=1 limit=2h`)
	p := NewPlanner()
	settle(snap, p.Pass(snap))
	snap = later(snap, time.Second)
	top := cluster.Switch{Name: "top"}
	for _, name := range []string{"c", "b", "a", "d"} {
		leaf := cluster.Switch{Name: fmt.Sprintf("s%d", len(snap.Switches)), Nodes: []string{name}}
		top.Children, snap.Switches = append(top.Children, leaf.Name), append(snap.Switches, leaf)
	}
	snap.Switches = append(snap.Switches, top)
	p.Pass(snap)
	if d := p.Pass(later(snap, time.Second, 1, 3)); !strings.HasPrefix(write(d), "4 starts on a:0 b:0 d:0") {
		t.Errorf("jobs 1 and 3 ended: %s", write(d))
	}
}
