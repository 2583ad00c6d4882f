package schedule_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/schedule"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// arena is a site whose QOS preempt each other downwards.
type arena struct {
	site
	asked   map[cluster.JobID]cluster.Instant // the job that last preempted others, and when
	gone    int                               // evictions
	extra   int                               // evictions of jobs with extra nodes
	left    []string                          // nodes of the evicted jobs, one entry for each job on it
	useless int                               // preemptions whose job did not start in time
	broken  int                               // promises of other jobs that were delayed
	slow    time.Duration                     // how long nodes are not clean after the end of a job
	slowOn  string                            // the only slow node; "" for all
}

func newArena(t *testing.T) *arena {
	x := &arena{site: site{t: t, s: state.New(), now: 1, plan: schedule.NewPlanner()}, asked: map[cluster.JobID]cluster.Instant{}}
	policy := cluster.DefaultPolicy()
	policy.KillWait, policy.PreemptExempt = 10*time.Second, 0
	policy.QOS = []cluster.QOS{
		{Name: "high", Tier: 5, Preempts: []string{"mid", "low"}, Open: true},
		{Name: "mid", Tier: 3, Preempts: []string{"low"}, PreemptMode: cluster.PreemptRequeue, Open: true},
		{Name: "low", Tier: 1, PreemptMode: cluster.PreemptRequeue, Open: true},
	}
	policy.DefaultQOS = "low"
	x.apply(&command.Init{ClusterID: "test", Policy: policy})
	for n := range 4 {
		x.do([]string{"node", fmt.Sprint("n", n), "gpus=4", "type=h100"})
	}
	return x
}

// submit submits a job of random size and limit.
func (x *arena) submit(r *rand.Rand) {
	x.give(cluster.JobSpec{
		QOS: []string{"high", "mid", "low", "low", "low"}[r.IntN(5)], Requeue: r.IntN(4) > 0,
		TimeLimit: time.Duration(1+r.IntN(90)) * time.Minute,
		Request:   cluster.Request{Nodes: 1 + r.Int32N(2), GPUsPerNode: 1 + r.Int32N(4)},
		Signal:    cluster.WarnSignal{Number: 10 * r.Int32N(2), Before: time.Duration(r.IntN(7)) * 10 * time.Second},
	})
}

// give submits a job.
func (x *arena) give(spec cluster.JobSpec) {
	spec.Name, spec.WorkDir = "j", "/"
	who := command.Actor{Identity: cluster.Identity{User: "ada", UID: 1000, GID: 100}}
	x.apply(&command.SubmitJobs{Actor: who, Jobs: []command.Submission{{Spec: spec}}})
}

// decide makes a pass, commits it, and records what preemption did. It reports whether another pass
// follows at once.
func (x *arena) decide() (more bool) {
	before := x.s.View()
	snap := before.Snapshot()
	snap.Now = x.now
	d := x.plan.Pass(snap)
	for _, e := range d.Plan.Evictions {
		victim, _ := before.Job(e.Job)
		by, _ := before.Job(e.For)
		if !before.Policy().MayPreempt(by.Spec.QOS, victim.Spec.QOS) || by.State != cluster.Pending {
			x.t.Fatalf("job %d (%s, %s) may not preempt %d (%s)", by.ID, by.Spec.QOS, by.State, victim.ID, victim.Spec.QOS)
		}
		x.gone++
		if len(victim.ExtraRanks()) > 0 {
			x.extra++
		}
		x.asked[e.For] = x.now
		for _, n := range victim.Alloc.Nodes {
			x.left = append(x.left, n.Node)
		}
	}
	x.apply(&command.CommitPlan{Plan: d.Plan})
	for _, s := range d.Plan.Starts {
		delete(x.asked, s.Job)
	}
	for id, since := range x.asked {
		if x.now.Sub(since) > 2*time.Minute { // one for victims with a signal, and one to clean up
			x.useless++
			delete(x.asked, id)
		}
	}
	for _, old := range snap.Pending {
		j, _ := x.s.View().Job(old.ID)
		if old.Promise != nil && j.State == cluster.Pending && (j.Promise == nil || j.Promise.At > old.Promise.At) {
			x.broken++
		}
	}
	return d.More || len(d.Plan.Starts)+len(d.Plan.Evictions) > 0
}

// clean has every node report: all tasks run, and those that should end have ended.
func (x *arena) clean() {
	v := x.s.View()
	for n := range v.Nodes() {
		r := &command.ReportTasks{Node: n.Name, Epoch: n.Epoch, Seen: x.index}
		for j := range v.OnNode(n.Name) {
			task := cluster.Task{Node: n.Name, Phase: cluster.TaskStarted}
			if j.State == cluster.Completing && (x.now >= j.Ended.Add(x.slow) || x.slowOn != "" && x.slowOn != n.Name) {
				task = cluster.Task{Node: n.Name, Phase: cluster.TaskClean, Cause: cluster.Stopped}
			}
			report := command.TaskReport{Job: j.ID, Attempt: j.Attempt, Task: task}
			if j.Members != nil {
				rank := slices.IndexFunc(j.Alloc.Nodes, func(a cluster.NodeAllocation) bool { return a.Node == n.Name })
				if report.Granted = j.Members.List[rank].Granted; j.Members.List[rank].Stops {
					report.Task.Phase, report.Task.Cause = cluster.TaskClean, cluster.Stopped
				}
			}
			r.Tasks = append(r.Tasks, report)
		}
		x.apply(r)
	}
}

