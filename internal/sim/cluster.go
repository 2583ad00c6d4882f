package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/schedule"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// epoch is where virtual time begins when nothing else says so: an instant of zero
// means "not set" to the state.
const epoch = cluster.Instant(1_000_000_000 * time.Second)

// ErrRefused is wrapped when the state refuses what a simulation is built on.
var ErrRefused = errors.New("the cluster cannot be simulated")

// virtual is a cluster in virtual time: the state, the planner and the nodes that
// report to it.
type virtual struct {
	state   *state.State
	planner *schedule.Planner
	index   uint64
	now     cluster.Instant
	epochs  map[string]uint64 // of the nodes
	check   bool
	took    []time.Duration // passes
	anew    int             // passes that planned everything
	stale   int             // starts that did not fit the state
	skew    time.Duration   // of the leader's clock
	witness witness         // nil: nobody looks on

	// Room that is used again.
	submitted command.SubmitJobs
	reports   map[string]*command.ReportTasks // by node
	heard     []*command.ReportTasks          // of them, those with something to say, in order
}

// witness sees all commands.
type witness interface {
	before(index uint64, at cluster.Instant, c command.Command)
	after(c command.Command, r command.Result, e *state.Effects) error
}

// newVirtual is a cluster of nodes under a policy.
func newVirtual(f *Machine, policy *cluster.Policy, check bool) (*virtual, error) {
	s := state.NewUnwatched()
	if check {
		s = state.New()
	}
	v := over(s, epoch, check)
	return v, v.assemble(f, policy)
}

// over is a cluster with a state, and nothing beside it.
func over(s *state.State, now cluster.Instant, check bool) *virtual {
	return &virtual{state: s, planner: schedule.NewPlanner(), now: now, epochs: map[string]uint64{}, reports: map[string]*command.ReportTasks{}, check: check}
}

// assemble registers a fleet under a policy.
func (v *virtual) assemble(f *Machine, policy *cluster.Policy) error {
	if err := v.must(&command.Init{ClusterID: "simulated", Policy: *policy}); err != nil {
		return err
	}
	for i := range f.Nodes {
		if err := v.add(&f.Nodes[i]); err != nil {
			return err
		}
	}
	return v.setFabric(f)
}

// resume is a saved cluster, whose nodes are heard again from now on.
func resume(s *state.State, check bool) *virtual {
	view := s.View()
	v := over(s, view.Now(), check)
	v.index = view.Index()
	for n := range view.Nodes() {
		v.epochs[n.Name] = n.Epoch
	}
	return v
}

// add registers a node.
func (v *virtual) add(n *cluster.Node) error {
	r, err := v.apply(&command.RegisterNode{Node: *n})
	if err != nil {
		return err
	}
	registered, ok := r.(*command.Registered)
	if !ok {
		return refused(r)
	}
	v.epochs[n.Name] = registered.Epoch
	return nil
}

// apply has the state carry out a command at the present instant.
func (v *virtual) apply(c command.Command) (command.Result, error) {
	v.index++
	at := v.now.Add(v.skew)
	if v.witness != nil {
		v.witness.before(v.index, at, c)
	}
	r := v.state.Apply(v.index, at, c)
	effects := v.state.Effects() // nobody archives a simulation
	if v.check {
		if err := v.state.Check(); err != nil {
			return nil, v.blame(c, err)
		}
	}
	if v.witness != nil {
		if err := v.witness.after(c, r, &effects); err != nil {
			return nil, v.blame(c, err)
		}
	}
	return r, nil
}

// blame names the command after which something did not hold.
func (v *virtual) blame(c command.Command, err error) error {
	return fmt.Errorf("after command %d, %T, at %s: %w", v.index, c, v.now.Time(), err)
}

// must applies what the state may not refuse.
func (v *virtual) must(c command.Command) error {
	r, err := v.apply(c)
	if err != nil {
		return err
	}
	return refused(r)
}

func refused(r command.Result) error {
	if no, ok := r.(*command.Refusal); ok {
		return fmt.Errorf("%w: %s", ErrRefused, no.Message)
	}
	return nil
}

// root is who changes nodes and policies.
func root() command.Actor {
	return command.Actor{Identity: cluster.Identity{User: "root"}, Role: command.RoleAdmin, Source: "simulation"}
}

// task is one task of a job on a node, whose phase the node is about to report.
type task struct {
	node    string
	rank    int // in the allocation
	job     cluster.JobID
	attempt cluster.Attempt
	phase   cluster.TaskPhase
	started cluster.Instant
}

// report has each node report the tasks of it that changed, as one message, the nodes
// with the first task of a job first: it is the one whose script ends the job.
func (v *virtual) report(tasks []task) error {
	for _, first := range [...]bool{true, false} {
		for i := range tasks {
			if t := &tasks[i]; first == (t.rank == 0) {
				v.say(t)
			}
		}
		for _, r := range v.heard {
			if err := v.must(r); err != nil {
				return err
			}
			r.Tasks = r.Tasks[:0]
		}
		v.heard = v.heard[:0]
	}
	return nil
}

// say adds a task to what its node is about to report, if the node is there.
func (v *virtual) say(t *task) {
	epoch, there := v.epochs[t.node]
	if !there {
		return
	}
	r := v.reports[t.node]
	if r == nil {
		r = &command.ReportTasks{Node: t.node}
		v.reports[t.node] = r
	}
	if len(r.Tasks) == 0 {
		r.Epoch = epoch
		v.heard = append(v.heard, r)
	}
	said := cluster.Task{Node: t.node, Phase: t.phase, Started: t.started}
	if t.phase == cluster.TaskClean {
		said.Cause, said.Ended = cluster.Exited, v.now
		if t.rank > 0 {
			said.Cause = cluster.Stopped
		}
	}
	r.Tasks = append(r.Tasks, command.TaskReport{Job: t.job, Attempt: t.attempt, Task: said})
}

// tick lets time pass in the state, if something is due.
func (v *virtual) tick() error {
	if v.state.Peek().NextDue() > v.now {
		return nil
	}
	return v.must(&command.Tick{})
}

// pass makes one scheduling pass and has its plan agreed.
func (v *virtual) pass() (schedule.Decision, *command.Committed, error) {
	snap := v.state.Peek().Snapshot()
	snap.Now = max(snap.Now, v.now.Add(v.skew))
	began := time.Now()
	d := v.planner.Pass(snap)
	d.Evict(schedule.Victims)
	v.took = append(v.took, time.Since(began))
	if d.Stats.Full {
		v.anew++
	}
	if len(d.Plan.Starts)+len(d.Plan.Evictions)+len(d.Plan.Verdicts) == 0 {
		return d, &command.Committed{}, nil
	}
	r, err := v.apply(&command.CommitPlan{Plan: d.Plan})
	if err != nil {
		return d, nil, err
	}
	done, ok := r.(*command.Committed)
	if !ok {
		return d, nil, refused(r)
	}
	v.stale += len(done.Stale)
	return d, done, nil
}
