package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// crowd is nodes of 8 GPUs, all busy with one-GPU jobs unless free, and pending jobs
// of one GPU each, every one with its own specification, as single gsubmits make them.
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

// BenchmarkNothingStarts: all GPUs are busy; 100,000 jobs wait, and say why already.
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

// BenchmarkAllStarts: every GPU is free; jobs start until none is.
func BenchmarkAllStarts(b *testing.B) {
	for _, nodes := range []int{4, 1000} {
		b.Run(fmt.Sprintf("nodes=%d/pending=100000", nodes), func(b *testing.B) {
			snap := crowd(b, nodes, 100_000, true)
			for b.Loop() {
				if d := Decide(snap); len(d.Plan.Starts) != min(8*nodes, maxStarts) {
					b.Fatal(len(d.Plan.Starts))
				}
			}
		})
	}
}

// BenchmarkAllDifferent: 10,000 pending jobs of which no two ask for the same.
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

// settle gives the jobs the verdicts they were given, as the state does.
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
