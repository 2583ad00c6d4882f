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

// Epoch is the first instant of a simulation that no input dates. It is not zero, since a zero
// instant means "not set" to the state.
const Epoch = cluster.Instant(1_000_000_000 * time.Second)

// ErrRefused is wrapped by the error of a simulation that the state refuses.
var ErrRefused = errors.New("the cluster cannot be simulated")

// Virtual is a cluster in virtual time: the state, the planner, and the nodes that report to the
// state.
type Virtual struct {
	State     *state.State
	Planner   *schedule.Planner
	Index     uint64
	Now       cluster.Instant
	Epochs    map[string]uint64 // by node
	check     bool
	passTimes []time.Duration // of all passes
	replanned int             // passes that planned all jobs again
	stale     int             // starts that no longer fitted the state
	Skew      time.Duration   // of the leader's clock from virtual time
	Witness   Witness         // nil: none
	agenda    agenda

	// Memory that is used again.
	submitted command.SubmitJobs
	reports   map[string]*command.ReportTasks // by node
	reporting []*command.ReportTasks          // the reports with new phases, in order
}

// Witness observes every command.
type Witness interface {
	Before(index uint64, at cluster.Instant, c command.Command)
	After(c command.Command, r command.Result, e *state.Effects) error
}

// assembled returns a cluster of nodes under a policy.
func assembled(f *Machine, policy *cluster.Policy, check bool) (*Virtual, error) {
	s := state.NewUnwatched()
	if check {
		s = state.New()
	}
	v := NewVirtual(s, Epoch, check)
	return v, v.Assemble(f, policy)
}

// NewVirtual returns a cluster with a state and without nodes that report.
func NewVirtual(s *state.State, now cluster.Instant, check bool) *Virtual {
	return &Virtual{State: s, Planner: schedule.NewPlanner(), Now: now, Epochs: map[string]uint64{}, reports: map[string]*command.ReportTasks{}, check: check, agenda: newAgenda()}
}

// Assemble initializes the state with a policy and registers the nodes of a machine.
func (v *Virtual) Assemble(f *Machine, policy *cluster.Policy) error {
	if err := v.Must(&command.Init{ClusterID: "simulated", Policy: *policy}); err != nil {
		return err
	}
	for i := range f.Nodes {
		if err := v.add(&f.Nodes[i]); err != nil {
			return err
		}
	}
	return v.setFabric(f)
}

// resume returns a saved cluster. Its nodes report from its last instant on.
func resume(s *state.State, check bool) *Virtual {
	view := s.View()
	v := NewVirtual(s, view.Now(), check)
	v.Index = view.Index()
	for n := range view.Nodes() {
		v.Epochs[n.Name] = n.Epoch
	}
	return v
}

// add registers a node.
func (v *Virtual) add(n *cluster.Node) error {
	r, err := v.Apply(&command.RegisterNode{Node: *n})
	if err != nil {
		return err
	}
	registered, ok := r.(*command.Registered)
	if !ok {
		return RefusalError(r)
	}
	v.Epochs[n.Name] = registered.Epoch
	return nil
}

// Apply applies a command to the state at the present instant.
func (v *Virtual) Apply(c command.Command) (command.Result, error) {
	v.Index++
	at := v.Now.Add(v.Skew)
	if v.Witness != nil {
		v.Witness.Before(v.Index, at, c)
	}
	r := v.State.Apply(v.Index, at, c)
	effects := v.State.Effects() // a simulation has no archive
	if v.check {
		if err := v.State.Check(); err != nil {
			return nil, v.Blame(c, err)
		}
	}
	if v.Witness != nil {
		if err := v.Witness.After(c, r, &effects); err != nil {
			return nil, v.Blame(c, err)
		}
	}
	return r, nil
}

// Blame adds the last command to an error.
func (v *Virtual) Blame(c command.Command, err error) error {
	return fmt.Errorf("after command %d, %T, at %s: %w", v.Index, c, v.Now.Time(), err)
}

// Must applies a command and returns an error if the state refuses it.
func (v *Virtual) Must(c command.Command) error {
	r, err := v.Apply(c)
	if err != nil {
		return err
	}
	return RefusalError(r)
}

// RefusalError returns the error of a result that is a refusal; nil for others.
func RefusalError(r command.Result) error {
	if no, ok := r.(*command.Refusal); ok {
		return fmt.Errorf("%w: %s", ErrRefused, no.Message)
	}
	return nil
}

// Administrator returns the actor that changes nodes and policies.
func Administrator() command.Actor {
	return command.Actor{Identity: cluster.Identity{User: "root"}, Role: command.RoleAdmin, Source: "simulation"}
}

// task is a task of a job on a node, in the phase that the node reports next.
type task struct {
	node    string
	rank    int // in the allocation
	job     cluster.JobID
	attempt cluster.Attempt
	phase   cluster.TaskPhase
	started cluster.Instant
}

// report sends one message of each node with its changed tasks. Nodes with a job's first task
// report first, since its script ends the job.
func (v *Virtual) report(tasks []task) error {
	for _, first := range [...]bool{true, false} {
		for i := range tasks {
			if t := &tasks[i]; first == (t.rank == 0) {
				v.addTaskReport(t)
			}
		}
		for _, r := range v.reporting {
			if err := v.Must(r); err != nil {
				return err
			}
			r.Tasks = r.Tasks[:0]
		}
		v.reporting = v.reporting[:0]
	}
	return nil
}

// addTaskReport adds a task to the next report of its node, if the node is registered.
func (v *Virtual) addTaskReport(t *task) {
	epoch, there := v.Epochs[t.node]
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
		v.reporting = append(v.reporting, r)
	}
	said := cluster.Task{Node: t.node, Phase: t.phase, Started: t.started}
	if t.phase == cluster.TaskClean {
		said.Cause, said.Ended = cluster.Exited, v.Now
		if t.rank > 0 {
			said.Cause = cluster.Stopped
		}
	}
	r.Tasks = append(r.Tasks, command.TaskReport{Job: t.job, Attempt: t.attempt, Task: said})
}

// tick sends a tick to the state if something is due.
func (v *Virtual) tick() error {
	if v.State.Peek().NextDue() > v.Now {
		return nil
	}
	return v.Must(&command.Tick{})
}

// Pass runs one scheduling pass and commits its plan.
func (v *Virtual) Pass() (schedule.Decision, *command.Committed, error) {
	snap := v.State.Peek().Snapshot()
	snap.Now = max(snap.Now, v.Now.Add(v.Skew))
	began := time.Now()
	d := v.Planner.Pass(snap)
	v.passTimes = append(v.passTimes, time.Since(began))
	if d.Stats.Full {
		v.replanned++
	}
	if d.Plan.Empty() {
		return d, &command.Committed{}, nil
	}
	r, err := v.Apply(&command.CommitPlan{Plan: d.Plan})
	if err != nil {
		return d, nil, err
	}
	done, ok := r.(*command.Committed)
	if !ok {
		return d, nil, RefusalError(r)
	}
	v.stale += len(done.Stale)
	return d, done, nil
}
