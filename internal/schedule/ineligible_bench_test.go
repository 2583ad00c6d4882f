package schedule

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// waysToWait returns the obstacles that no free GPU would remove.
func waysToWait() map[string]func(*cluster.Snapshot, *cluster.Job) {
	spec := &cluster.JobSpec{Name: "k", Partition: "main", QOS: "kept", ArrayLimit: 1, TimeLimit: time.Hour,
		Request: cluster.Request{Nodes: 1, GPUsPerNode: 1, TasksPerNode: 1, CPUsPerTask: 1}}
	with := func(change func(*cluster.JobSpec)) *cluster.JobSpec {
		s := *spec
		s.ArrayLimit, s.QOS = 0, "standard"
		change(&s)
		return &s
	}
	first := cluster.JobID(1) // runs all the time
	later := with(func(s *cluster.JobSpec) { s.Begin = start.Add(1000 * time.Hour) })
	after := with(func(s *cluster.JobSpec) {
		s.Depends = []cluster.Dependency{{Kind: cluster.AfterOK, Job: cluster.JobRef{ID: first, Index: cluster.NoIndex}}}
	})
	never := with(func(s *cluster.JobSpec) { s.Request.GPUTypes = []string{"none"} })
	alone := with(func(s *cluster.JobSpec) { // of the name of all pending jobs
		s.Name, s.Depends = "q", []cluster.Dependency{{Kind: cluster.Singleton}}
	})
	limited := with(func(s *cluster.JobSpec) { s.QOS = "kept" })
	return map[string]func(*cluster.Snapshot, *cluster.Job){
		"array-limit": func(_ *cluster.Snapshot, j *cluster.Job) { j.Spec, j.Array = spec, 500_000 },
		"begin":       func(_ *cluster.Snapshot, j *cluster.Job) { j.Spec = later },
		"dependency":  func(_ *cluster.Snapshot, j *cluster.Job) { j.Spec = after },
		"never":       func(_ *cluster.Snapshot, j *cluster.Job) { j.Spec = never },
		"qos-limit":   func(_ *cluster.Snapshot, j *cluster.Job) { j.Spec = limited },
		"singleton":   func(_ *cluster.Snapshot, j *cluster.Job) { j.Spec = alone },
	}
}

// BenchmarkIneligible makes a pass after one event on 1,250 full nodes of 8 GPUs with 10,000 pending
// jobs, and 50,000 ineligible ones.
func BenchmarkIneligible(b *testing.B) {
	ways := waysToWait()
	ways["none"] = nil
	for _, name := range []string{"none", "array-limit", "begin", "dependency", "never", "qos-limit", "singleton"} {
		b.Run(name, func(b *testing.B) {
			snap := full(1250, 8, 10_000, 7)
			snap.Policy.Scheduling.Replan = 0
			snap.Policy.QOS = append(snap.Policy.QOS, cluster.QOS{Name: "kept", Limits: []cluster.Limit{{Kind: cluster.GrpJobs, Value: 0}}})
			snap.Accounts = &cluster.AccountView{
				Tree: cluster.NewAccountTree(slices.Values[[]*cluster.Account](nil), slices.Values[[]*cluster.Association](nil)),
				Used: slices.Values[[]*cluster.AccountUsage](nil), Running: maps.All[map[cluster.JobID]*cluster.Charge](nil),
			}
			snap.Elements = func(cluster.JobID) (cluster.JobID, int32, bool) { return 0, 0, false }
			for i := range 50_000 {
				if ways[name] == nil {
					break
				}
				job := &cluster.Job{ID: cluster.JobID(500_000 + i), Index: int32(i), State: cluster.Pending, Submitted: start}
				ways[name](snap, job)
				snap.Pending = append(snap.Pending, job)
			}
			events(b, snap)
		})
	}
}

// events makes a pass after each of many events: a job ends early, or one is submitted.
func events(b *testing.B, snap *cluster.Snapshot) {
	p := NewPlanner()
	settle(snap, p.Pass(snap))
	r := rand.New(rand.NewPCG(1, 2))
	id := cluster.JobID(10_000_000)
	verdicts := 0
	for b.Loop() {
		next := *snap
		next.Index++
		next.Now += cluster.Instant(time.Second)
		if next.Index%2 == 0 {
			i := 1 + r.IntN(len(snap.Active)-1)
			next.Active = slices.Delete(slices.Clone(snap.Active), i, i+1)
		} else {
			next.Pending = append(slices.Clone(snap.Pending), queued(r, id, 8))
			id++
		}
		d := p.Pass(&next)
		verdicts += len(d.Plan.Verdicts)
		snap = started(&next, d)
	}
	b.ReportMetric(float64(verdicts)/float64(b.N), "verdicts/op")
}
