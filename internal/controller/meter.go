package controller

import (
	"sync"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	// meterSpacing is how often running jobs are metered.
	meterSpacing = 30 * time.Second
	// meterBatch is how many jobs one command meters; there is one a second at most.
	meterBatch = 5000
)

// run is one attempt of a job.
type run struct {
	job     cluster.JobID
	attempt cluster.Attempt
}

// count is what a node said of a run: for how long it has had it, counted since counting.
type count struct {
	counting uint64
	ran      time.Duration
	over     bool // it ended: perhaps before this counting, or this term
	at       time.Time
}

// counter adds up what a node counted during this term, whatever its daemon went through.
type counter struct {
	last count
	sum  time.Duration
}

// meter is how long nodes have had the tasks of jobs, in this term. What was before it
// the ledger has already; a little may be lost at a change of leaders, which is to the
// advantage of who pays and matters only when the node is lost.
type meter struct {
	mu    sync.Mutex
	since time.Time
	runs  map[run]map[string]*counter
	epoch uint64 // of the samples: log time when the term began
	round uint64
}

func (m *meter) open(now time.Time) {
	m.since, m.runs = now, map[run]map[string]*counter{}
}

// hear takes in what a node said. Nothing grows by more than the time that passed, nor by what
// was counted of a task that is over and may have been heard of before: what the node says of
// such is in its report.
func (m *meter) hear(r run, node string, c count) {
	m.mu.Lock()
	defer m.mu.Unlock()
	nodes := m.runs[r]
	if nodes == nil {
		nodes = map[string]*counter{}
		m.runs[r] = nodes
	}
	was := nodes[node]
	switch {
	case was == nil:
		nodes[node] = &counter{last: c}
		if !c.over {
			nodes[node].sum = between(c.ran, c.at.Sub(m.since))
		}
		return
	case was.last.counting == c.counting:
		was.sum += between(c.ran-was.last.ran, c.at.Sub(was.last.at)+meterSpacing)
	case !c.over:
		was.sum += between(c.ran, c.at.Sub(was.last.at))
	}
	was.last = c
}

// between is d within 0 and most.
func between(d, most time.Duration) time.Duration { return max(0, min(d, most)) }

// agreed is for how long all nodes of an allocation have had a run.
func (m *meter) agreed(r run, alloc *cluster.Allocation) time.Duration {
	nodes := m.runs[r]
	var least time.Duration
	for i := range alloc.Nodes {
		c := nodes[alloc.Nodes[i].Node]
		if c == nil {
			return 0
		}
		if i == 0 || c.sum < least {
			least = c.sum
		}
	}
	return least
}

// samples are those of all runs that are paid for; runs that are over are forgotten.
func (m *meter) samples(v *state.View) []command.JobSample {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.round++; m.round == 1 {
		m.epoch = uint64(v.Now())
	}
	var all []command.JobSample
	for n := range v.Credits().Open() {
		j, active := v.Job(n.ID.Job)
		if !active || j.Alloc == nil || j.Attempt != n.ID.Attempt || len(n.Segments) == 0 {
			continue
		}
		ran := m.agreed(run{j.ID, j.Attempt}, j.Alloc)
		if ran > 0 {
			all = append(all, command.JobSample{
				Job: j.ID, Attempt: j.Attempt, Epoch: m.epoch, Number: m.round,
				GPUms: accounting.Millis(n.Segments[len(n.Segments)-1].GPUs, ran),
			})
		}
	}
	for r := range m.runs {
		if j, active := v.Job(r.job); !active || j.Attempt != r.attempt || !j.State.Holds() {
			delete(m.runs, r)
		}
	}
	return all
}

// meterJobs tells the state now and then how long jobs have run.
func (t *term) meterJobs() {
	ticker := time.NewTicker(meterSpacing)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-t.ctx.Done():
			return
		}
		all := t.meter.samples(t.replica.View())
		for len(all) > 0 {
			n := min(len(all), meterBatch)
			if _, _, err := t.Propose(t.ctx, &command.MeterJobs{Samples: all[:n]}); err != nil {
				t.log.Warn("jobs were not metered", "err", err, "again", meterSpacing)
				break
			}
			if all = all[n:]; len(all) > 0 {
				select {
				case <-time.After(time.Second):
				case <-t.ctx.Done():
					return
				}
			}
		}
	}
}
