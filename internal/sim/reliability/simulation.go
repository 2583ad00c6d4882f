package reliability

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/schedule"
	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/internal/sim/faults"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// ErrViolation is wrapped by the error of a run in which an invariant was violated. With the same model and
// seed the violation occurs again.
var ErrViolation = errors.New("violation")

// simulation is one run of a model.
type simulation struct {
	*sim.Virtual
	m           *Model
	every       int // commands between two checks of the state; 0: none before the end
	streams     *faults.Streams
	hosts       []*host
	named       map[string]*host
	leavesDown  map[int]bool
	slots       []*slot
	slotOf      map[cluster.JobID]*slot
	programs    map[cluster.JobID]*program
	wake        cluster.Instant
	seen        uint64 // index of the last command before the last pass
	leaderSince cluster.Instant
	elect       int // number of the command after which another controller leads; 0: none
	until       cluster.Instant
	preemptors  map[cluster.JobID]cluster.Instant // that had others end for them, and have not started
	r           Result
}

// Run runs a model under a seed. The state checks its invariants each time after that many commands; 0: only at
// the end.
func Run(m *Model, policy *cluster.Policy, seed uint64, every int) (*Result, error) {
	x, err := newSimulation(m, policy, seed, every)
	if err == nil {
		err = x.run()
	}
	if err != nil {
		return nil, fmt.Errorf("seed %d: %w", seed, err)
	}
	result := x.r // a pointer into x would keep all of it in memory
	return &result, nil
}

// newSimulation returns a simulation at its first instant.
func newSimulation(m *Model, policy *cluster.Policy, seed uint64, every int) (*simulation, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	f, err := sim.Uniform(m.Nodes, m.GPUs)
	if err != nil {
		return nil, err
	}
	v := sim.NewVirtual(state.New(), sim.Epoch, every == 1)
	x := &simulation{
		Virtual: v, m: m, every: every, streams: faults.NewStreams(seed), named: map[string]*host{}, leavesDown: map[int]bool{},
		slotOf: map[cluster.JobID]*slot{}, programs: map[cluster.JobID]*program{}, wake: sim.Epoch, preemptors: map[cluster.JobID]cluster.Instant{},
		leaderSince: sim.Epoch, until: sim.Epoch.Add(m.Days), r: newResult(seed),
	}
	x.addHosts(f)
	if err := v.Assemble(f, m.policy(policy)); err != nil {
		return nil, err
	}
	for _, h := range x.hosts {
		h.epoch = v.Epochs[h.node.Name]
	}
	x.Witness = x
	return x, x.prepare()
}

// policy returns a policy under which the jobs of the model may run, and urgent ones preempt.
func (m *Model) policy(p *cluster.Policy) *cluster.Policy {
	c := *p
	c.QOS = append([]cluster.QOS{}, p.QOS...)
	for i := range c.QOS {
		q := &c.QOS[i]
		switch {
		case q.Name == c.DefaultQOS:
			q.PreemptMode = max(q.PreemptMode, cluster.PreemptRequeue)
		case q.Name == urgentQOS && m.Urgent > 0:
			q.Preempts, q.Open = append(append([]string{}, q.Preempts...), c.DefaultQOS), true
		case q.Name == gangQOS:
			if q.Open = true; m.GangPreempts > 0 {
				q.Preempts = append(append([]string{}, q.Preempts...), c.DefaultQOS)
			}
		}
	}
	return &c
}

// addHosts adds the machines, leaf by leaf.
func (x *simulation) addHosts(f *sim.Machine) {
	for i := range f.Nodes {
		h := &host{
			index: i, node: f.Nodes[i], leaf: i / x.m.LeafNodes, rack: i / x.m.RackNodes, on: true, reachable: true,
			tasks: map[sim.TaskID]*hostTask{}, conditions: []cluster.Condition{},
		}
		if h.often = faults.Yes(x.streams.For(streamOften, uint64(i), 0), x.m.Often); h.often {
			x.r.Often++
		}
		x.hosts, x.named[h.node.Name] = append(x.hosts, h), h
		if h.leaf == len(f.Switches) {
			f.Switches = append(f.Switches, cluster.Switch{Name: fmt.Sprintf("leaf%d", h.leaf+1)})
		}
		f.Switches[h.leaf].Nodes = append(f.Switches[h.leaf].Nodes, h.node.Name)
	}
	if len(f.Switches) < 2 {
		f.Switches = nil
		return
	}
	spine := cluster.Switch{Name: "spine"}
	for i := range f.Switches {
		spine.Children = append(spine.Children, f.Switches[i].Name)
	}
	f.Switches = append(f.Switches, spine)
}

// prepare submits the first jobs and schedules the first failures.
func (x *simulation) prepare() error {
	x.In(day, x.findOften)
	x.addSlots()
	for _, s := range x.slots {
		if err := x.submit(s); err != nil {
			return err
		}
	}
	switch {
	case x.m.LossEvery > 0:
		x.scheduleLoss(0)
	case x.m.LeafAt > 0:
		x.In(x.m.LeafAt, func() error { return x.loseLeaf(0) })
	default:
		for _, h := range x.hosts {
			x.scheduleFailure(h, 1)
		}
	}
	return nil
}

