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
	CPUsPerNode                 int // of nodes without GPUs
	Seed                        uint64
	Queue                       []cluster.JobSpec // the pending jobs, used in turn, instead of random ones
}

// Quantiles are durations in milliseconds.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// PassTimings is the durations of passes on a full cluster.
type PassTimings struct {
	Nodes       int       `json:"nodes"`
	GPUsPerNode int       `json:"gpus_per_node"`
	CPUsPerNode int       `json:"cpus_per_node,omitempty"` // of nodes without GPUs
	Pending     int       `json:"pending"`
	Full        Quantiles `json:"full_ms"`  // passes of a new planner
	Event       Quantiles `json:"event_ms"` // after one job ended early or one was submitted
	// Replan is the passes in which the policy's replan interval was over, so that all starts
	// without a promise are planned again. They are not in Event.
	Replan      Quantiles `json:"replan_ms"`
	Heap        float64   `json:"heap_mb"` // of the state, the snapshot and the plan
	FullPasses  int       `json:"full_passes"`
	EventPasses int       `json:"event_passes"`
	Planned     int       `json:"planned"` // pending jobs with a planned start after the full pass
	Started     int       `json:"started"` // by the passes after events
	Moved       int       `json:"moved"`   // planned starts that those passes moved earlier
	Replans     int       `json:"replans"`
}

// NodeSize returns what a node has, in words.
func (t *PassTimings) NodeSize() string {
	if t.GPUsPerNode == 0 {
		return fmt.Sprintf("%d CPUs", t.CPUsPerNode)
	}
	return fmt.Sprintf("%d GPUs", t.GPUsPerNode)
}

// Full passes are measured until they took fullFor together, but at least minFull and at most
// maxFull of them.
const (
	minFull    = 3
	maxFull    = 20
	fullFor    = 5 * time.Second
	events     = 300
	eventsFor  = 60 * time.Second
	minEvents  = 200
	maxPending = 1 << 20
)

// MeasurePass measures the production pass on a full cluster. Node i runs one job of 10 + i×37 mod
// 480 minutes on all its GPUs, or on all its CPUs if it has no GPU. The queue is drawn with a seed. An event is, in turn, a job that
// ends early and a submission. Between two events a second passes.
func MeasurePass(s PassSize, policy *cluster.Policy, progress func(step string)) (*PassTimings, error) {
	if s.Pending < 0 || s.Pending > maxPending || s.GPUsPerNode < 1 && s.CPUsPerNode < 1 {
		return nil, fmt.Errorf("%w: %d pending jobs (0 to %d) on nodes of %d GPUs and %d CPUs (at least one GPU or CPU)", ErrRefused, s.Pending, maxPending, s.GPUsPerNode, s.CPUsPerNode)
	}
	fleet, err := s.fleet()
	if err != nil {
		return nil, err
	}
	m := &passMeasure{size: s, rng: rand.New(rand.NewPCG(s.Seed, 1))}
	m.out = &PassTimings{Nodes: s.Nodes, GPUsPerNode: s.GPUsPerNode, CPUsPerNode: s.CPUsPerNode, Pending: s.Pending}
	progress("filling the nodes")
	if err := m.fill(fleet, policy); err != nil {
		return nil, err
	}
	progress("full passes")
	m.measureFull()
	progress("passes after events")
	if err := m.measureEvents(); err != nil {
		return nil, err
	}
	m.out.Heap = heapMB()
	runtime.KeepAlive(m)
	return m.out, nil
}

// fleet returns the nodes.
func (s *PassSize) fleet() (*Machine, error) {
	if s.GPUsPerNode > 0 {
		return Uniform(s.Nodes, s.GPUsPerNode)
	}
	return UniformCPUs(s.Nodes, s.CPUsPerNode)
}

type passMeasure struct {
	*Virtual
	size      PassSize
	rng       *rand.Rand
	submitted int    // jobs of size.Queue so far
	running   []task // one of each job: that on its first node
	nodes     map[cluster.JobID][]cluster.NodeAllocation
	out       *PassTimings
}

// fill starts a job on every node and submits the queue.
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
		id, err := m.enqueue(fillerJob(i, &m.size))
		if err != nil {
			return err
		}
		where := cluster.NodeAllocation{Node: f.Nodes[i].Name, GPUs: all, CPUs: max(1, int32(m.size.cpus())), Memory: f.Nodes[i].Memory}
		plan.Starts = append(plan.Starts, cluster.PlannedStart{Job: id, Attempt: 1, Placement: cluster.Placement{Nodes: []cluster.NodeAllocation{where}}})
	}
	plan.Index = m.Index
	r, err := m.Apply(&command.CommitPlan{Plan: plan})
	if err != nil {
		return err
	}
	if a, ok := r.(*command.Committed); !ok || len(a.Stale) > 0 {
		return fmt.Errorf("%w: the nodes could not be filled: %+v", ErrRefused, r)
	}
	if err := m.reportStarted(plan.Starts); err != nil {
		return err
	}
	for range m.size.Pending {
		if _, err := m.enqueue(m.next()); err != nil {
			return err
		}
	}
	return nil
}

// next returns the next job to submit.
func (m *passMeasure) next() cluster.JobSpec {
	if n := len(m.size.Queue); n > 0 {
		m.submitted++
		return m.size.Queue[(m.submitted-1)%n]
	}
	return randomJob(m.rng, &m.size)
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

// reportStarted reports the tasks of jobs that were started.
func (m *passMeasure) reportStarted(starts []cluster.PlannedStart) error {
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

// measureFull measures passes of a new planner.
func (m *passMeasure) measureFull() {
	snap := m.State.View().Snapshot()
	var took []time.Duration
	for total := time.Duration(0); len(took) < minFull || len(took) < maxFull && total < fullFor; {
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

// measureEvents measures passes after events, of a planner that made the full plan before.
func (m *passMeasure) measureEvents() error {
	if err := m.settle(); err != nil {
		return err
	}
	runtime.GC()
	var took, replans []time.Duration
	for total := time.Duration(0); len(took) < events && (len(took) < minEvents || total < eventsFor); {
		m.Now = m.Now.Add(time.Second)
		if err := m.event(len(took) + len(replans)); err != nil {
			return err
		}
		m.passTimes = m.passTimes[:0]
		d, done, err := m.Pass()
		if err != nil {
			return err
		}
		if d.Stats.Full {
			replans = append(replans, m.passTimes[0])
		} else {
			took = append(took, m.passTimes[0])
		}
		total += m.passTimes[0]
		m.out.Started += len(done.Started)
		m.out.Moved += d.Stats.Moved
		if err := m.reportStarted(d.Plan.Starts); err != nil {
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
		if err := m.reportStarted(d.Plan.Starts); err != nil || !d.More {
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

// heapMB returns the memory in use, in MiB.
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
