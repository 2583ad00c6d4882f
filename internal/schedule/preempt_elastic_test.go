package schedule_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// elasticJob returns an elastic job of the QOS low.
func elasticJob(least, most, gpus int32, limit time.Duration) cluster.JobSpec {
	return cluster.JobSpec{
		QOS: "low", Requeue: true, TimeLimit: limit, Elastic: cluster.Elastic{Step: 1},
		Request: cluster.Request{Nodes: least, MaxNodes: most, GPUsPerNode: gpus},
	}
}

// TestElasticJobIsPreempted preempts an elastic job with extra nodes for a job that needs three nodes of four.
func TestElasticJobIsPreempted(t *testing.T) {
	for _, most := range []int32{3, 4} {
		x := newArena(t)
		x.give(elasticJob(2, most, 2, 30*time.Minute))
		x.pass(30, time.Second)
		if e, _ := x.s.View().Job(1); e.NodeCount() != int(most) {
			t.Fatalf("the elastic job has %d nodes", e.NodeCount())
		}
		x.give(cluster.JobSpec{QOS: "high", TimeLimit: time.Hour, Request: cluster.Request{Nodes: 3, GPUsPerNode: 4}})
		x.pass(150, time.Second)
		if high := x.states("high"); high[cluster.Running] != 1 || x.gone != 1 {
			t.Errorf("with %d nodes: %d went; high %v", most, x.gone, high)
		}
	}
}

// TestPreemptionAmongElasticJobs is TestPreemption with elastic jobs, which hold extra nodes.
func TestPreemptionAmongElasticJobs(t *testing.T) {
	evicted, extra := 0, 0
	for seed := range uint64(5) {
		x := newArena(t)
		r := rand.New(rand.NewPCG(seed, 13))
		for range 450 {
			x.now = x.now.Add(10 * time.Second)
			x.apply(&command.Tick{})
			switch r.IntN(30) {
			case 0, 1:
				x.submit(r)
			case 2, 3:
				x.give(elasticJob(1, 2+r.Int32N(3), 1+r.Int32N(4), time.Duration(20+r.IntN(90))*time.Minute))
			}
			x.clean()
			x.decide()
		}
		extra += x.extra
		if x.broken > 0 || x.useless > 0 {
			t.Errorf("seed %d: of %d evictions %d were useless; %d promises were delayed", seed, x.gone, x.useless, x.broken)
		}
		evicted += x.gone
	}
	if evicted < 20 || extra == 0 {
		t.Errorf("only %d evictions, %d of jobs with extra nodes", evicted, extra)
	}
	t.Logf("%d evictions, %d of jobs with extra nodes", evicted, extra)
}
