package state

import (
	"slices"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// maxStepSignals is the number of signals of a step that its nodes may still have to deliver.
const maxStepSignals = 8

// createStep starts a step of a running job. A step that waits for GPUs of other steps is not created,
// and the answer is not stored.
func (s *State) createStep(c *command.CreateStep) command.Result {
	if again := s.repeated(c.Request); again != nil {
		return again
	}
	old, refusal := s.runningJob(c.Job, c.Actor)
	if refusal == nil {
		refusal = checkSecretsOf(old, c.Actor)
	}
	if refusal != nil {
		return refusal
	}
	if refusal := checkStep(&c.Step); refusal != nil {
		return refusal
	}
	if len(old.Steps) >= cluster.MaxSteps {
		return command.WithHint(command.Refusef(command.Exhausted, "job %s has had %d steps in this attempt, the limit", old.Ref(), cluster.MaxSteps), "start several programs in one step, or submit more jobs")
	}
	step, err := c.Step.Layout(old)
	if err != nil {
		if err.Waits {
			return &command.StepCreated{Attempt: old.Attempt, Busy: err.Text}
		}
		return command.Refuse(command.InvalidArgument, err.Text, "gctl show job "+old.Ref().String()+" lists the nodes and GPUs of the job")
	}
	step.ID, step.Started = nextStep(old.Steps, c.Step.Interactive), s.now
	j := *old
	j.Steps = append(slices.Clip(old.Steps), step)
	s.put(old, &j)
	return s.remember(c.Request, &command.StepCreated{Step: step.ID, Attempt: old.Attempt})
}

// nextStep returns the ID of a new step. The others are numbered as if there were no interactive one.
func nextStep(steps []*cluster.Step, interactive bool) uint32 {
	switch {
	case cluster.FindStep(steps, cluster.InteractiveStep) >= 0:
		return uint32(len(steps)) - 1
	case interactive:
		return cluster.InteractiveStep
	}
	return uint32(len(steps))
}

// runningJob returns a running job that the actor may change.
func (s *State) runningJob(id cluster.JobID, a command.Actor) (*cluster.Job, *command.Refusal) {
	ref := cluster.JobRef{ID: id, Index: cluster.NoIndex}
	j, found := s.job(id)
	switch {
	case !found:
		return nil, unknownJob(ref)
	case !a.Owns(j.Spec.Owner) && !a.Has(command.RoleOperator):
		if s.policy.Private {
			return nil, unknownJob(ref)
		}
		return nil, command.Refusef(command.Denied, "job %s belongs to %s", j.Ref(), j.Spec.Owner.User)
	case j.State.Final():
		return nil, command.Refusef(command.Conflict, "job %s has ended (%s)", j.Ref(), j.State)
	case j.State != cluster.Configuring && j.State != cluster.Running:
		return nil, command.Refusef(command.Conflict, "job %s is %s: only a running job can have steps", j.Ref(), j.State)
	}
	return j, nil
}

// checkSecretsOf refuses programs of others in a job with secrets: they could read the values.
func checkSecretsOf(j *cluster.Job, a command.Actor) *command.Refusal {
	if len(j.Spec.Secrets) == 0 || a.Owns(j.Spec.Owner) {
		return nil
	}
	return command.Refusef(command.Denied, "job %s has secrets: only %s can start programs in it", j.Ref(), j.Spec.Owner.User)
}

// Bounds of a step's specification.
const (
	maxStepName      = 256
	maxStepAddresses = 64
	maxStepAddress   = 256
	maxStepTasks     = 1 << 17
)

// checkStep refuses a specification that contradicts itself.
func checkStep(x *cluster.StepSpec) *command.Refusal {
	for _, n := range []struct {
		what  string
		value int32
		least int32
	}{
		{"first node", x.FirstNode, 0}, {"nodes", x.Nodes, 0}, {"tasks", x.Tasks, 0}, {"tasks per node", x.TasksPerNode, 0}, {"CPUs per task", x.CPUsPerTask, 0},
		{"GPUs", x.GPUs, 0}, {"GPUs per task", x.GPUsPerTask, 0}, {"GPUs per node", x.GPUsPerNode, -1},
	} {
		if n.value < n.least || n.value > maxStepTasks {
			return command.Refusef(command.InvalidArgument, "%s of a step: %d, want %d to %d", n.what, n.value, n.least, maxStepTasks)
		}
	}
	if len(x.Name) > maxStepName {
		return command.Refusef(command.InvalidArgument, "the name of a step has %d bytes, at most %d", len(x.Name), maxStepName)
	}
	if refusal := checkContact(&x.Contact); refusal != nil {
		return refusal
	}
	return command.CheckText("the name of a step", x.Name)
}

// checkContact refuses a step without addresses, or with too many.
func checkContact(x *cluster.StepContact) *command.Refusal {
	if len(x.Addresses) == 0 || len(x.Addresses) > maxStepAddresses {
		return command.Refusef(command.InvalidArgument, "a step needs 1 to %d addresses", maxStepAddresses)
	}
	for _, address := range x.Addresses {
		if len(address) > maxStepAddress {
			return command.Refusef(command.InvalidArgument, "an address of a step has %d bytes, at most %d", len(address), maxStepAddress)
		}
	}
	return nil
}

// signalStep sends a signal to a step, or ends it.
func (s *State) signalStep(c *command.SignalStep) command.Result {
	return s.once(c.Request, func() (*command.Refusal, bool) {
		old, refusal := s.runningJob(c.Job, c.Actor)
		if refusal != nil {
			return refusal, false
		}
		at, refusal := activeStep(old, c.Step)
		if refusal != nil {
			return refusal, false
		}
		if c.Signal < 0 || c.Signal > cluster.MaxSignal {
			return command.Refusef(command.InvalidArgument, "there is no signal %d", c.Signal), false
		}
		step := *old.Steps[at]
		if c.Signal == 0 {
			step.Stop, step.Requester = true, c.Actor.Identity.User
		} else {
			from := max(0, len(step.Signals)+1-maxStepSignals)
			step.Signals = append(slices.Clone(step.Signals[from:]), cluster.StepSignal{ID: s.index, Number: c.Signal})
		}
		s.put(old, withStep(old, at, &step))
		return nil, true
	})
}

// activeStep returns the position of a step, and refuses one that does not exist or has ended.
func activeStep(j *cluster.Job, step uint32) (int, *command.Refusal) {
	if at := cluster.FindStep(j.Steps, step); at >= 0 && j.Steps[at].Active() {
		return at, nil
	}
	return 0, command.WithHint(command.Refusef(command.NotFound, "there is no active step %s.%s", j.Ref(), cluster.FormatStep(step)), "gctl show job %s lists the steps of the job", j.Ref())
}

// attachStep has the node of a step connect to another program.
func (s *State) attachStep(c *command.AttachStep) command.Result {
	return s.once(c.Request, func() (*command.Refusal, bool) {
		old, refusal := s.runningJob(c.Job, c.Actor)
		if refusal == nil {
			refusal = checkSecretsOf(old, c.Actor)
		}
		at := 0
		if refusal == nil {
			at, refusal = activeStep(old, c.Step)
		}
		if refusal == nil {
			refusal = checkContact(&c.Contact)
		}
		if refusal != nil {
			return refusal, false
		}
		step := *old.Steps[at]
		switch {
		case !step.Terminal:
			return command.WithHint(command.Refusef(command.Conflict, "step %s.%s has no terminal", old.Ref(), cluster.FormatStep(c.Step)), "gctl logs -f JOB follows the output of a step without a terminal"), false
		case len(step.Nodes) != 1:
			return command.Refusef(command.Conflict, "step %s.%s runs on %d nodes; only single-node steps can be attached", old.Ref(), cluster.FormatStep(c.Step), len(step.Nodes)), false
		}
		step.Contact = &c.Contact
		s.put(old, withStep(old, at, &step))
		return nil, true
	})
}

// withStep returns a copy of a job with another step. O(steps).
func withStep(j *cluster.Job, at int, step *cluster.Step) *cluster.Job {
	c := *j
	c.Steps = slices.Clone(j.Steps)
	c.Steps[at] = step
	return &c
}

// mergeSteps returns the steps of a job after a node's report of those that have ended there, and
// whether any has changed. O(reports × nodes of a step), and O(steps) with a change.
func mergeSteps(steps []*cluster.Step, rank int, reports []command.StepReport, now cluster.Instant) ([]*cluster.Step, bool) {
	changed := false
	for i := range reports {
		r := &reports[i]
		n := cluster.FindStep(steps, r.Step)
		if n < 0 || !steps[n].Active() {
			continue
		}
		at := steps[n].On(rank)
		if at < 0 || steps[n].Nodes[at].Ended {
			continue
		}
		if !changed {
			steps, changed = slices.Clone(steps), true
		}
		step := *steps[n]
		step.Nodes = slices.Clone(step.Nodes)
		step.Nodes[at].Ended = true
		step.OutOfMemory = step.OutOfMemory || r.OutOfMemory
		step.Exit = step.Exit.Worse(r.Exit)
		step.Memory = max(step.Memory, r.Memory)
		step.CPUTime += max(0, r.CPUTime)
		step.User += max(0, r.User)
		if !slices.ContainsFunc(step.Nodes, func(n cluster.StepNode) bool { return !n.Ended }) {
			closeStep(&step, now)
		}
		steps[n] = &step
	}
	return steps, changed
}

// closeStep ends a step, a value that is not shared yet.
func closeStep(step *cluster.Step, now cluster.Instant) {
	step.Ended, step.Contact, step.Signals = now, nil, nil
}

// closeSteps ends the active steps of a job, a value that is not shared yet, whose attempt is over.
// O(steps) if one is active.
func closeSteps(j *cluster.Job, now cluster.Instant) {
	cloned := false
	for at, old := range j.ActiveSteps() {
		if !cloned {
			j.Steps, cloned = slices.Clone(j.Steps), true
		}
		step := *old
		step.Stop = true
		closeStep(&step, now)
		j.Steps[at] = &step
	}
}
