package reliability

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// modelOf returns the model of a scenario.
func modelOf(t *testing.T, name string) *Model {
	m := Default()
	for _, s := range Scenarios() {
		if s.Name != name {
			continue
		}
		if err := m.Set(s.Words); err != nil {
			t.Fatal(err)
		}
		return &m
	}
	t.Fatalf("no scenario %q", name)
	return nil
}

// runSeeds runs seeds of a scenario with a check after every command.
func runSeeds(t *testing.T, name string, seeds Range) *Summary {
	m, p := modelOf(t, name), cluster.DefaultPolicy()
	runs, err := RunSeeds(m, &p, seeds, 1, nil)
	if err != nil {
		t.Fatalf("%v\nreplay: gsim reliability --scenario %s --check-every 1 --seeds SEED", err, name)
	}
	return Summarize(m, runs)
}

// TestDozenSeeds runs a dozen seeds with every check: random failures, and preemption on full nodes.
func TestDozenSeeds(t *testing.T) {
	s := runSeeds(t, "small", Range{1, 9})
	if s.Effective.Min < 0.9 || s.GangFailures < 2 || s.GangHeld > 0 || s.GangFailed > 0 {
		t.Errorf("%+v", s)
	}
	if most := (30*time.Minute + 10*time.Second).Seconds(); s.Repeated.Max > most {
		t.Errorf("a failure destroyed %.0f s of work, at most %.0f can be unsaved", s.Repeated.Max, most)
	}
	s = runSeeds(t, "small-storm", Range{10, 12})
	if s.Preempted == 0 || s.NotStarted > 0 || s.MostPreempt > 3 {
		t.Errorf("%+v", s)
	}
}

// TestElasticJobs: elastic jobs among rigid ones grow, shrink and lose nodes, with every check.
func TestElasticJobs(t *testing.T) {
	m, p := modelOf(t, "small-elastic"), cluster.DefaultPolicy()
	runs, err := RunSeeds(m, &p, Range{1, 12}, 1, nil)
	if err == nil { // with a node that leaves a job before its task has started
		_, err = RunSeeds(m, &p, Range{108, 108}, 1, nil)
	}
	if err != nil {
		t.Fatalf("%v\nreplay: gsim reliability --scenario small-elastic --check-every 1 --seeds SEED", err)
	}
	joined, left := 0, 0
	for _, r := range runs {
		joined, left = joined+r.Joined, left+r.Left
	}
	if s := Summarize(m, runs); joined < 20 || left < 20 || s.NotStarted > 0 || s.MostPreempt > 3 {
		t.Errorf("%d nodes joined, %d left: %+v", joined, left, s)
	}
}

// TestSameSeed: the same seed gives the same results.
func TestSameSeed(t *testing.T) {
	m, p := modelOf(t, "small-storm"), cluster.DefaultPolicy()
	var results []*Result
	for range 2 {
		r, err := Run(m, &p, 3, 0)
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, r)
	}
	if !reflect.DeepEqual(results[0], results[1]) {
		t.Errorf("%+v\n%+v", results[0], results[1])
	}
}

// TestLeafOutage: not more nodes are drained than the breaker allows, and all are back at the end.
func TestLeafOutage(t *testing.T) {
	m, p := modelOf(t, "leaf"), cluster.DefaultPolicy()
	r, err := Run(m, &p, 1, 100)
	if err != nil {
		t.Fatal(err)
	}
	if r.MostDrained != cluster.DrainsAllowed(m.Nodes) || r.Drained != 0 || r.GangCause[causeLeaf] == 0 || r.GangFailed > 0 {
		t.Errorf("%+v", r)
	}
}

// TestLeaderAtEachStep changes the leader after each command from the loss of a node to the restart of its job:
// the job ends in the same state as without a change.
func TestLeaderAtEachStep(t *testing.T) {
	m, p := Default(), cluster.DefaultPolicy()
	if err := m.Set("nodes=8,leaf-nodes=8,rack-nodes=8,gang=3,spare=2,days=90m,interval=20m,loss-every=1h,damaged=0"); err != nil {
		t.Fatal(err)
	}
	for _, how := range []string{"exit=0,silent=0,hang=0", "exit=1,silent=0,hang=0", "exit=0,silent=1,hang=0"} {
		if err := m.Set(how); err != nil {
			t.Fatal(err)
		}
		want, steps := lossWithLeader(t, &m, &p, 0)
		if !strings.HasPrefix(want, "RUNNING attempt") || steps < 25 {
			t.Fatalf("%s, %d commands", want, steps)
		}
		for at := 1; at <= steps; at++ {
			if got, _ := lossWithLeader(t, &m, &p, at); got != want {
				t.Errorf("%s: leader changed after command %d: %s, want %s", how, at, got, want)
			}
		}
	}
}

// lossWithLeader runs a loss with another leader after a command, and returns the end state of the large job and
// the number of commands.
func lossWithLeader(t *testing.T, m *Model, p *cluster.Policy, at int) (state string, commands int) {
	x, err := newSimulation(m, p, 5, 1)
	if err != nil {
		t.Fatal(err)
	}
	x.elect = at
	if err := x.run(); err != nil {
		t.Fatal(err)
	}
	j, _ := x.State.View().Job(x.slots[0].job)
	return fmt.Sprintf("%s attempt %d, restarts: %s, %d failures, %d checkpoints", j.State, j.Attempt, j.Causes.Words(), j.Failures, len(j.Checkpoints)), x.r.Commands
}

// TestModelWords reads words, writes them, and refuses wrong ones.
func TestModelWords(t *testing.T) {
	m := Default()
	if err := m.Set("rate=21, load=5m,leaf=5%,days=7d"); err != nil || m.Rate != 21 || m.Load != 5*time.Minute || m.Leaf != 0.05 || m.Days != 7*day {
		t.Fatalf("%+v, %v", m, err)
	}
	again := Default()
	if err := again.Set(m.String()); err != nil || again != m {
		t.Errorf("%s: %v", m.String(), err)
	}
	for text, says := range map[string]string{
		"rates=1": "is not one of", "rate=-1": "want a number", "load=x": "want a time", "nodes=x": "whole number", "nodes=0": "nodes=0",
		"gang=300": "exceed", "exit=90%,silent=20%": "exit + silent + hang = 1.15: want at most 1", "interval=1s": "at least 1m",
	} {
		m := Default()
		if err := m.Set(text); !errors.Is(err, ErrModel) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
	doubled := m.DoubleEach()
	if len(doubled) < 15 || doubled[0].Name != "announced" || doubled[0].To != "1h0m0s" {
		t.Errorf("%+v", doubled)
	}
}
