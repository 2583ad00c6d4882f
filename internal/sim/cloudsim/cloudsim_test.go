package cloudsim

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/internal/sim/trace"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// workload returns random jobs of up to 16 processors.
func workload(seed uint64, n int) []sim.Job {
	r := rand.New(rand.NewPCG(seed, 1))
	jobs := make([]sim.Job, n)
	at := sim.Epoch
	for i := range jobs {
		at = at.Add(time.Duration(r.IntN(600)) * time.Second)
		limit := time.Duration(1+r.IntN(8)) * 30 * time.Minute
		jobs[i] = sim.Job{Name: "job", Submit: at, Run: time.Duration(1 + r.Int64N(int64(limit))), Spec: &cluster.JobSpec{
			Name: "job", Owner: cluster.Identity{User: "ann", UID: 1000, GID: 1000}, TimeLimit: limit,
			Request: cluster.Request{GPUs: int32(1 + r.IntN(16)), TasksPerNode: 1, CPUsPerTask: 1},
		}}
	}
	return jobs
}

func policy() *cluster.Policy {
	p := cluster.DefaultPolicy()
	p.KillWait, p.Burst.MaxNodes = 0, 8
	return &p
}

// TestReplay replays random jobs with a cloud that often fails and takes nodes back: every job ends, no promise is broken, all
// leases end, and the state is consistent after every command.
func TestReplay(t *testing.T) {
	f, err := sim.Uniform(1, 16)
	if err != nil {
		t.Fatal(err)
	}
	kinds := EightProcessors()
	kinds[0].NoCapacity, kinds[0].Offer.Risk, kinds[0].BootMin = 0.3, cluster.OneUnit/2, time.Minute
	p, jobs := EqualJobs(policy(), workload(1, 60))
	r, err := ParseRule("value=8")
	if err != nil {
		t.Fatal(err)
	}
	out, err := Replay(f, r.applyTo(p), jobs, &Options{Kinds: kinds, Seed: 3}, sim.Options{Check: true})
	if err != nil {
		t.Fatal(err)
	}
	s := sim.Summarise(out)
	c := s.Cloud
	if s.Ended != 60 || s.Promises.Broken > 0 || s.Stale > 0 {
		t.Errorf("%d of 60 jobs ended, %d promises broken (%v), %d stale starts", s.Ended, s.Promises.Broken, s.Promises.Causes, s.Stale)
	}
	if c.Leases == 0 || c.Refused == 0 || c.Reclaims == 0 || c.Restarts == 0 || c.Attempts == 0 || c.Cost == 0 {
		t.Errorf("a kind of event never happened: %+v", *c)
	}
	if spent := float64(c.Cost) / cluster.OneUnit; spent > c.Hours*1.001+float64(c.Leases)/60 {
		t.Errorf("%.2f spent on %.2f node-hours at a price of 1", spent, c.Hours)
	}
}

// TestCompare replays one workload with each rule: to lease nodes shortens waits, and the same input has the same result.
func TestCompare(t *testing.T) {
	f, err := sim.Uniform(1, 16)
	if err != nil {
		t.Fatal(err)
	}
	var rules []Named
	for _, word := range []string{"none", "immediate", "queue>2", "wait>1h", "value=1", "value=1"} {
		r, err := ParseRule(word)
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, r)
	}
	p, jobs := EqualJobs(policy(), workload(2, 150))
	rows, err := Compare(f, p, jobs, EightProcessors(), 1, rules, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		s := &rows[i].Summary
		t.Logf("%-10s mean wait %.0f s, %.1f node-hours", rows[i].Name, s.Wait.Mean, s.Cloud.Hours)
		if s.Ended != len(jobs) || s.Promises.Broken > 0 {
			t.Errorf("%s: %d jobs ended, %d promises broken", rows[i].Name, s.Ended, s.Promises.Broken)
		}
		if none := rows[i].Family == None; none != (s.Cloud.Hours == 0) || !none && s.Wait.Mean >= rows[0].Summary.Wait.Mean {
			t.Errorf("%s: mean wait %.0f s with %.1f node-hours", rows[i].Name, s.Wait.Mean, s.Cloud.Hours)
		}
	}
	if a, b := rows[4].Summary, rows[5].Summary; a.Wait != b.Wait || *a.Cloud != *b.Cloud {
		t.Errorf("the same rule twice: %+v, %+v", a.Cloud, b.Cloud)
	}
	if list := Savings(rows, QueueLength); len(list) != 1 || list[0].Other != 2 || rows[list[0].Row].Family != CostBenefit {
		t.Errorf("savings: %+v", list)
	}
}

