package trace

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"time"
)

// Workload is a workload of multi-node CPU jobs to generate: widths of 2^k nodes, up to all of them,
// with probability proportional to 2^(-k/2). A job takes all CPUs of its nodes. Run times are a minute
// to 20,000 s, uniform on a logarithmic scale; jobs request one, two or four times as long. Arrivals
// have a daily cycle.
type Workload struct {
	Jobs        int
	Nodes       int
	CPUsPerNode int
	Load        float64 // of the nodes: the work that arrives per unit of time
	Seed        uint64
}

// Bounds of a generated workload.
const (
	shortest = 60.0 // s
	longest  = 20_000.0
	users    = 64
	day      = 86_400.0
	swing    = 0.5 // the rate of arrivals is 1-swing to 1+swing times its mean
)

// ErrWorkload is returned for a workload that cannot be generated.
var ErrWorkload = errors.New("cannot generate the workload")

// Generate returns the jobs of a workload, in order of submission. The same seed gives the same jobs.
func (w *Workload) Generate() (*Trace, error) {
	switch {
	case w.Jobs < 1 || w.Jobs > maxJobs:
		return nil, fmt.Errorf("%w: %d jobs (1 to %d)", ErrWorkload, w.Jobs, maxJobs)
	case w.Nodes < 1 || w.CPUsPerNode < 1 || w.Nodes > maxSize/w.CPUsPerNode:
		return nil, fmt.Errorf("%w: %d nodes of %d CPUs (1 to %d CPUs in all)", ErrWorkload, w.Nodes, w.CPUsPerNode, maxSize)
	case !(w.Load > 0 && w.Load <= 100):
		return nil, fmt.Errorf("%w: a load of %g (above 0, at most 100)", ErrWorkload, w.Load)
	}
	r := rand.New(rand.NewPCG(w.Seed, 1))
	widths := NewWidths(w.Nodes)
	meanRun := (longest - shortest) / math.Log(longest/shortest)
	between := widths.mean * meanRun / (w.Load * float64(w.Nodes)) // s between two arrivals on average
	log := &Trace{Jobs: make([]Job, w.Jobs), MaxProcs: int32(w.Nodes * w.CPUsPerNode)}
	now := 0.0
	for i := range log.Jobs {
		for { // thinning (Lewis and Shedler, 1979)
			if !(now <= maxSeconds) {
				return nil, fmt.Errorf("%w: a load of %g spreads %d jobs over more than %d s", ErrWorkload, w.Load, w.Jobs, int64(maxSeconds))
			}
			now += r.ExpFloat64() * between / (1 + swing)
			if r.Float64()*(1+swing) < 1+swing*math.Sin(2*math.Pi*now/day) {
				break
			}
		}
		run := math.Round(shortest * math.Pow(longest/shortest, r.Float64()))
		log.Jobs[i] = Job{
			ID: fmt.Sprint(i + 1), Submit: time.Duration(now) * time.Second, Run: time.Duration(run) * time.Second,
			Procs: widths.Draw(r) * int32(w.CPUsPerNode), Estimate: time.Duration(run) * time.Second << r.IntN(3),
			User: fmt.Sprint(1 + r.IntN(users)), Account: "1",
		}
	}
	return log, nil
}

// Widths is a distribution of the widths of jobs: 2^k nodes, up to all, with a probability proportional
// to 2^(-k/2).
type Widths struct {
	upTo []float64 // sum of the probabilities up to 2^k
	mean float64
}

// NewWidths returns the widths of jobs on a number of nodes, at least 1.
func NewWidths(nodes int) Widths {
	var w Widths
	sum := 0.0
	for k := 0; 1<<k <= nodes; k++ {
		p := math.Pow(2, -float64(k)/2)
		sum += p
		w.upTo = append(w.upTo, sum)
		w.mean += p * float64(int(1)<<k)
	}
	for k := range w.upTo {
		w.upTo[k] /= sum
	}
	w.mean /= sum
	return w
}

// Draw returns a width.
func (w *Widths) Draw(r *rand.Rand) int32 {
	x := r.Float64()
	k := 0
	for k < len(w.upTo)-1 && x >= w.upTo[k] {
		k++
	}
	return 1 << k
}

// WriteSWF writes the jobs in the Standard Workload Format.
func (t *Trace) WriteSWF(out io.Writer) error {
	w := bufio.NewWriter(out)
	fmt.Fprintf(w, "; Version: 2.2\n; MaxJobs: %d\n; MaxProcs: %d\n", len(t.Jobs), t.MaxProcs)
	for i := range t.Jobs {
		j := &t.Jobs[i]
		fmt.Fprintf(w, "%s %d -1 %d %d -1 -1 %d %d -1 1 %s %s -1 -1 -1 -1 -1\n",
			j.ID, int64(j.Submit.Seconds()), int64(j.Run.Seconds()), j.Procs, j.Procs, int64(j.Estimate.Seconds()), j.User, j.Account)
	}
	return w.Flush()
}