// scheduleLoss makes a node of the large job fail once in each interval, at a random instant of it.
func (x *simulation) scheduleLoss(n int64) {
	begin, part := sim.Epoch.Add(time.Duration(n)*x.m.LossEvery), x.streams.Of(streamLosses).Float64()
	x.In(begin.Sub(x.Now)+time.Duration(part*float64(x.m.LossEvery)), x.loseOfGang)
	x.In(begin.Add(x.m.LossEvery).Sub(x.Now), func() error {
		x.scheduleLoss(n + 1)
		return nil
	})
}

// loseOfGang makes a random node of the large job fail.
func (x *simulation) loseOfGang() error {
	j, known := x.State.Peek().Job(x.slots[0].job)
	if !known || j.Alloc == nil {
		return nil
	}
	r := x.streams.Of(streamLosses)
	f, _ := x.m.draw(r)
	f.gpu, f.flap = -1, f.flap && f.sense != bySilent
	if f.cause == causeMaintenance {
		f.cause = "other"
	}
	x.r.NodeFailures++
	return x.fail(x.named[j.Alloc.Nodes[r.IntN(len(j.Alloc.Nodes))].Node], &f)
}

// run advances from one instant with an event to the next.
func (x *simulation) run() error {
	for {
		at := x.nextInstant()
		if at > x.until {
			break
		}
		x.Now = max(at, x.Now)
		if err := x.processInstant(); err != nil {
			return err
		}
		if err := x.runPasses(); err != nil {
			return err
		}
	}
	x.Now = x.until
	return x.conclude()
}

// nextInstant returns the next instant with an event.
func (x *simulation) nextInstant() cluster.Instant {
	at := x.NextAction()
	if x.wake < cluster.Never {
		at = min(at, max(x.wake, x.Now.Add(time.Second)))
	}
	if due := x.State.Peek().NextDue(); due < cluster.Never {
		at = min(at, max(due, x.Now.Add(time.Millisecond)))
	}
	return at
}

// processInstant handles all events of an instant.
func (x *simulation) processInstant() error {
	if err := x.Act(nil); err != nil {
		return err
	}
	if x.State.Peek().NextDue() <= x.Now {
		return x.Must(&command.Tick{})
	}
	return nil
}

// runPasses makes passes until the scheduler has nothing left to do; none if nothing has changed.
func (x *simulation) runPasses() error {
	if x.Index == x.seen && x.wake > x.Now {
		return nil
	}
	defer func() { x.seen = x.Index }()
	for range sim.MaxPasses {
		if x.State.Peek().Counts().ByState[cluster.Pending] == 0 && x.m.Elastic == 0 {
			x.wake = cluster.Never
			return nil
		}
		d, done, err := x.Pass()
		if err != nil {
			return err
		}
		for i := range d.Plan.Evictions {
			e := &d.Plan.Evictions[i]
			if _, waits := x.preemptors[e.For]; !waits {
				x.preemptors[e.For] = x.Now
				x.r.Preemptors++
			}
		}
		x.wake = d.Wake
		if !d.More && len(done.Stale) == 0 && len(d.Plan.Evictions) == 0 {
			return nil
		}
	}
	return nil
}

// Before counts a command.
func (x *simulation) Before(uint64, cluster.Instant, command.Command) { x.r.Commands++ }

// After sends the changes of a command to the nodes and programs.
func (x *simulation) After(_ command.Command, _ command.Result, e *state.Effects) error {
	if x.every > 1 && x.r.Commands%x.every == 0 {
		if err := x.State.Check(); err != nil {
			return err
		}
	}
	for i := range e.Changed {
		ch := &e.Changed[i]
		switch {
		case ch.Kind == state.JobChanged && ch.New != nil:
			if err := x.jobChanged(ch.Old, ch.New); err != nil {
				return err
			}
		case ch.Kind == state.NodeChanged:
			if err := x.nodeChanged(ch.Node); err != nil {
				return err
			}
		}
	}
	if x.r.Commands == x.elect {
		return x.changeLeader()
	}
	return nil
}

// changeLeader makes another controller lead: it has the state, but neither the plans of the scheduler nor the
// heartbeats of nodes.
func (x *simulation) changeLeader() error {
	var b bytes.Buffer
	if err := x.State.View().Encode(&b); err != nil {
		return err
	}
	s, err := state.Decode(&b)
	if err != nil {
		return err
	}
	x.State, x.Planner, x.leaderSince, x.wake = s, schedule.NewPlanner(), x.Now, x.Now
	return nil
}

// nodeChanged checks the breaker: conditions of one cause drain a bounded number of nodes in its window.
func (x *simulation) nodeChanged(name string) error {
	n, known := x.State.Peek().Node(name)
	if !known || len(n.Drains) == 0 || n.Drains[len(n.Drains)-1].At != x.State.Peek().Now() {
		return nil
	}
	cause, drained, since := n.Drains[len(n.Drains)-1].Cause, 0, x.State.Peek().Now().Add(-cluster.DrainWindow)
	for o := range x.State.Peek().Nodes() {
		for _, d := range o.Drains {
			if d.Cause == cause && d.At > since {
				drained++
				break
			}
		}
	}
	x.r.MostDrained = max(x.r.MostDrained, drained)
	if most := cluster.DrainsAllowed(len(x.hosts)); drained > most {
		return fmt.Errorf("%w: %d nodes were drained for %s in %s, at most %d may be", ErrViolation, drained, cause, cluster.DrainWindow, most)
	}
	return nil
}
