package sim

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/schedule"
	"github.com/greylag/greylag/pkg/cluster"
)

// PassSize is the cluster on which one pass is measured.
type PassSize struct {
	Nodes, GPUsPerNode, Pending int
	Seed                        uint64
	Queue                       []cluster.JobSpec // in place of drawn jobs, over and over, if any
}

// Quantiles are durations in milliseconds.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// PassTimings is how long passes take on a cluster that is full.
type PassTimings struct {
	Nodes       int       `json:"nodes"`
	GPUsPerNode int       `json:"gpus_per_node"`
	Pending     int       `json:"pending"`
	Full        Quantiles `json:"full_ms"`  // everything is planned, from nothing
	Event       Quantiles `json:"event_ms"` // after one job ended early or one was submitted
	// Replan is the passes in which the policy's replan interval was over, so that all
	// starts that are no promises were put into the present order of priorities. Time
	// brings them, not the event, and they are not in Event.
	Replan      Quantiles `json:"replan_ms"`
	Heap        float64   `json:"heap_mb"` // of the state, the snapshot and the plan
	FullPasses  int       `json:"full_passes"`
	EventPasses int       `json:"event_passes"`
	Planned     int       `json:"planned"` // waiting jobs with a planned start after the full pass
	Started     int       `json:"started"` // by the passes after events
	Moved       int       `json:"moved"`   // planned starts that those brought forward
	Replans     int       `json:"replans"`
}

// How often passes are measured: full ones until they took long enough in all.
const (
	fewestFull  = 3
	mostFull    = 20
	enoughFull  = 5 * time.Second
	events      = 300
	enoughEvent = 60 * time.Second
	fewestEvent = 200
	maxPending  = 1 << 20
)

// MeasurePass measures the production pass on a full cluster: node i runs one job of
// 10 + i×37 mod 480 minutes on all its GPUs, and the queue is drawn with a seed. An
// event is, in turn, a job that ends early and a submission. Between two events a
// second passes.
func MeasurePass(s PassSize, policy *cluster.Policy, progress func(step string)) (*PassTimings, error) {
	if s.Pending < 0 || s.Pending > maxPending || s.GPUsPerNode < 1 {
		return nil, fmt.Errorf("%w: %d pending jobs (0 to %d) on nodes of %d GPUs (at least 1)", ErrRefused, s.Pending, maxPending, s.GPUsPerNode)
	}
	fleet, err := Uniform(s.Nodes, s.GPUsPerNode)
	if err != nil {
		return nil, err
	}
	m := &passMeasure{size: s, rng: rand.New(rand.NewPCG(s.Seed, 1)), out: &PassTimings{Nodes: s.Nodes, GPUsPerNode: s.GPUsPerNode, Pending: s.Pending}}
	progress("filling the nodes")
	if err := m.fill(fleet, policy); err != nil {
		return nil, err
	}
	progress("full passes")
	m.full()
	progress("passes after events")
	if err := m.eventful(); err != nil {
		return nil, err
	}
	m.out.Heap = heapMB()
	runtime.KeepAlive(m)
	return m.out, nil
}

type passMeasure struct {
	*Virtual
	size      PassSize
	rng       *rand.Rand
	submitted int    // jobs of size.Queue so far
	running   []task // one a job: of its first node
	nodes     map[cluster.JobID][]cluster.NodeAllocation
	out       *PassTimings
}

// fill lets every node run a job, and submits the queue.
func (m *passMeasure) fill(f *Machine, policy *cluster.Policy) error {
	v, err := assembled(f, policy, false)
	if err != nil {
		return err
	}
	m.Virtual, m.nodes = v, map[cluster.JobID][]cluster.NodeAllocation{}
	all := make([]int32, m.size.GPUsPerNode)
	for g := range all {
		all[g] = int32(g)
	}
	plan := cluster.Plan{}
	for i := range f.Nodes {
		id, err := m.enqueue(filler(i, m.size.GPUsPerNode))
		if err != nil {
			return err
		}
		where := cluster.NodeAllocation{Node: f.Nodes[i].Name, GPUs: all, CPUs: 1}
		plan.Starts = append(plan.Starts, cluster.PlannedStart{Job: id, Attempt: 1, Placement: cluster.Placement{Nodes: []cluster.NodeAllocation{where}}})
	}
	plan.Index = m.Index
	if err := m.Must(&command.CommitPlan{Plan: plan}); err != nil {
		return err
	}
	if err := m.started(plan.Starts); err != nil {
		return err
	}
	for range m.size.Pending {
		if _, err := m.enqueue(m.next()); err != nil {
			return err
		}
	}
	return nil
}