// TestTrace: on the begin of KTH-SP2 the decision reaches a shorter mean wait than the rule on the length of the queue with
// fewer node-hours.
func TestTrace(t *testing.T) {
	dir := os.Getenv("GREYLAG_TRACES")
	if dir == "" {
		t.Skip("needs GREYLAG_TRACES, the folder with traces/ and oracle/")
	}
	if _, err := os.Stat(filepath.Join(dir, "traces")); err == nil {
		dir = filepath.Join(dir, "traces")
	}
	file, err := os.Open(filepath.Join(dir, "KTH-SP2.sc15.swf.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	log, err := trace.Read(file, trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	log.Jobs = log.Jobs[:1500]
	f, err := sim.Uniform(1, int(log.MaxProcs))
	if err != nil {
		t.Fatal(err)
	}
	base := policy()
	base.Scheduling.Weights, base.Burst.MaxNodes, base.Burst.IdleTime = cluster.Weights{}, 16, 10*time.Minute
	p, jobs := EqualJobs(base, sim.Spread(sim.Workload(log, f, true)))
	queue, _ := ParseRule("queue>10") // the words are right
	value, _ := ParseRule("value=1")
	rows, err := Compare(f, p, jobs, EightProcessors(), 1, []Named{queue, value}, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	a, b := &rows[0].Summary, &rows[1].Summary
	t.Logf("queue>10: %.0f s, %.0f node-hours; value=1: %.0f s, %.0f node-hours", a.Wait.Mean, a.Cloud.Hours, b.Wait.Mean, b.Cloud.Hours)
	if b.Wait.Mean > a.Wait.Mean || b.Cloud.Hours > 0.6*a.Cloud.Hours {
		t.Error("the decision needs more than 60 % of the node-hours, or waits are longer")
	}
}

// TestNeverStarts: a job that no node can run does not keep the simulation from ending, and the nodes of a site have all their
// processors.
func TestNeverStarts(t *testing.T) {
	f, err := sim.Uniform(1, 128)
	if err != nil {
		t.Fatal(err)
	}
	jobs := workload(1, 2)
	for i, processors := range []int32{128, 129} {
		spec := *jobs[i].Spec
		spec.Request.GPUs = processors
		jobs[i].Spec = &spec
	}
	p, jobs := EqualJobs(policy(), jobs)
	rows, err := Compare(f, p, jobs, EightProcessors(), 1, []Named{{Name: "none", Family: None, Rule: Never}}, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	if s := &rows[0].Summary; s.Ended != 1 || s.Never != 1 {
		t.Errorf("%d jobs ended, %d never started, %d were refused", s.Ended, s.Never, s.Refused)
	}
}

// TestNodesThatNeverJoin: a job whose leased nodes never join does not keep the simulation from
// ending.
func TestNodesThatNeverJoin(t *testing.T) {
	f, err := sim.Uniform(1, 8)
	if err != nil {
		t.Fatal(err)
	}
	kinds := EightProcessors()
	kinds[0].Offer.Boot, kinds[0].BootMin = time.Hour, time.Hour
	p, jobs := EqualJobs(policy(), workload(1, 1))
	p = WithCloud(p)
	jobs = bursting(jobs, p)
	only := *jobs[0].Spec
	only.Burst.Mode, only.Partition, only.OtherPartitions = cluster.BurstOnly, CloudPartition, nil
	jobs[0].Spec = &only
	v := sim.NewVirtual(state.New(), sim.Epoch, false)
	if err := v.Assemble(f, p); err != nil {
		t.Fatal(err)
	}
	x := newReplay(v, jobs, &Options{Kinds: kinds, Seed: 1}, sim.Options{})
	if err := x.run(); err != nil {
		t.Fatal(err)
	}
	if s := sim.Summarise(x.outcome(f)); s.Never != 1 || s.Cloud.Leases < manyLaunches {
		t.Errorf("%d jobs never started, %d leases", s.Never, s.Cloud.Leases)
	}
}
