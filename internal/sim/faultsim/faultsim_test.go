package faultsim

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/internal/sim/faults"
	"github.com/greylag/greylag/internal/sim/trace/tracetest"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// badWeek is a mix in which every fault occurs within a day or two.
const badWeek = "node-mtbf=2d,repair=1h,late-report=0.5,gpu-mtbf=10d,daemon-restart=12h,leader-change=6h,clock-step=2h,admin=20m,fail=0.15,cancel=0.2,preempt=0.1,lost-report=0.05,duplicate=0.1"

// small is a history of some dozens of jobs of three accounts on a few nodes.
func small(t testing.TB, seed uint64, mix faults.Mix, priced bool) (*sim.Machine, *faultSim) {
	t.Helper()
	fleet, err := sim.Uniform(4, 4)
	if err != nil {
		t.Fatal(err)
	}
	trials := &Options{Faults: mix, Seed: seed, Every: 1}
	if priced {
		trials.Prices = map[string]accounting.Credits{"": 2 * accounting.One}
		trials.Grant = 300 * accounting.One
	}
	policy := cluster.DefaultPolicy()
	policy.Scheduling.Weights.Age, policy.Scheduling.Weights.MaxAge = 1000, 7*24*time.Hour // the seeds of the tests were found with these
	log := tracetest.Draw(rand.New(rand.NewPCG(seed, 3)), 60, 10)
	for i := range log.Jobs {
		j := &log.Jobs[i]
		j.Account = []string{"ml", "bio", "chem"}[i%3]
		j.Run, j.Estimate, j.Submit = 10*j.Run, 10*j.Estimate, 10*j.Submit
	}
	x, err := newFaultSim(fleet, &policy, sim.Workload(log, fleet, true), trials, sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return fleet, x
}

func mixOf(t testing.TB, text string) faults.Mix {
	t.Helper()
	m, err := faults.Parse("", text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestTrials: with all faults, every command of every history is checked.
func TestTrials(t *testing.T) {
	kinds := map[string]int{}
	for seed := range uint64(6) {
		_, x := small(t, seed, mixOf(t, badWeek), seed > 0)
		if err := x.run(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		summary := &x.summary
		for k, n := range summary.Faults {
			kinds[k] += n
		}
		switch m := summary.Credits; {
		case summary.Attempts < 20 || summary.Checks.Whole < summary.Checks.Commands || summary.Checks.Rebuilt < 2 || summary.GPUHoursLost <= 0 || summary.GPUHoursLost >= summary.GPUHours:
			t.Errorf("seed %d: %+v", seed, summary)
		case (m != nil) != (seed > 0), m != nil && (m.Held != "0.000000" || m.Charged == "0.000000" || m.Refunded == "0.000000" || summary.Checks.Entries < 100):
			t.Errorf("seed %d: %+v, %+v", seed, summary.Checks, m)
		}
	}
	for _, kind := range []string{
		"nodes_lost", "nodes_back_with_late_reports", "gpus_failed", "daemon_restarts", "leader_changes", "clock_steps", "administrators_changes", "attempts_that_failed",
		"cancellations", "job_changes", "reports_lost", "reports_delivered_twice", "requests_delivered_twice", "samples_delivered_twice", "plans_delivered_twice",
	} {
		if kinds[kind] == 0 {
			t.Errorf("no %s in %v", kind, kinds)
		}
	}
}

// TestElasticTrials: elastic jobs among others grow and shrink, and lose nodes, while every command is checked. In seed
// 145 a floating price changes before the first sample of a segment.
func TestElasticTrials(t *testing.T) {
	kinds := map[string]int{}
	for _, seed := range []uint64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 145} {
		_, x := small(t, seed, mixOf(t, badWeek+",elastic=0.8"), seed%2 > 0)
		if err := x.run(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for k, n := range x.summary.Faults {
			kinds[k] += n
		}
	}
	if kinds["nodes_joined_jobs"] < 10 || kinds["nodes_left_jobs"] < 10 {
		t.Errorf("too few changes of nodes: %v", kinds)
	}
}

// TestLateEnds: nodes that are cut off for minutes report ends late; the time that they counted is
// charged.
func TestLateEnds(t *testing.T) {
	_, x := small(t, 3, mixOf(t, "node-mtbf=1h,repair=4m,late-report=1,leader-change=1h,daemon-restart=2h,lost-report=0.5"), true)
	if err := x.run(); err != nil {
		t.Fatal(err)
	}
	if x.summary.Faults["late_ends"] == 0 {
		t.Errorf("no end was reported late: %v", x.summary.Faults)
	}
}

// TestTrialsOverBudget: what an attempt gets in place of credits that expired under it is at most
// what it had, even if an account has used more than its hard budget, since another was moved below
// it.
func TestTrialsOverBudget(t *testing.T) {
	_, x := small(t, 2154, mixOf(t, badWeek), true)
	if err := x.run(); err != nil {
		t.Fatal(err)
	}
}

// TestTrialsAgain: the same seed makes the same history, another one another; and without faults
// the jobs run as in the log.
func TestTrialsAgain(t *testing.T) {
	var texts []string
	var all []sim.FaultSummary
	for _, seed := range []uint64{3, 3, 4} {
		_, x := small(t, seed, mixOf(t, badWeek), true)
		if err := x.run(); err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := sim.WriteCSV(&b, x.Results); err != nil {
			t.Fatal(err)
		}
		texts, all = append(texts, b.String()), append(all, x.summary)
	}
	if texts[0] != texts[1] || !reflect.DeepEqual(all[0], all[1]) || texts[0] == texts[2] {
		t.Errorf("%+v\n%+v\n%+v", all[0], all[1], all[2])
	}
	_, x := small(t, 1, faults.Mix{}, false)
	if err := x.run(); err != nil {
		t.Fatal(err)
	}
	if x.summary.Attempts != 60 || x.summary.Lost+x.summary.Requeued > 0 || len(x.summary.Faults) > 0 || x.Done != 60 {
		t.Errorf("%+v", x.summary)
	}
}

// FuzzTrials draws histories and mixes of faults.
func FuzzTrials(f *testing.F) {
	for seed := range uint64(2) {
		f.Add(seed, uint16(0xffff), seed > 0)
	}
	f.Fuzz(func(t *testing.T, seed uint64, which uint16, priced bool) {
		var words []string
		for i, word := range strings.Split(badWeek, ",") {
			if which>>i&1 == 1 {
				words = append(words, word)
			}
		}
		_, x := small(t, seed, mixOf(t, strings.Join(words, ",")), priced)
		if err := x.run(); err != nil {
			t.Fatalf("seed %d, %s, priced %t: %v", seed, strings.Join(words, ","), priced, err)
		}
	})
}

// TestViolationsAreFound violates each invariant in the middle of a history; the audit finds it.
func TestViolationsAreFound(t *testing.T) {
	for says, harm := range sabotage {
		_, x := small(t, 5, mixOf(t, badWeek), true)
		done := false
		var try func() error
		try = func() error {
			if done = done || harm(x); !done {
				x.In(time.Minute, try)
			}
			return nil
		}
		x.In(3*time.Hour, try)
		err := x.run()
		if !errors.Is(err, ErrViolation) || !strings.Contains(fmt.Sprint(err), says) {
			t.Errorf("%q was wanted, done: %t, got %v", says, done, err)
		}
	}
}

// TestTrialsOnce: jobs that do not run again leave bills that wait for lost nodes, also at prices
// that were set after the start or fell since; and a late proof is charged beyond a hard budget.
func TestTrialsOnce(t *testing.T) {
	waited := 0
	for _, seed := range []uint64{1, 34, 235, 373} {
		_, x := small(t, seed, mixOf(t, badWeek), true)
		for i := range x.Jobs {
			for _, qos := range []string{"", x.preemptor()} {
				spec := *x.Jobs[i].Spec
				spec.QOS = cmp.Or(qos, spec.QOS)
				x.specs[specKey{of: x.Jobs[i].Spec, qos: qos}] = &spec
			}
		}
		var look func() error
		look = func() error {
			waited += len(x.audit.open)
			x.In(time.Minute, look)
			return nil
		}
		x.In(time.Minute, look)
		if err := x.run(); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
	if waited == 0 {
		t.Error("no bill waited for a node")
	}
}

// TestFinalBills: a bill that waited for a node is at most the time of its attempt, and a violation
// is reported once.
func TestFinalBills(t *testing.T) {
	_, x := small(t, 5, mixOf(t, badWeek), true)
	if err := x.run(); err != nil {
		t.Fatal(err)
	}
	for of, bill := range x.audit.book.Bills {
		if bill.Millis() > 0 {
			x.audit.open[of] = provisional{}
		}
	}
	bills := len(x.audit.open)
	err := x.audit.everything()
	if says := fmt.Sprint(err); bills == 0 || !errors.Is(err, ErrViolation) || strings.Count(says, "violation: ") != min(bills, 10) {
		t.Errorf("%d bills: %v", bills, err)
	}
}

// running returns a running job and its machine.
func running(x *faultSim) (*cluster.Job, *host) {
	for j := range x.State.View().Jobs(0) {
		if h := x.hosts[firstNode(j)]; j.State == cluster.Running && h != nil && h.reachable && len(h.tasks) > 0 {
			return j, h
		}
	}
	return nil, nil
}

func firstNode(j *cluster.Job) string {
	if j.Alloc == nil {
		return ""
	}
	return j.Alloc.Nodes[0].Node
}

// sabotage maps the message of a violation to an action that causes it. Each is tried until it
// returns true.
var sabotage = map[string]func(x *faultSim) bool{
	"I13: at index": func(x *faultSim) bool { // a command that is not in the log
		x.State.Apply(x.Index, x.Now, &command.UpdateNodes{Actor: sim.Administrator(), Names: x.names[:1], Action: command.DrainNodes, Reason: "behind its back"})
		x.State.Effects()
		return true
	},
	"the journal <nil>": func(x *faultSim) bool { // an entry of the journal is lost
		x.State.Apply(x.Index, x.Now, &command.ChangeCredits{Actor: sim.Administrator(), Action: command.GrantCredits, Account: "ml", Class: accounting.Purchase, Amount: accounting.One})
		x.State.Effects()
		return true
	},
	"I2: bucket 1 says": func(x *faultSim) bool { x.audit.book.Buckets[1].Available--; return true },
	"I4: ml is below":   func(x *faultSim) bool { x.audit.parents["ml"] = "elsewhere"; return true },
	"I5: ": func(x *faultSim) bool {
		x.audit.budgets[site] = accounting.Budget{Limit: 1, Hard: true}
		return true
	},
	"I6: attempt": func(x *faultSim) bool {
		for _, b := range x.audit.book.Bills {
			b.Captured++
			return true
		}
		return false
	},
	"I7: attempt": func(x *faultSim) bool {
		for n := range x.State.View().Credits().OpenLiens() {
			x.audit.liens[n.ID] = accounting.Settled
			return true
		}
		return false
	},
	"I11: ": func(x *faultSim) bool {
		if x.last == nil || !x.last.kept {
			return false
		}
		x.last.answer = []byte("another")
		last := x.last
		x.In(0, func() error { return x.repeat(last) })
		return true
	},
	"I14: job": func(x *faultSim) bool {
		j, _ := running(x)
		if j != nil {
			x.audit.jobs[j.ID].charged++
		}
		return j != nil
	},
	"is given to job": func(x *faultSim) bool { // tasks have more than was allocated
		for _, h := range x.hosts {
			for _, t := range h.tasks {
				t.gpus = []int32{0, 1, 2, 3}
			}
		}
		return x.Done > 50 // again and again
	},
	"a second time": func(x *faultSim) bool {
		for id := range x.ResultOf {
			for _, name := range x.names {
				for a := range cluster.Attempt(20) {
					x.begun[attemptOn{sim.TaskID{Job: id, Attempt: a}, name}] = true
				}
			}
		}
		return len(x.ResultOf) > 3
	},
	"runs as attempt": func(x *faultSim) bool {
		for id := range x.ResultOf {
			x.audit.jobs[id].attempt += 7
		}
		return len(x.ResultOf) > 3
	},
}
