package sim

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// wideJobs returns jobs on CPU nodes: for each number of nodes one job, a minute after the one before.
func wideJobs(nodes ...int) []Job {
	var jobs []Job
	for i, n := range nodes {
		jobs = append(jobs, Job{
			Name: fmt.Sprint(i + 1), Submit: Epoch + cluster.Instant(i)*cluster.Instant(time.Minute), Run: time.Hour,
			Spec: &cluster.JobSpec{
				Name: "wide", Owner: cluster.Identity{User: "user", UID: 10_001, GID: 10_001}, TimeLimit: 2 * time.Hour,
				Request: cluster.Request{Nodes: int32(n), TasksPerNode: 1, CPUsPerTask: 16},
			},
		})
	}
	return jobs
}

// newWide returns the replay of jobs on nodes of 16 CPUs.
func newWide(t *testing.T, nodes int, jobs []Job) *Replayer {
	t.Helper()
	fleet, err := UniformCPUs(nodes, 16)
	if err != nil {
		t.Fatal(err)
	}
	policy := cluster.DefaultPolicy()
	policy.KillWait = 0
	v, err := assembled(fleet, &policy, false)
	if err != nil {
		t.Fatal(err)
	}
	return NewReplayer(v, jobs, Options{})
}

// runWide runs a replay. It returns how many rows of the profile the passes read, and how many bytes the
// replay allocated.
func runWide(t *testing.T, r *Replayer) (rows int, bytes uint64) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for at := r.nextInstant(); at < cluster.Never; at = r.nextInstant() {
		r.Now = max(at, r.Now)
		if err := r.processInstant(); err != nil {
			t.Fatal(err)
		}
		for more := len(r.ResultOf) > r.ends.Len(); more; {
			d, done, err := r.Pass()
			if err != nil {
				t.Fatal(err)
			}
			rows += d.Stats.Rows
			r.RecordVerdicts(&d.Plan)
			if err := r.startJobs(&d, done); err != nil {
				t.Fatal(err)
			}
			r.Wake, more = d.Wake, d.More
		}
	}
	runtime.ReadMemStats(&after)
	return rows, after.TotalAlloc - before.TotalAlloc
}

// TestWidePassGrowth checks that the starts, reports, ends and moves of jobs as wide as the cluster read
// rows and allocate memory in proportion to their width.
func TestWidePassGrowth(t *testing.T) {
	type perNode struct {
		rows  int
		bytes uint64
	}
	var all []perNode
	for _, n := range []int{10, 100, 1000, 5000} {
		r := newWide(t, n, wideJobs(n, n, n/2, n/2, n, n/2, n/5, n, n/5))
		rows, bytes := runWide(t, r)
		for i := range r.Results {
			if r.Results[i].End == 0 {
				t.Errorf("%d nodes: job %d has not ended: %s", n, i+1, r.Results[i].Reason)
			}
		}
		all = append(all, perNode{rows / n, bytes / uint64(n)})
	}
	t.Logf("rows and bytes for each node at 10, 100, 1,000 and 5,000 nodes: %v", all)
	if last, first := all[3], all[1]; last.rows > 3*first.rows || last.bytes > 3*first.bytes {
		t.Errorf("rows and bytes for each node at 10, 100, 1,000 and 5,000 nodes: %v", all)
	}
}

// TestWidthOfTheCluster submits jobs that are wider than the cluster, as wide, and wider by one than what
// is up, until the node returns.
func TestWidthOfTheCluster(t *testing.T) {
	const nodes = 1000
	r := newWide(t, nodes, wideJobs(nodes+1, nodes, nodes-1))
	drain := &command.UpdateNodes{Actor: Administrator(), Action: command.DrainNodes, Names: []string{"n00500"}, Reason: "repair"}
	if err := r.Must(drain); err != nil {
		t.Fatal(err)
	}
	runWide(t, r)
	if err := r.ExplainPending(); err != nil {
		t.Fatal(err)
	}
	wider, all, fewer := &r.Results[0], &r.Results[1], &r.Results[2]
	if wider.Start != 0 || all.Start != 0 || fewer.End == 0 || wider.Reason == "" || all.Reason == "" {
		t.Fatalf("with a drained node: %q, %q, %q", wider.Reason, all.Reason, fewer.Reason)
	}
	if err := r.Must(&command.UpdateNodes{Actor: Administrator(), Action: command.ResumeNodes, Names: drain.Names}); err != nil {
		t.Fatal(err)
	}
	if err := r.runPasses(); err != nil {
		t.Fatal(err)
	}
	runWide(t, r)
	if wider.Start != 0 || all.End == 0 {
		t.Errorf("with all nodes: %q, %q", wider.Reason, all.Reason)
	}
}
