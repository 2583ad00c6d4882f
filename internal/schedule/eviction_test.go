package schedule_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// oneGPU returns a job of a QOS with one GPU.
func oneGPU(qos string, limit time.Duration) cluster.JobSpec {
	return cluster.JobSpec{QOS: qos, Requeue: true, TimeLimit: limit, Request: cluster.Request{Nodes: 1, GPUsPerNode: 1}}
}

// crowd returns an arena with 16 GPUs that jobs of the QOS low have, and four more of them pending.
func crowd(t *testing.T) *arena {
	x := newArena(t)
	for range 20 {
		x.give(oneGPU("low", 6*time.Hour))
	}
	x.pass(60, time.Second)
	return x
}

// bound gives the QOS high a limit, and the policy a horizon.
func (x *arena) bound(limit cluster.Limit, horizon time.Duration) {
	policy := *x.s.View().Policy()
	policy.Scheduling.PromiseHorizon = horizon
	policy.QOS = append([]cluster.QOS{}, policy.QOS...)
	policy.QOS[0].Limits = []cluster.Limit{limit}
	x.apply(&command.ApplyPolicy{Actor: operator, Policy: policy})
}

// TestALimitKeepsFromPreempting has six jobs that may preempt, and a limit of four. Four others
// end, and none for a job that the limit keeps pending.
func TestALimitKeepsFromPreempting(t *testing.T) {
	x := crowd(t)
	x.bound(cluster.Limit{Kind: cluster.MaxJobsPerUser, Value: 4}, time.Hour)
	for range 6 {
		x.give(oneGPU("high", time.Hour))
	}
	x.pass(240, time.Second)
	if x.gone != 4 || x.states("high")[cluster.Running]+x.states("high")[cluster.Configuring] != 4 {
		t.Errorf("%d went; high %v", x.gone, x.states("high"))
	}
}

// TestShortJobsUnderALimitFollowEachOther has 24 jobs of three minutes run four at a time under a
// limit. Each takes the place of the previous one: four others end, no more.
func TestShortJobsUnderALimitFollowEachOther(t *testing.T) {
	x := crowd(t)
	x.bound(cluster.Limit{Kind: cluster.GrpTRES, Resource: cluster.ResourceGPU, Value: 4}, 0)
	for range 24 {
		x.give(oneGPU("high", 3*time.Minute))
	}
	x.pass(2400, time.Second)
	if high := x.states("high"); x.gone != 4 || high[cluster.Pending]+high[cluster.Running] > 0 {
		t.Errorf("%d went; high %v", x.gone, high)
	}
}

// TestAChainTakesItsOwnPlace has six jobs, each after the previous one, which ends long before its
// limit. Others end for the first; each other job starts where the previous one ran, ahead of many
// jobs of a lower tier.
func TestAChainTakesItsOwnPlace(t *testing.T) {
	x := crowd(t)
	for range 20 {
		x.give(oneGPU("low", 6*time.Hour))
	}
	for i := range cluster.JobID(6) {
		spec := oneGPU("high", 3*time.Hour)
		if i > 0 {
			spec.Depends = []cluster.Dependency{{Kind: cluster.AfterAny, Job: cluster.JobRef{ID: 40 + i, Index: cluster.NoIndex}}}
		}
		x.give(spec)
	}
	for i := range cluster.JobID(6) {
		x.pass(180, time.Second)
		x.apply(&command.CancelJobs{Actor: operator, Jobs: []cluster.JobRef{{ID: 41 + i, Index: cluster.NoIndex}}})
	}
	x.pass(60, time.Second)
	if high := x.states("high"); x.gone != 1 || high[cluster.Pending]+high[cluster.Running] > 0 {
		t.Errorf("%d went; high %v", x.gone, high)
	}
}

// TestHopelessPreemptorEndsNoJob has a job that would not fit even if all that it may preempt ended: in 1,000
// passes none does.
func TestHopelessPreemptorEndsNoJob(t *testing.T) {
	x := newArena(t)
	for range 4 {
		x.give(oneGPU("high", 6*time.Hour))
	}
	x.pass(10, time.Second)
	for range 12 {
		x.give(oneGPU("low", 12*time.Hour))
	}
	x.pass(10, time.Second)
	x.give(cluster.JobSpec{QOS: "high", TimeLimit: time.Hour, Request: cluster.Request{Nodes: 4, GPUsPerNode: 4}})
	x.pass(1000, time.Second)
	if high := x.states("high"); x.gone != 0 || high[cluster.Pending] != 1 || x.states("low")[cluster.Running] != 12 {
		t.Errorf("%d went; high %v, low %v", x.gone, high, x.states("low"))
	}
}

