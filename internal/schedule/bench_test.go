package schedule

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/schedule/plan"
	"github.com/greylag/greylag/pkg/cluster"
)

// crowd returns nodes of 8 GPUs, all busy with one-GPU jobs unless free, and pending jobs of one
// GPU, each with its own specification, as single gsubmits make them.
func crowd(b testing.TB, nodes, pending int, free bool) *cluster.Snapshot {
	var text strings.Builder
	id := 1
	for n := range nodes {
		fmt.Fprintf(&text, "node n%04d gpus=8\n", n)
		for g := range 8 {
			if !free {
				fmt.Fprintf(&text, "run %d on=n%04d:%d cpus=1 gpus=1 left=%dm limit=5h\n", id, n, g, 1+g)
				id++
			}
		}
	}
	snap := draw(b, text.String())
	for i := range pending {
		spec := &cluster.JobSpec{
			Name: "j", Partition: "main", QOS: "standard", TimeLimit: time.Hour,
			Request: cluster.Request{Nodes: 1, GPUsPerNode: 1, TasksPerNode: 1, CPUsPerTask: 1},
		}
		snap.Pending = append(snap.Pending, &cluster.Job{
			ID: cluster.JobID(id + i), Index: cluster.NoIndex, Spec: spec, State: cluster.Pending, Submitted: start + cluster.Instant(i),
		})
	}
	return snap
}

// BenchmarkNothingStarts has no free GPU; 100,000 jobs are pending and have their verdict.
func BenchmarkNothingStarts(b *testing.B) {
	for _, nodes := range []int{4, 1000} {
		b.Run(fmt.Sprintf("nodes=%d/pending=100000", nodes), func(b *testing.B) {
			snap := crowd(b, nodes, 100_000, false)
			settle(snap, Decide(snap))
			for b.Loop() {
				if d := Decide(snap); len(d.Plan.Starts) > 0 || len(d.Plan.Verdicts) > 0 {
					b.Fatalf("%d starts, %d verdicts", len(d.Plan.Starts), len(d.Plan.Verdicts))
				}
			}
		})
	}
}

// BenchmarkAllStarts has only free GPUs; jobs start until there is no free one.
func BenchmarkAllStarts(b *testing.B) {
	for _, nodes := range []int{4, 1000} {
		b.Run(fmt.Sprintf("nodes=%d/pending=100000", nodes), func(b *testing.B) {
			snap := crowd(b, nodes, 100_000, true)
			for b.Loop() {
				if d := Decide(snap); len(d.Plan.Starts) != min(8*nodes, plan.MaxStarts) {
					b.Fatal(len(d.Plan.Starts))
				}
			}
		})
	}
}

// BenchmarkAllDifferent has 10,000 pending jobs with different requests.
func BenchmarkAllDifferent(b *testing.B) {
	snap := crowd(b, 100, 10_000, false)
	for i, j := range snap.Pending {
		j.Spec.TimeLimit += time.Duration(i) * time.Second
		j.Spec.Request.GPUsPerNode = int32(1 + i%8)
	}
	settle(snap, Decide(snap))
	for b.Loop() {
		Decide(snap)
	}
}

// full returns nodes that are all busy, each with one job that ends at its own time, and pending
// jobs of 1 to 64 GPUs and 10 minutes to a day.
func full(nodes, gpus, pending int, seed uint64) *cluster.Snapshot {
	r := rand.New(rand.NewPCG(seed, 7))
	policy := cluster.DefaultPolicy()
	snap := &cluster.Snapshot{Index: 1, Now: start, Policy: &policy}
	id := cluster.JobID(1)
	for n := range nodes {
		node := &cluster.Node{Name: fmt.Sprintf("n%05d", n), CPUs: 64, Memory: 512 * cluster.GiB}
		var all []int32
		for g := range int32(gpus) {
			node.GPUs = append(node.GPUs, cluster.GPU{Index: g, Type: "h100", Domain: node.Name})
			all = append(all, g)
		}
		snap.Nodes = append(snap.Nodes, node)
		spec := &cluster.JobSpec{Name: "r", Partition: "main", QOS: "standard", TimeLimit: time.Duration(10+n*37%480) * time.Minute,
			Request: cluster.Request{Nodes: 1, GPUsPerNode: int32(gpus), TasksPerNode: 1, CPUsPerTask: 1}}
		snap.Active = append(snap.Active, &cluster.Job{ID: id, Index: cluster.NoIndex, Spec: spec, State: cluster.Running, Attempt: 1, Started: start,
			Alloc: &cluster.Allocation{Nodes: []cluster.NodeAllocation{{Node: node.Name, GPUs: all, CPUs: 1}}}})
		id++
	}
	for range pending {
		snap.Pending = append(snap.Pending, queued(r, id, gpus))
		id++
	}
	return snap
}

