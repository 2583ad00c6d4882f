package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/schedule/explain"
	"github.com/greylag/greylag/pkg/cluster"
)

// bursting returns full with all pending jobs opted in, and 40 offers; different gives each job a time limit of its own.
func bursting(pending int, different bool) *cluster.Snapshot {
	snap := full(1250, 8, pending, 7)
	policy := *snap.Policy
	policy.Partitions = append(slices.Clone(policy.Partitions), cluster.Partition{Name: "cloud", Nodes: []string{cluster.LeasedNodes}})
	policy.QOS = slices.Clone(policy.QOS)
	for i := range policy.QOS {
		policy.QOS[i].BurstValue = cluster.OneUnit / 1000 // too little for any offer
	}
	policy.Burst.On = true
	snap.Policy = &policy
	view := &cluster.BurstView{Left: map[string]int64{"": 1_000_000 * cluster.OneUnit}}
	for i := range 40 {
		view.Offers = append(view.Offers, &cluster.Offer{
			Name: fmt.Sprintf("t%d/zone%d", i%8, i/8), Market: cluster.Spot + cluster.Market(i%2), Region: "us", Price: int64(2+i%8) * cluster.OneUnit,
			PricedAt: start, CPUs: 96, Memory: cluster.TiB, GPUs: int32(1 + i%8), GPUType: "h100", Boot: time.Duration(3+i%5) * time.Minute,
		})
	}
	snap.Burst = view
	for i, j := range snap.Pending {
		optIn(j)
		if different {
			j.Spec.TimeLimit += time.Duration(i) * time.Second
		}
	}
	return snap
}

func optIn(j *cluster.Job) {
	j.Spec.OtherPartitions, j.Spec.Burst.Mode = []string{"cloud"}, cluster.BurstAllow
}

// BenchmarkBurst makes a pass after one event over 10,000 pending jobs that all may run on cloud nodes. burst/rest is the time
// of the burst step divided by that of the rest of the pass.
func BenchmarkBurst(b *testing.B) {
	for _, different := range []bool{false, true} {
		b.Run(fmt.Sprintf("different=%v", different), func(b *testing.B) {
			snap := bursting(10_000, different)
			p := NewPlanner()
			p.Pass(snap)
			r, id := rand.New(rand.NewPCG(1, 2)), cluster.JobID(10_000_000)
			var step, all time.Duration
			for b.Loop() {
				next := *snap
				next.Index++
				next.Now += cluster.Instant(time.Second)
				if next.Index%2 == 0 {
					i := r.IntN(len(snap.Active))
					next.Active = slices.Delete(slices.Clone(snap.Active), i, i+1)
				} else {
					added := queued(r, id, 8)
					optIn(added)
					next.Pending = append(slices.Clone(snap.Pending), added)
					id++
				}
				began := time.Now()
				d, took := timedPass(p, &next)
				all += time.Since(began)
				step += took
				if len(d.Plan.Launches) > 0 {
					b.Fatal(d.Plan.Launches)
				}
				snap = started(&next, d)
			}
			b.ReportMetric(float64(step)/float64(all-step), "burst/rest")
			b.ReportMetric(float64(step.Microseconds())/float64(b.N), "burst-us/op")
		})
	}
}

// timedPass makes a pass as [Planner.Pass], where nothing is preempted, and measures its burst step.
func timedPass(p *Planner, snap *cluster.Snapshot) (Decision, time.Duration) {
	c := p.schedule.Begin(snap)
	for planned := false; !planned; {
		c.Eligible()
		c.Order()
		planned = c.Plan()
	}
	c.Reclaim()
	p.preempt(c)
	c.Grow()
	began := time.Now()
	launches, _ := p.leasing.decide(c, true)
	took := time.Since(began)
	d := Decision{Plan: cluster.Plan{Starts: c.Starts, Launches: launches, Verdicts: explain.Verdicts(c)}}
	c.End()
	return d, took
}
