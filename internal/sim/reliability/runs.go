package reliability

import (
	"errors"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// Scenario is a named change of the default model.
type Scenario struct {
	Name  string
	Words string // as of [Model.Set]
	About string
}

// Scenarios lists the scenarios of docs/reliability.md.
func Scenarios() []Scenario {
	return []Scenario{
		{"month", "", "200 nodes for 30 days at 6.5 failures per 1,000 node-days"},
		{"low", "rate=2.3", "the same at 2.3"},
		{"harsh", "rate=21", "the same at 21"},
		{"equal", "often=0", "the same at 6.5 without nodes that fail often"},
		{"losses", "days=7d,loss-every=6h", "a week in which the large job loses a node in each 6 hours"},
		{"full", "spare=0,excess=30", "a month without spare nodes: other jobs are pending all the time"},
		{"full-preempt", "spare=0,excess=30,gang-preempts=1", "the same if the large job may preempt others"},
		{"storm", "days=7d,gang=0,spare=0,excess=30,urgent=10%", "a week on full nodes in which each tenth job may preempt the others"},
		{"leaf", "days=2d,leaf-at=12h", "a leaf switch of 32 nodes is down for 10 minutes"},
		{"small", "nodes=40,leaf-nodes=8,gang=16,spare=3,days=4d,rate=60", "40 nodes for 4 days at 60: small enough for a check after every command"},
		{"small-elastic", "nodes=16,leaf-nodes=4,gang=4,spare=2,days=12h,rate=300,elastic=50%,urgent=10%", "16 nodes for 12 hours at 300 with elastic jobs among rigid ones, and preemption"},
		{"small-storm", "nodes=40,leaf-nodes=8,gang=8,spare=0,excess=8,days=2d,rate=60,urgent=20%", "the same on full nodes with preemption"},
	}
}

// Range is the first and the last seed.
type Range struct{ First, Last uint64 }

// SeedError is the error of a run.
type SeedError struct {
	Seed uint64
	Err  error
}

// Error returns the message of the run.
func (e *SeedError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the run.
func (e *SeedError) Unwrap() error { return e.Err }

// RunSeeds runs a model under each seed, on all cores, and returns the results in order of the seeds. The error
// joins one SeedError for each seed whose run failed. Progress, which may be nil, is called after each run.
func RunSeeds(m *Model, policy *cluster.Policy, seeds Range, every int, progress func(done int)) ([]*Result, error) {
	n := int(seeds.Last - seeds.First + 1)
	results, failed := make([]*Result, n), make([]error, n)
	next := make(chan int)
	var group sync.WaitGroup
	var mu sync.Mutex
	done := 0
	for range min(n, runtime.GOMAXPROCS(0)) {
		group.Go(func() {
			for i := range next {
				seed := seeds.First + uint64(i)
				r, err := Run(m, policy, seed, every)
				if results[i] = r; err != nil {
					failed[i] = &SeedError{seed, err}
				}
				mu.Lock()
				if done++; progress != nil {
					progress(done)
				}
				mu.Unlock()
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	group.Wait()
	if err := errors.Join(failed...); err != nil {
		return nil, err
	}
	return results, nil
}

// Shift is how far the results move when one parameter is doubled.
type Shift struct {
	Name     string  `json:"parameter"`
	From     string  `json:"from"`
	To       string  `json:"to"`
	Before   float64 `json:"effective_before"`
	After    float64 `json:"effective_after"`
	Restart  float64 `json:"restart_p50_after"`
	Failures float64 `json:"gang_failures_after"`
	Lost     float64 `json:"lost_percent_after"`
}

// DoubledError is the error of a run with a doubled parameter.
type DoubledError struct {
	Word string // as of [Model.Set]
	Err  error
}

// Error returns the message of the run, with the parameter.
func (e *DoubledError) Error() string { return e.Word + ": " + e.Err.Error() }

// Unwrap returns the error of the run.
func (e *DoubledError) Unwrap() error { return e.Err }

// Shifts runs a model once more for each estimated parameter, with that one doubled.
func Shifts(m *Model, policy *cluster.Policy, seeds Range, progress func(name string)) (*Summary, []Shift, error) {
	runs, err := RunSeeds(m, policy, seeds, 0, nil)
	if err != nil {
		return nil, nil, err
	}
	base := Summarize(m, runs)
	var list []Shift
	for _, d := range m.DoubleEach() {
		if progress != nil {
			progress(d.Name)
		}
		runs, err := RunSeeds(&d.Model, policy, seeds, 0, nil)
		if err != nil {
			return nil, nil, &DoubledError{d.Name + "=" + d.To, err}
		}
		s := Summarize(&d.Model, runs)
		list = append(list, Shift{d.Name, d.From, d.To, base.Effective.Mean, s.Effective.Mean, s.Restarts.P50, s.GangFailures, s.LostPercent()})
	}
	return base, list, nil
}

// LostPercent returns the part of the GPU-hours that failures and preemptions destroyed, in percent. The time for
// checkpoints is Writes.
func (s *Summary) LostPercent() (sum float64) {
	for _, cause := range slices.Sorted(maps.Keys(s.Lost)) {
		sum += s.Lost[cause]
	}
	return sum
}

// Seconds returns a time of a summary.
func Seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Second)
}