func queued(r *rand.Rand, id cluster.JobID, gpus int) *cluster.Job {
	n := []int{1, 1, 1, 2, 2, 4, 8, 8, 16, 32, 64}[r.IntN(11)]
	minutes := []int{10, 30, 60, 120, 240, 480, 1440}[r.IntN(7)]
	q := cluster.Request{Nodes: 1, GPUsPerNode: int32(n), TasksPerNode: 1, CPUsPerTask: 1}
	if n > gpus {
		q.Nodes, q.GPUsPerNode = int32(n/gpus), int32(gpus)
	}
	return &cluster.Job{ID: id, Index: cluster.NoIndex, State: cluster.Pending, Submitted: start, Spec: &cluster.JobSpec{
		Name: "q", Partition: "main", QOS: "standard", TimeLimit: time.Duration(minutes) * time.Minute, Request: q}}
}

var sizes = []struct{ nodes, gpus, pending int }{{128, 8, 1000}, {1250, 8, 10_000}, {5000, 8, 10_000}, {16_000, 4, 100_000}}

// BenchmarkFullPass makes the whole plan from scratch.
func BenchmarkFullPass(b *testing.B) {
	for _, s := range sizes {
		b.Run(fmt.Sprintf("nodes=%d/gpus=%d/pending=%d", s.nodes, s.gpus, s.pending), func(b *testing.B) {
			snap := full(s.nodes, s.gpus, s.pending, 7)
			for b.Loop() {
				d := Decide(snap)
				b.ReportMetric(float64(d.Stats.Rows), "rows")
				b.ReportMetric(float64(d.Stats.Planned), "planned")
			}
		})
	}
}

// BenchmarkEventPass makes a pass after a job ended early, or was submitted.
func BenchmarkEventPass(b *testing.B) {
	for _, s := range sizes {
		b.Run(fmt.Sprintf("nodes=%d/gpus=%d/pending=%d", s.nodes, s.gpus, s.pending), func(b *testing.B) {
			snap := full(s.nodes, s.gpus, s.pending, 7)
			p := NewPlanner()
			p.Pass(snap)
			r := rand.New(rand.NewPCG(1, 2))
			id := cluster.JobID(10_000_000)
			moved, rows := 0, 0
			for b.Loop() {
				next := *snap
				next.Index++
				next.Now += cluster.Instant(time.Second)
				if next.Index%2 == 0 {
					i := r.IntN(len(snap.Active))
					next.Active = slices.Delete(slices.Clone(snap.Active), i, i+1)
				} else {
					next.Pending = append(slices.Clone(snap.Pending), queued(r, id, s.gpus))
					id++
				}
				d := p.Pass(&next)
				moved, rows = moved+d.Stats.Moved, rows+d.Stats.Rows
				snap = started(&next, d)
			}
			b.ReportMetric(float64(moved)/float64(b.N), "moved/op")
			b.ReportMetric(float64(rows)/float64(b.N), "rows/op")
		})
	}
}

// started returns the snapshot after the starts of a decision were committed.
func started(snap *cluster.Snapshot, d Decision) *cluster.Snapshot {
	next := *snap
	for _, s := range d.Plan.Starts {
		i := slices.IndexFunc(next.Pending, func(j *cluster.Job) bool { return j.ID == s.Job })
		job := *next.Pending[i]
		job.State, job.Started, job.Attempt, job.Alloc = cluster.Running, next.Now, s.Attempt, &s.Placement
		next.Pending = slices.Delete(slices.Clone(next.Pending), i, i+1)
		next.Active = append(slices.Clone(next.Active), &job)
	}
	slices.SortFunc(next.Active, func(a, b *cluster.Job) int { return cmp.Compare(a.ID, b.ID) })
	return &next
}

// settle gives the jobs their verdicts, as the state does.
func settle(snap *cluster.Snapshot, d Decision) {
	at := map[cluster.JobID]cluster.Verdict{}
	for _, v := range d.Plan.Verdicts {
		at[v.Job] = v
	}
	for _, j := range snap.Pending {
		v := at[j.ID]
		j.Reason, j.Detail, j.Planned = v.Reason, v.Detail, v.Planned
	}
}
