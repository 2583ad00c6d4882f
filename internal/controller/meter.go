package controller

import (
	"slices"
	"sync"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	// meterSpacing is the interval between meterings of running jobs.
	meterSpacing = 30 * time.Second
	// meterBatch is the maximum number of jobs in one command; one command is sent a second at
	// most.
	meterBatch = 5000
)

// run is one attempt of a job.
type run struct {
	job     cluster.JobID
	attempt cluster.Attempt
}

// count is a node's count of a run: its duration since counting began.
type count struct {
	counting uint64
	ran      time.Duration
	over     bool // the task has ended, perhaps before this counting or this term
	at       time.Time
}

// counter adds up a node's counts during this term, across restarts of its daemon.
type counter struct {
	last count
	sum  time.Duration
}

// meter records for how long nodes have had the tasks of jobs in this term. The ledger already has
// earlier time. A change of leaders may lose a little, in favour of the payer; it matters only if
// the node is lost.
type meter struct {
	mu    sync.Mutex
	since time.Time
	runs  map[run]map[string]*counter
	epoch uint64 // of the samples: log time at the start of the term
	round uint64
}

func (m *meter) open(now time.Time) {
	m.since, m.runs = now, map[run]map[string]*counter{}
}

// record adds a node's count. A counter grows by at most the elapsed time, and not by the count of an
// ended task that may have been counted before: the node's report has it.
func (m *meter) record(r run, node string, c count) {
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

// between limits d to the range from 0 to most.
func between(d, most time.Duration) time.Duration { return max(0, min(d, most)) }

// agreed returns for how long all nodes of a job have had its present attempt since an instant, when it got these nodes.
func (m *meter) agreed(j *cluster.Job, since cluster.Instant) time.Duration {
	nodes := m.runs[run{j.ID, j.Attempt}]
	var least time.Duration
	for i := range j.Alloc.Nodes {
		c := nodes[j.Alloc.Nodes[i].Node]
		if c == nil {
			return 0
		}
		ran := c.sum
		if j.Members != nil {
			counted := max(j.Members.List[i].Joined, cluster.InstantOf(m.since))
			ran -= max(0, since.Sub(counted)) // on other nodes
		}
		if i == 0 || ran < least {
			least = ran
		}
	}
	return least
}

// leave drops the counters of nodes that an elastic job no longer has: another membership is counted from 0 again.
func (m *meter) leave(j *cluster.Job) {
	for node := range m.runs[run{j.ID, j.Attempt}] {
		if !slices.ContainsFunc(j.Alloc.Nodes, func(a cluster.NodeAllocation) bool { return a.Node == node }) {
			delete(m.runs[run{j.ID, j.Attempt}], node)
		}
	}
}

// samples returns those of all paid runs, and drops ended runs.
func (m *meter) samples(v *state.View) []command.JobSample {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.round++; m.round == 1 {
		m.epoch = uint64(v.Now())
	}
	var all []command.JobSample
	for n := range v.Credits().OpenLiens() {
		j, active := v.Job(n.ID.Job)
		if !active || j.Alloc == nil || j.Attempt != n.ID.Attempt || len(n.Segments) == 0 {
			continue
		}
		if j.Members != nil {
			m.leave(j)
		}
		last := len(n.Segments) - 1
		if ran := m.agreed(j, n.Segments[last].Since); ran > 0 {
			all = append(all, command.JobSample{
				Job: j.ID, Attempt: j.Attempt, Epoch: m.epoch, Number: m.round,
				GPUms: accounting.Millis(n.Segments[last].GPUs, ran), Segment: uint32(last),
			})
		}
	}
	for r := range m.runs {
		if j, active := v.Job(r.job); !active || j.Attempt != r.attempt || !j.State.HasAllocation() {
			delete(m.runs, r)
		}
	}
	return all
}

// meterJobs periodically proposes how long jobs have run.
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
				t.log.Warn("jobs were not metered", "err", err, "retry_in", meterSpacing)
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