// TestPreemptorWaitsForAnExemption has a young job whose end loses less than that of old ones. The preemptor waits
// until it is not exempt any more, and preempts it then.
func TestPreemptorWaitsForAnExemption(t *testing.T) {
	x := newArena(t)
	policy := *x.s.View().Policy()
	policy.PreemptExempt = 10 * time.Minute
	x.apply(&command.ApplyPolicy{Actor: operator, Policy: policy})
	for range 15 {
		x.give(oneGPU("low", 12*time.Hour))
	}
	x.pass(120, time.Minute)
	x.give(oneGPU("low", 12*time.Hour))
	x.pass(8, time.Minute)
	x.give(oneGPU("high", time.Hour))
	x.pass(60, time.Second)
	if x.gone != 0 {
		t.Errorf("%d went although a job is exempt for two minutes more", x.gone)
	}
	x.pass(240, time.Second)
	young, _ := x.s.View().Job(16)
	if x.gone != 1 || young.Preemptions(x.now) != 1 || x.states("high")[cluster.Running] != 1 {
		t.Errorf("%d went; the young job is %s, high %v", x.gone, young.State, x.states("high"))
	}
}

// TestNoOtherJobGetsWhatVictimsLeave preempts jobs on two nodes for one job. One node is clean at once, the other after two
// and a half minutes. A job of ten seconds that would fit meanwhile does not get the first node, not even before the
// preemptor can start.
func TestNoOtherJobGetsWhatVictimsLeave(t *testing.T) {
	for _, signal := range []int32{0, 10} {
		x := newArena(t)
		x.slow, x.slowOn = 150*time.Second, "n1"
		whole := cluster.JobSpec{QOS: "high", TimeLimit: 6 * time.Hour, Request: cluster.Request{Nodes: 2, GPUsPerNode: 4, NodeList: []string{"n2", "n3"}}}
		x.give(whole)
		for _, node := range []string{"n0", "n1"} {
			low := cluster.JobSpec{QOS: "low", Requeue: true, TimeLimit: 6 * time.Hour, Signal: cluster.WarnSignal{Number: signal, Before: 30 * time.Second}}
			low.Request = cluster.Request{Nodes: 1, GPUsPerNode: 4, NodeList: []string{node}}
			x.give(low)
		}
		x.pass(10, time.Second)
		small := oneGPU("low", 10*time.Second)
		small.TimeLimit = 10 * time.Second
		x.give(small)
		x.pass(10, time.Second)
		whole.Request.NodeList = nil
		x.give(whole)
		for range 400 {
			x.pass(1, time.Second)
			high, _ := x.s.View().Job(5)
			if little, _ := x.s.View().Job(4); high.State == cluster.Pending && little.State != cluster.Pending {
				t.Fatalf("signal %d: the small job is %s while the preemptor waits: %s", signal, little.State, high.Detail)
			}
		}
		if high, _ := x.s.View().Job(5); high.State != cluster.Running || x.gone != 2 {
			t.Errorf("signal %d: the preemptor is %s, %d went", signal, high.State, x.gone)
		}
	}
}

// TestPreemptorOfAnUnkillableTask preempts a job whose task outlives SIGKILL: its node drains after a minute, and the
// preemptor starts on another one, whose job it preempts too.
func TestPreemptorOfAnUnkillableTask(t *testing.T) {
	x := newArena(t)
	whole := cluster.JobSpec{QOS: "low", Requeue: true, TimeLimit: 6 * time.Hour, Request: cluster.Request{Nodes: 1, GPUsPerNode: 4}}
	for range 4 {
		x.give(whole)
	}
	x.pass(10, time.Second)
	x.slow = time.Hour // the test reports the end
	whole.QOS = "high"
	x.give(whole)
	x.pass(10, time.Second)
	if x.gone != 1 {
		t.Fatalf("%d went", x.gone)
	}
	node, _ := x.s.View().Node(x.left[0])
	for j := range x.s.View().OnNode(node.Name) {
		task := cluster.Task{Node: node.Name, Phase: cluster.TaskEnded, Cause: cluster.Stopped}
		x.apply(&command.ReportTasks{
			Node: node.Name, Epoch: node.Epoch, Seen: x.index, Conditions: []cluster.Condition{{Cause: "unkillable", Effect: cluster.Drains, Message: "process 7", Job: j.ID}},
			Tasks: []command.TaskReport{{Job: j.ID, Attempt: j.Attempt, Task: task, Stuck: true}},
		})
	}
	x.slow = 0
	x.pass(60, time.Second)
	high, _ := x.s.View().Job(5)
	if high.State != cluster.Running || x.gone != 2 || high.Alloc.Nodes[0].Node == node.Name {
		t.Errorf("the preemptor is %s (%s), %d went", high.State, high.Detail, x.gone)
	}
}

