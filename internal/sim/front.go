package sim

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// maxSettings is the most settings of one front.
const maxSettings = 10_000

// Setting is the rules that differ between the replays of a front.
type Setting struct {
	FCFS    bool          // in order of submission: every weight is 0
	Age     int64         // the weight of age
	MaxAge  time.Duration // 0 if age has no weight
	Horizon time.Duration // of promises
}

// Grid is the values of each rule that a front combines.
type Grid struct {
	FCFS     []bool
	Ages     []int64
	MaxAges  []time.Duration
	Horizons []time.Duration
}

// Settings returns each combination once: without a weight of age its maximum has no effect. It
// refuses a grid of no or of too many settings.
func (g *Grid) Settings() ([]Setting, error) {
	n := len(g.FCFS) * len(g.Horizons) * len(g.Ages) * len(g.MaxAges)
	if n == 0 || n > maxSettings {
		return nil, fmt.Errorf("%w: a front has 1 to %d settings, not %d", ErrRefused, maxSettings, n)
	}
	var all []Setting
	seen := map[Setting]bool{}
	for _, fcfs := range g.FCFS {
		for _, age := range g.Ages {
			for _, maxAge := range g.MaxAges {
				for _, horizon := range g.Horizons {
					s := Setting{fcfs, age, maxAge, horizon}
					if fcfs {
						s.Age = 0
					}
					if s.Age == 0 {
						s.MaxAge = 0
					}
					if !seen[s] {
						seen[s] = true
						all = append(all, s)
					}
				}
			}
		}
	}
	return all, nil
}

// applyTo returns a policy with the setting. It refuses what a policy file may not have.
func (s Setting) applyTo(p cluster.Policy) (cluster.Policy, error) {
	w := &p.Scheduling.Weights
	if s.FCFS {
		*w = cluster.Weights{}
	} else if w.Age = s.Age; s.Age != 0 {
		w.MaxAge = s.MaxAge
	}
	p.Scheduling.PromiseHorizon = s.Horizon
	for _, f := range p.Faults() {
		return p, fmt.Errorf("%w: %s", ErrRefused, f.Problem)
	}
	return p, nil
}

// FrontRow is a setting and the figures of its replay.
type FrontRow struct {
	Setting   Setting
	Slowdown  float64 // mean bounded slowdown
	WorstWait time.Duration
	Jain      float64
	Promises  Promises
	OnFront   bool // no other row dominates it
}

// dominates reports whether r is at least as good as o in slowdown, worst wait and Jain index, and
// better in one of them.
func (r *FrontRow) dominates(o *FrontRow) bool {
	if r.Slowdown > o.Slowdown || r.WorstWait > o.WorstWait || r.Jain < o.Jain {
		return false
	}
	return r.Slowdown < o.Slowdown || r.WorstWait < o.WorstWait || r.Jain > o.Jain
}

// MarkFront sets OnFront of each row. O(rows²).
func MarkFront(rows []FrontRow) {
	for i := range rows {
		rows[i].OnFront = true
		for k := range rows {
			if rows[k].dominates(&rows[i]) {
				rows[i].OnFront = false
				break
			}
		}
	}
}

// ReplayFront replays a workload once with each setting, on all cores, and marks the front. The rows
// are in the order of the settings, whatever the number of cores. It calls progress, one call at a
// time, with the number of replays that ended.
func ReplayFront(f *Machine, base *cluster.Policy, jobs []Job, settings []Setting, progress func(done int)) ([]FrontRow, error) {
	policies := make([]cluster.Policy, len(settings))
	for i, s := range settings {
		var err error
		if policies[i], err = s.applyTo(*base); err != nil {
			return nil, err
		}
	}
	rows, errs := make([]FrontRow, len(settings)), make([]error, len(settings))
	var next atomic.Int64
	var failed atomic.Bool
	var reporting sync.Mutex
	done := 0
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(settings)) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(settings) && !failed.Load(); i = int(next.Add(1)) - 1 {
				out, err := Replay(f, &policies[i], jobs, Options{})
				if err != nil {
					errs[i] = err
					failed.Store(true)
					return
				}
				s := Summarise(out)
				rows[i] = FrontRow{
					Setting: settings[i], Slowdown: s.Slowdown, Jain: s.Fairness.Jain, Promises: s.Promises,
					WorstWait: time.Duration(s.Wait.Max * float64(time.Second)).Round(time.Millisecond),
				}
				reporting.Lock()
				done++
				progress(done)
				reporting.Unlock()
			}
		})
	}
	workers.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	MarkFront(rows)
	return rows, nil
}
