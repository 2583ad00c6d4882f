package sim

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// TestMarkFront compares the front of random rows, many with equal figures, with its definition.
func TestMarkFront(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		rows := make([]FrontRow, r.IntN(12))
		for i := range rows {
			rows[i] = FrontRow{Slowdown: float64(r.IntN(4)), WorstWait: time.Duration(r.IntN(4)), Jain: float64(r.IntN(4)), OnFront: r.IntN(2) == 0}
		}
		MarkFront(rows)
		for i, a := range rows {
			beaten := slices.ContainsFunc(rows, func(b FrontRow) bool {
				asGood := b.Slowdown <= a.Slowdown && b.WorstWait <= a.WorstWait && b.Jain >= a.Jain
				equal := b.Slowdown == a.Slowdown && b.WorstWait == a.WorstWait && b.Jain == a.Jain
				return asGood && !equal
			})
			if a.OnFront == beaten {
				t.Fatalf("row %d of %+v: on the front %t, beaten %t", i, rows, a.OnFront, beaten)
			}
		}
	}
}

// TestGrid: a rule without effect is not varied.
func TestGrid(t *testing.T) {
	g := Grid{FCFS: []bool{false, true}, Ages: []int64{0, 10}, MaxAges: []time.Duration{time.Hour, day2}, Horizons: []time.Duration{0, cluster.Unlimited}}
	got, err := g.Settings()
	want := []Setting{
		{Horizon: 0}, {Horizon: -1}, {Age: 10, MaxAge: time.Hour}, {Age: 10, MaxAge: time.Hour, Horizon: -1},
		{Age: 10, MaxAge: day2}, {Age: 10, MaxAge: day2, Horizon: -1}, {FCFS: true}, {FCFS: true, Horizon: -1},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []Grid{{}, {FCFS: []bool{true}, Ages: make([]int64, maxSettings), MaxAges: make([]time.Duration, 2), Horizons: make([]time.Duration, 1)}} {
		if _, err := bad.Settings(); !errors.Is(err, ErrRefused) {
			t.Error(err)
		}
	}
}

const day2 = 48 * time.Hour

// randomJobs returns n jobs of a few users on a machine of 8 processors.
func randomJobs(n int) []Job {
	r := rand.New(rand.NewPCG(3, 4))
	jobs := make([]Job, n)
	at := Epoch
	for i := range jobs {
		at = at.Add(time.Duration(r.IntN(400)) * time.Second)
		run := time.Duration(1+r.IntN(3000)) * time.Second
		user := uint32(10_001 + r.IntN(5))
		jobs[i] = Job{Name: strconv.Itoa(i), Submit: at, Run: run, Spec: &cluster.JobSpec{
			Name: "job", TimeLimit: run * time.Duration(1+r.IntN(4)), Owner: cluster.Identity{User: strconv.Itoa(int(user)), UID: user, GID: user},
			Request: cluster.Request{Nodes: 1, TasksPerNode: 1, CPUsPerTask: int32(1 + r.IntN(8))},
		}}
	}
	return jobs
}

// TestReplayFront: the rows are those of single replays, on one core and on several.
func TestReplayFront(t *testing.T) {
	jobs, fleet, policy := randomJobs(300), Flat(8), cluster.DefaultPolicy()
	policy.KillWait = 0
	settings := []Setting{{Horizon: time.Hour}, {Age: 1000, MaxAge: time.Hour}, {Age: 100_000, MaxAge: day2, Horizon: -1}, {FCFS: true}}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, cores := range []int{1, 3} {
		runtime.GOMAXPROCS(cores)
		done := make(chan int, len(settings))
		rows, err := ReplayFront(fleet, &policy, jobs, settings, func(n int) { done <- n })
		if err != nil || len(rows) != len(settings) || len(done) != len(settings) {
			t.Fatalf("%d rows, %v", len(rows), err)
		}
		for i, s := range settings {
			p, err := s.applyTo(policy)
			if err != nil {
				t.Fatal(err)
			}
			out, err := Replay(fleet, &p, jobs, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if sum := Summarise(out); rows[i].Setting != s || rows[i].Slowdown != sum.Slowdown || rows[i].Jain != sum.Fairness.Jain || rows[i].WorstWait.Seconds() != sum.Wait.Max {
				t.Errorf("%d cores, row %d: %+v, want %+v", cores, i, rows[i], sum)
			}
		}
		if rows[0].Slowdown == rows[3].Slowdown {
			t.Error("the settings have no effect")
		}
	}
}

// TestReplayFrontRefuses: the limits of weights and times are those of a policy.
func TestReplayFrontRefuses(t *testing.T) {
	policy := cluster.DefaultPolicy()
	for _, s := range []Setting{{Age: -1}, {Age: 1<<40 + 1}, {Age: 1, MaxAge: -1}, {Horizon: -2}} {
		if _, err := ReplayFront(Flat(8), &policy, nil, []Setting{s}, func(int) {}); !errors.Is(err, ErrRefused) {
			t.Errorf("%+v: %v", s, err)
		}
	}
	if _, err := ReplayFront(Flat(8), &policy, nil, []Setting{{Age: 1 << 40, MaxAge: time.Hour}}, func(int) {}); err != nil {
		t.Error(err)
	}
}