// TestPreemption submits jobs of three tiers for hours. Only lower tiers are preempted, no promise
// is delayed by it, and the preempting job starts.
func TestPreemption(t *testing.T) {
	evicted := 0
	for seed := range uint64(8) {
		x := newArena(t)
		r := rand.New(rand.NewPCG(seed, 11))
		for range 450 {
			x.now = x.now.Add(10 * time.Second)
			x.apply(&command.Tick{})
			if r.IntN(12) == 0 {
				x.submit(r)
			}
			x.clean()
			x.decide()
		}
		if x.broken > 0 || x.useless > 0 {
			t.Errorf("seed %d: of %d evictions %d were useless; %d promises were delayed", seed, x.gone, x.useless, x.broken)
		}
		evicted += x.gone
	}
	if evicted < 50 {
		t.Errorf("only %d evictions", evicted)
	}
	t.Logf("%d evictions", evicted)
}

// TestPreemptionComesToRest has more jobs that may preempt than fit: once those that fit run, 100
// passes end no job.
func TestPreemptionComesToRest(t *testing.T) {
	x := newArena(t)
	r := rand.New(rand.NewPCG(1, 1))
	for range 60 {
		x.submit(r)
	}
	for range 30 {
		x.now = x.now.Add(time.Second)
		x.clean()
		x.decide()
	}
	gone := x.gone
	for range 100 {
		x.now = x.now.Add(100 * time.Millisecond)
		x.clean()
		x.decide()
	}
	if x.gone != gone {
		t.Errorf("%d evictions although nothing changed", x.gone-gone)
	}
}

// pass lets time pass in steps, each with its reports and its pass.
func (x *arena) pass(steps int, each time.Duration) {
	for range steps {
		x.now = x.now.Add(each)
		x.apply(&command.Tick{})
		x.clean()
		x.decide()
	}
}

// states counts the jobs of a QOS by state.
func (x *arena) states(qos string) map[cluster.JobState]int {
	count := map[cluster.JobState]int{}
	for j := range x.s.View().Jobs(0) {
		if j.Spec.QOS == qos {
			count[j.State]++
		}
	}
	return count
}

// TestGuestsAreEvictedWhereNeeded has 32 guests of one GPU on four nodes of eight. Two owners of
// eight GPUs may use two of these nodes: exactly 16 guests end, all on those nodes. They are
// pending again, and within a day all 32 have run.
func TestGuestsAreEvictedWhereNeeded(t *testing.T) {
	x := newArena(t)
	for n := range 4 {
		x.do([]string{"node", fmt.Sprint("n", n), "gpus=8", "type=h100"})
	}
	policy := *x.s.View().Policy()
	policy.Partitions = append(policy.Partitions[:1:1], cluster.Partition{Name: "home", Nodes: []string{"n[0-1]"}})
	x.apply(&command.ApplyPolicy{Actor: operator, Policy: policy})
	for range 32 {
		x.give(cluster.JobSpec{QOS: "low", Requeue: true, TimeLimit: 6 * time.Hour, Request: cluster.Request{Nodes: 1, GPUsPerNode: 1}})
	}
	x.pass(60, time.Second)
	for range 2 {
		x.give(cluster.JobSpec{QOS: "high", Partition: "home", TimeLimit: time.Hour, Request: cluster.Request{Nodes: 1, GPUsPerNode: 8}})
	}
	x.pass(60, time.Second)
	for _, n := range x.left {
		if n != "n0" && n != "n1" {
			t.Errorf("a guest of %s went", n)
		}
	}
	if owners, guests := x.states("high"), x.states("low"); x.gone != 16 || owners[cluster.Running] != 2 || guests[cluster.Running] != 16 || guests[cluster.Pending] != 16 {
		t.Errorf("%d went; owners %v, guests %v", x.gone, owners, guests)
	}
	x.pass(24*60, time.Minute)
	if guests := x.states("low"); x.gone != 16 || guests[cluster.Pending]+guests[cluster.Running] != 0 {
		t.Errorf("after a day %d went, guests %v", x.gone, guests)
	}
}

// TestAGangGoesAndComesBackWhole preempts a gang on eight nodes for one job on one of them. The
// gang is pending as a whole, and has its eight nodes again after it.
func TestAGangGoesAndComesBackWhole(t *testing.T) {
	x := newArena(t)
	for n := range 8 {
		x.do([]string{"node", fmt.Sprint("n", n), "gpus=1", "type=h100"})
	}
	x.give(cluster.JobSpec{QOS: "mid", Requeue: true, TimeLimit: 6 * time.Hour, Request: cluster.Request{Nodes: 8, GPUsPerNode: 1}})
	x.pass(30, time.Second)
	x.give(cluster.JobSpec{QOS: "high", TimeLimit: time.Hour, Request: cluster.Request{Nodes: 1, GPUsPerNode: 1}})
	x.pass(30, time.Second)
	if x.gone != 1 || len(x.left) != 8 || x.states("high")[cluster.Running] != 1 || x.states("mid")[cluster.Pending] != 1 {
		t.Errorf("%d went from %v; high %v, the gang %v", x.gone, x.left, x.states("high"), x.states("mid"))
	}
	x.pass(70, time.Minute)
	if gang, _ := x.s.View().Job(1); gang.State != cluster.Running || gang.Attempt != 2 || len(gang.Alloc.Nodes) != 8 || x.gone != 1 {
		t.Errorf("the gang is %s, attempt %d; %d went", gang.State, gang.Attempt, x.gone)
	}
}
