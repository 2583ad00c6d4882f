package sim

import (
	"math"
	"slices"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// Distribution describes durations, in seconds.
type Distribution struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// DistributionOf sorts d and measures it.
func DistributionOf(d []time.Duration) Distribution {
	if len(d) == 0 {
		return Distribution{}
	}
	slices.Sort(d)
	sum := 0.0
	for _, x := range d {
		sum += x.Seconds()
	}
	return Distribution{Mean: sum / float64(len(d)), P50: percentile(d, 50), P90: percentile(d, 90), P99: percentile(d, 99), Max: d[len(d)-1].Seconds()}
}

// percentile interpolates between the two nearest values, as most statistics programs do (Hyndman
// and Fan's definition 7).
func percentile(sorted []time.Duration, p int) float64 {
	at := (len(sorted) - 1) * p
	low, part := at/100, float64(at%100)/100
	high := min(low+1, len(sorted)-1)
	return sorted[low].Seconds()*(1-part) + sorted[high].Seconds()*part
}

// Promises counts the kept and the broken promises.
type Promises struct {
	Made   int            `json:"made"` // to jobs that could not start when they were submitted
	Kept   int            `json:"kept"`
	Broken int            `json:"broken"`
	Causes map[string]int `json:"causes"`
}

// Summary is the figures of a replay. Times are in seconds.
type Summary struct {
	Jobs        int           `json:"jobs"`
	Ended       int           `json:"ended"`
	Waited      int           `json:"waited"` // of these, those that started later than they were submitted
	Refused     int           `json:"refused"`
	Never       int           `json:"never_started"`
	Capacity    int64         `json:"capacity"`    // GPUs, or CPUs if no job has a GPU
	Utilisation float64       `json:"utilisation"` // of the machine, without leased nodes
	Makespan    float64       `json:"makespan"`
	Wait        Distribution  `json:"wait"`
	Slowdown    float64       `json:"mean_bounded_slowdown"` // bound: 10 s
	Promises    Promises      `json:"promises"`
	PlanError   float64       `json:"mean_planned_start_error"` // of jobs that had to wait: start against the first plan
	Fairness    Fairness      `json:"fairness"`
	Placement   Placement     `json:"placement"`
	Pass        PassTimes     `json:"pass"`
	Stale       int           `json:"stale_starts"`
	Faults      *FaultSummary `json:"faults,omitempty"` // of a replay with faults or prices
	Cloud       *CloudSummary `json:"cloud,omitempty"`  // of a replay with a cloud
}

// PassTimes is the durations of passes, in milliseconds.
type PassTimes struct {
	Passes    int     `json:"passes"`
	Replanned int     `json:"replanned"`
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
	Max       float64 `json:"max_ms"`
	Total     float64 `json:"total_ms"`
}

// bound is the least run time in a bounded slowdown (Feitelson et al., "Theory and practice in
// parallel job scheduling", 1997).
const bound = 10 * time.Second

// Summarise measures an outcome. O(jobs log jobs + jobs × nodes of each).
func Summarise(o *Outcome) Summary {
	s := Summary{Jobs: len(o.Results), Stale: o.Stale, Faults: o.Faults, Cloud: o.Cloud, Promises: Promises{Causes: map[string]int{}}}
	if s.Capacity = int64(o.Machine.GPUs()); s.Capacity == 0 || !o.anyGPU() {
		s.Capacity = int64(o.Machine.CPUs())
	}
	var waits []time.Duration
	first, last := cluster.Never, cluster.Instant(0)
	var work, slowdown, wrong float64
	planned := 0
	for i := range o.Results {
		r := &o.Results[i]
		first = min(first, r.Job.Submit)
		s.Promises.count(r)
		switch {
		case r.ID == 0:
			s.Refused++
			continue
		case r.Start == 0:
			s.Never++
			continue
		}
		wait, run := r.Start.Sub(r.Job.Submit), r.End.Sub(r.Start)
		waits = append(waits, wait)
		if wait > 0 {
			s.Waited++
		}
		last = max(last, r.End)
		if !r.OnCloud() {
			work += float64(r.Job.size()) * run.Seconds()
		}
		slowdown += max(1, (wait+run).Seconds()/max(run, bound).Seconds())
		if r.Waited && r.Planned > 0 {
			planned++
			wrong += math.Abs(r.Start.Sub(r.Planned).Seconds())
		}
	}
	s.Ended = len(waits)
	if s.Ended > 0 {
		s.Makespan = last.Sub(first).Seconds()
		s.Utilisation = work / (float64(max(s.Capacity, 1)) * s.Makespan)
		s.Slowdown = slowdown / float64(s.Ended)
		s.PlanError = wrong / float64(max(planned, 1))
	}
	s.Wait = DistributionOf(waits)
	s.Fairness = fairness(o)
	s.Placement = placement(o)
	s.Pass = passTimes(o)
	return s
}

// anyGPU reports whether a job requests a GPU.
func (o *Outcome) anyGPU() bool {
	return slices.ContainsFunc(o.Results, func(r Result) bool { return r.Job.Spec.Request.TotalGPUs() > 0 })
}

func (p *Promises) count(r *Result) {
	switch {
	case r.Broken != "":
		p.Made++
		p.Broken++
		p.Causes[r.Broken]++
	case r.LatestPromise > 0:
		p.Made++
		p.Kept++
	}
}

func passTimes(o *Outcome) PassTimes {
	t := PassTimes{Passes: len(o.Passes), Replanned: o.Replanned}
	if t.Passes == 0 {
		return t
	}
	sorted := slices.Sorted(slices.Values(o.Passes))
	const ms = 1000
	for _, d := range sorted {
		t.Total += d.Seconds() * ms
	}
	t.P50, t.P99, t.Max = percentile(sorted, 50)*ms, percentile(sorted, 99)*ms, sorted[len(sorted)-1].Seconds()*ms
	return t
}