// TestMaxPreemptions preempts one job again and again: three times in 24 hours, then another one that loses more.
func TestMaxPreemptions(t *testing.T) {
	x := newArena(t)
	for range 15 {
		x.give(oneGPU("mid", 96*time.Hour))
	}
	x.give(oneGPU("low", 96*time.Hour))
	x.pass(60, time.Second)
	for n := range 5 {
		x.give(oneGPU("high", 10*time.Minute))
		x.pass(40, time.Minute)
		if low, _ := x.s.View().Job(16); low.Preemptions(x.now) != min(int32(n+1), 3) || x.gone != n+1 {
			t.Errorf("after %d preemptors: low was preempted %d times, %d went", n+1, low.Preemptions(x.now), x.gone)
		}
	}
	x.pass(24, time.Hour)
	x.give(oneGPU("high", 10*time.Minute))
	x.pass(10, time.Minute)
	if low, _ := x.s.View().Job(16); low.Preemptions(x.now) != 1 {
		t.Errorf("a day later low was preempted %d times", low.Preemptions(x.now))
	}
}

// TestNoUselessEviction submits jobs of three tiers for hours, with and without promises and
// limits, on nodes that are clean at once or after a while: each preempting job starts.
func TestNoUselessEviction(t *testing.T) {
	evicted := 0
	for seed := range uint64(12) {
		evicted += preemptFor(t, seed)
	}
	t.Logf("%d evictions", evicted)
	if evicted < 50 {
		t.Errorf("only %d evictions", evicted)
	}
}

// FuzzPreempt does the same for one seed.
func FuzzPreempt(f *testing.F) {
	f.Fuzz(func(t *testing.T, seed uint64) { preemptFor(t, seed) })
}

// preemptFor counts the evictions of a random history, and checks each.
func preemptFor(t *testing.T, seed uint64) int {
	x := newArena(t)
	r := rand.New(rand.NewPCG(seed, 12))
	policy := *x.s.View().Policy()
	policy.Scheduling.PromiseHorizon = []time.Duration{0, time.Hour, cluster.Unlimited}[seed%3]
	policy.PreemptExempt = time.Duration(seed/6%2) * 4 * time.Minute
	policy.QOS = append([]cluster.QOS{}, policy.QOS...)
	limited := seed/3%2 == 1
	if limited {
		policy.QOS[0].Limits = []cluster.Limit{{Kind: cluster.GrpTRES, Resource: cluster.ResourceGPU, Value: 1 + r.Int64N(8)}}
		policy.QOS[1].Limits = []cluster.Limit{{Kind: cluster.MaxJobsPerUser, Value: 1 + r.Int64N(3)}}
	}
	x.apply(&command.ApplyPolicy{Actor: operator, Policy: policy})
	x.slow = time.Duration(r.IntN(3)) * 8 * time.Second
	for range 450 {
		x.now = x.now.Add(10 * time.Second)
		x.apply(&command.Tick{})
		for range r.IntN(12) / 10 {
			x.submit(r)
		}
		x.finish(r)
		x.clean()
		for range 20 {
			if !x.decide() {
				break
			}
		}
	}
	if x.broken > 0 || x.useless > 0 {
		t.Errorf("seed %d (limits %v, horizon %v): of %d evictions %d were useless; %d promises were delayed",
			seed, limited, policy.Scheduling.PromiseHorizon, x.gone, x.useless, x.broken)
	}
	return x.gone
}

// finish cancels a job now and then, as if it had ended.
func (x *arena) finish(r *rand.Rand) {
	for j := range x.s.View().Jobs(0) {
		if j.State != cluster.Pending && r.IntN(200) == 0 {
			x.apply(&command.CancelJobs{Actor: operator, Jobs: []cluster.JobRef{{ID: j.ID, Index: cluster.NoIndex}}})
		}
	}
}