// next is the job that is submitted next.
func (m *passMeasure) next() cluster.JobSpec {
	if n := len(m.size.Queue); n > 0 {
		m.submitted++
		return m.size.Queue[(m.submitted-1)%n]
	}
	return drawn(m.rng, m.size.Nodes, m.size.GPUsPerNode)
}

func (m *passMeasure) enqueue(spec cluster.JobSpec) (cluster.JobID, error) {
	r, err := m.Apply(m.submission(&spec))
	if err != nil {
		return 0, err
	}
	if a, ok := r.(*command.Submitted); ok {
		return a.First[0], nil
	}
	return 0, RefusalError(r)
}

// started has nodes report the jobs that they were given.
func (m *passMeasure) started(starts []cluster.PlannedStart) error {
	var tasks []task
	for i := range starts {
		s := &starts[i]
		m.nodes[s.Job] = s.Placement.Nodes
		for k := range s.Placement.Nodes {
			t := task{node: s.Placement.Nodes[k].Node, rank: k, job: s.Job, attempt: s.Attempt, phase: cluster.TaskStarted, started: m.Now}
			if tasks = append(tasks, t); k == 0 {
				m.running = append(m.running, t)
			}
		}
	}
	return m.report(tasks)
}

// full measures passes that begin with nothing.
func (m *passMeasure) full() {
	snap := m.State.View().Snapshot()
	var took []time.Duration
	for total := time.Duration(0); len(took) < fewestFull || len(took) < mostFull && total < enoughFull; {
		runtime.GC()
		began := time.Now()
		d := schedule.NewPlanner().Pass(snap)
		took = append(took, time.Since(began))
		total += took[len(took)-1]
		m.out.Planned = d.Stats.Planned
	}
	m.out.FullPasses = len(took)
	m.out.Full = quantiles(took)
}

// eventful measures passes after events, of a planner that made the full plan before.
func (m *passMeasure) eventful() error {
	if err := m.settle(); err != nil {
		return err
	}
	runtime.GC()
	var took, replans []time.Duration
	for total := time.Duration(0); len(took) < events && (len(took) < fewestEvent || total < enoughEvent); {
		m.Now = m.Now.Add(time.Second)
		if err := m.event(len(took) + len(replans)); err != nil {
			return err
		}
		m.took = m.took[:0]
		d, done, err := m.Pass()
		if err != nil {
			return err
		}
		if d.Stats.Full {
			replans = append(replans, m.took[0])
		} else {
			took = append(took, m.took[0])
		}
		total += m.took[0]
		m.out.Started += len(done.Started)
		m.out.Moved += d.Stats.Moved
		if err := m.started(d.Plan.Starts); err != nil {
			return err
		}
	}
	m.out.EventPasses, m.out.Replans = len(took), len(replans)
	m.out.Event, m.out.Replan = quantiles(took), quantiles(replans)
	return nil
}

// settle makes passes until the planner has nothing left to do.
func (m *passMeasure) settle() error {
	for range MaxPasses {
		d, _, err := m.Pass()
		if err != nil {
			return err
		}
		if err := m.started(d.Plan.Starts); err != nil || !d.More {
			return err
		}
	}
	return nil
}

// event ends a job early or submits one.
func (m *passMeasure) event(n int) error {
	if n%2 == 1 || len(m.running) == 0 {
		_, err := m.enqueue(m.next())
		return err
	}
	i := m.rng.IntN(len(m.running))
	t := m.running[i]
	m.running = slices.Delete(m.running, i, i+1)
	tasks := make([]task, len(m.nodes[t.job]))
	for k, a := range m.nodes[t.job] {
		tasks[k] = task{node: a.Node, rank: k, job: t.job, attempt: t.attempt, phase: cluster.TaskClean, started: t.started}
	}
	delete(m.nodes, t.job)
	return m.report(tasks)
}

// heapMB is the memory in use, in MiB.
func heapMB() float64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return float64(s.HeapAlloc) / (1 << 20)
}

func quantiles(took []time.Duration) Quantiles {
	if len(took) == 0 {
		return Quantiles{}
	}
	slices.Sort(took)
	return Quantiles{P50: percentile(took, 50) * 1000, P99: percentile(took, 99) * 1000}
}
