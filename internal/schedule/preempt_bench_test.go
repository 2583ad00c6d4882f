package schedule

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/schedule/plan"
	"github.com/greylag/greylag/pkg/cluster"
)

// packed returns 2,000 nodes of 8 GPUs with 5,000 running jobs that may be preempted: gangs of up to 16 nodes, and
// jobs of 1 to 8 GPUs; and 1,000 pending jobs of the same QOS.
func packed(_ testing.TB) *cluster.Snapshot {
	const nodes, running, pending = 2000, 5000, 1000
	snap := full(nodes, 8, pending, 3)
	policy := *snap.Policy
	policy.QOS = []cluster.QOS{
		{Name: "high", Tier: 5, Preempts: []string{"standard"}}, {Name: "standard", Tier: 1, PreemptMode: cluster.PreemptRequeue},
	}
	snap.Policy, snap.Active = &policy, nil
	r := rand.New(rand.NewPCG(4, 2))
	used := make([]int32, nodes)
	for id := cluster.JobID(1); len(snap.Active) < running; id++ {
		size, gpus := 1, []int32{1, 2, 3, 4, 8}[r.IntN(5)]
		if r.IntN(10) == 0 {
			size = 2 + r.IntN(15)
		}
		j := &cluster.Job{
			ID: id, Index: cluster.NoIndex, State: cluster.Running, Attempt: 1, Started: start.Add(-time.Duration(15+r.IntN(600)) * time.Minute), Alloc: &cluster.Allocation{},
			Spec: &cluster.JobSpec{Name: "r", Partition: "main", QOS: "standard", TimeLimit: time.Duration(24+r.IntN(48)) * time.Hour, Request: cluster.Request{Nodes: int32(size), GPUsPerNode: gpus, TasksPerNode: 1, CPUsPerTask: 1}},
		}
		for tries := 0; len(j.Alloc.Nodes) < size && tries < 4000; tries++ {
			h := r.IntN(nodes)
			if len(j.Alloc.Nodes) > 0 {
				h = (int(id)*7 + len(j.Alloc.Nodes) + tries) % nodes
			}
			if used[h]+gpus > 8 {
				continue
			}
			a := cluster.NodeAllocation{Node: snap.Nodes[h].Name, CPUs: 1}
			for g := range gpus {
				a.GPUs = append(a.GPUs, used[h]+g)
			}
			used[h] += gpus
			j.Alloc.Nodes = append(j.Alloc.Nodes, a)
		}
		if len(j.Alloc.Nodes) == 0 {
			j.Spec.Request.GPUsPerNode = 0
			j.Alloc.Nodes = []cluster.NodeAllocation{{Node: snap.Nodes[r.IntN(nodes)].Name, CPUs: 1}}
		}
		snap.Active = append(snap.Active, j)
	}
	return snap
}

// BenchmarkPreempt chooses the victims of a job of 1 to 64 nodes among 5,000 candidates: the trial of all that is
// ahead of it, and the choice.
func BenchmarkPreempt(b *testing.B) {
	for _, nodes := range []int32{1, 8, 64} {
		snap := packed(b)
		spec := &cluster.JobSpec{Name: "p", Partition: "main", QOS: "high", TimeLimit: 4 * time.Hour, Request: cluster.Request{Nodes: nodes, GPUsPerNode: 8, TasksPerNode: 1, CPUsPerTask: 1}}
		job := &cluster.Job{ID: 1_000_000, Index: cluster.NoIndex, State: cluster.Pending, Submitted: start, Spec: spec}
		snap.Pending = append(snap.Pending, job)
		c := plan.FromScratch(snap)
		list := candidates(c, job)
		name := fmt.Sprintf("nodes=2000/gpus=16000/candidates=%d/pending=1000/job=%d", len(list), nodes)
		b.Run(name+"/all", func(b *testing.B) {
			for b.Loop() {
				if q, _, ok := requestFor(c, committed(c), job, list); !ok || len(q.Victims) == 0 {
					b.Fatal("no victims")
				}
			}
		})
		b.Run(name+"/choice", func(b *testing.B) {
			t := plan.NewTrial(snap, job, c.Ahead(job), true)
			m := &preemptTrial{Trial: t, class: t.ClassOf(t.Job.ID, job.Spec), at: snap.Now.Add(c.Resources().Grace), gone: map[cluster.JobID]bool{}}
			for b.Loop() {
				gone := m.choose(list)
				b.ReportMetric(float64(len(gone)), "victims")
				b.ReportMetric(float64(sum(gone).Loss)/3600, "gpu-hours")
			}
		})
	}
}
