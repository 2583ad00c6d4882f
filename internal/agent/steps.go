package agent

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"syscall"

	"google.golang.org/protobuf/types/known/durationpb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/reconcile"
	tasks "github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/internal/step"
)

// stepRun is a step of a task on this node. Only the loop changes it. Nothing of it is recorded: the
// task's directory has which steps were started and how they ended, and a new daemon reads that.
type stepRun struct {
	signalled uint64 // the newest signal that was delivered
	stopped   bool
	key       string                  // of the program that has the step
	ended     *greylagv1.ReportedStep // nil while it runs
}

// stopSignal is the number of the signal that ends a step; log indexes, which number the others, are
// never that high.
const stopSignal = ^uint64(0)

// runSteps starts the wanted steps of running tasks, delivers their signals, and drops those that are
// over for the controllers too. It runs in the loop. O(tasks + wanted steps).
func (a *Agent) runSteps() {
	runner, able := a.runtime.(tasks.Steps)
	for id, spec := range a.specs {
		t := a.tasks[id]
		if t == nil || t.Phase != reconcile.Started || !able || reconcile.Superseded(t.Granted, spec.GetGranted()) {
			continue
		}
		for n := range t.steps {
			if !slices.ContainsFunc(spec.GetSteps(), func(w *greylagv1.WantedStep) bool { return w.GetId() == n }) && t.steps[n].ended != nil {
				delete(t.steps, n)
			}
		}
		for _, wanted := range spec.GetSteps() {
			run := t.steps[wanted.GetId()]
			if run == nil {
				run = a.startStep(runner, t, wanted)
			}
			if run.ended == nil {
				a.signalStep(runner, t, wanted, run)
				a.attachStep(runner, t, wanted, run)
			}
		}
	}
}

// startStep starts a step in a worker and waits there for its end. A step that an earlier daemon started
// is only waited for.
func (a *Agent) startStep(runner tasks.Steps, t *task, wanted *greylagv1.WantedStep) *stepRun {
	run := &stepRun{key: string(wanted.GetKey())}
	if t.steps == nil {
		t.steps = map[uint32]*stepRun{}
	}
	t.steps[wanted.GetId()] = run
	order, err := json.Marshal(a.stepOrder(t, wanted))
	id, number, owner, done := taskID(t.ID), wanted.GetId(), t.owner(), t.done
	a.workers.Go(func() {
		ctx, cancel := context.WithCancel(a.reading)
		defer cancel()
		go func() {
			select {
			case <-done: // the task has ended, and its steps with it
				cancel()
			case <-ctx.Done():
			}
		}()
		exit, err := tasks.Exit{}, err
		if err == nil {
			err = runner.StartStep(ctx, id, number, order, owner)
		}
		if err == nil {
			exit, err = runner.WaitStep(ctx, id, number)
		}
		if ctx.Err() != nil || errors.Is(err, tasks.ErrNotFound) {
			return
		}
		if err != nil {
			a.log.Warn("cannot run step", "job", t.ID.Job, "attempt", t.ID.Attempt, "step", number, "err", err)
			exit.Code = 1
		}
		if exit.LaunchError != "" {
			a.log.Warn("cannot run step", "job", t.ID.Job, "attempt", t.ID.Attempt, "step", number, "err", exit.LaunchError)
		}
		a.post(func() {
			run.ended = reportedStep(number, exit)
			nudge(a.reports)
		})
	})
	return run
}

func (t *task) owner() tasks.Owner { return tasks.Owner{UID: t.spec.GetUid(), GID: t.spec.GetGid()} }

// attachStep writes the order of a step again if another program of the user takes it.
func (a *Agent) attachStep(runner tasks.Steps, t *task, wanted *greylagv1.WantedStep, run *stepRun) {
	if run.key == string(wanted.GetKey()) {
		return
	}
	order, err := json.Marshal(a.stepOrder(t, wanted))
	if err == nil {
		err = runner.StartStep(a.reading, taskID(t.ID), wanted.GetId(), order, t.owner())
	}
	if err == nil {
		run.key = string(wanted.GetKey())
	} else {
		a.log.Warn("cannot attach step", "job", t.ID.Job, "attempt", t.ID.Attempt, "step", wanted.GetId(), "err", err)
	}
}

// collectSteps records the ends of the steps of a task that has just ended, before their waiting workers
// do: the report of the task's end must have them.
func (a *Agent) collectSteps(t *task) {
	runner, able := a.runtime.(tasks.Steps)
	if !able {
		return
	}
	now, cancel := context.WithCancel(context.Background())
	cancel() // only what is recorded already
	for n, run := range t.steps {
		if run.ended != nil {
			continue
		}
		if exit, err := runner.WaitStep(now, taskID(t.ID), n); err == nil {
			run.ended = reportedStep(n, exit)
		}
	}
}

// signalStep delivers the signals of a step that were not delivered yet.
func (a *Agent) signalStep(runner tasks.Steps, t *task, wanted *greylagv1.WantedStep, run *stepRun) {
	send := func(number uint64, sig syscall.Signal) {
		ctx, cancel := context.WithTimeout(a.reading, signalTimeout)
		defer cancel()
		if err := runner.SignalStep(ctx, taskID(t.ID), wanted.GetId(), number, sig); err != nil {
			a.log.Warn("cannot signal step", "job", t.ID.Job, "attempt", t.ID.Attempt, "step", wanted.GetId(), "signal", int(sig), "err", err)
		}
	}
	for _, signal := range wanted.GetSignals() {
		if signal.GetId() > run.signalled {
			run.signalled = signal.GetId()
			send(signal.GetId(), syscall.Signal(signal.GetNumber()))
		}
	}
	if wanted.GetStop() && !run.stopped {
		run.stopped = true
		send(stopSignal, syscall.SIGTERM)
	}
}

// runningSteps returns the steps of a task that have not ended.
func (t *task) runningSteps() (numbers []uint32) {
	for n, run := range t.steps {
		if run.ended == nil {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers
}

// stepOrder returns the order for gstepd.
func (a *Agent) stepOrder(t *task, wanted *greylagv1.WantedStep) step.Order {
	o := step.Order{
		Job: uint64(t.ID.Job), Attempt: uint32(t.ID.Attempt), Step: wanted.GetId(), Cluster: a.identity.Cluster, Node: int(wanted.GetNode()),
		CPUsPerTask: int(wanted.GetCpusPerTask()), Contact: wanted.GetContact(),
		Fingerprint: hex.EncodeToString(wanted.GetFingerprint()), Key: hex.EncodeToString(wanted.GetKey()), Image: t.spec.GetImage() != "",
	}
	for i, n := range wanted.GetNodes() {
		node := step.Node{Name: n.GetNode(), Tasks: int(n.GetTasks())}
		if i == o.Node {
			node.GPUs, node.GPUIndexes = a.stepGPUs(t, wanted), n.GetGpus()
		}
		o.Nodes = append(o.Nodes, node)
	}
	return o
}

// stepGPUs returns the names of a step's GPUs as the job's task sees them.
func (a *Agent) stepGPUs(t *task, wanted *greylagv1.WantedStep) (names []string) {
	own := t.own().GetGpus()
	for _, at := range wanted.GetGpus() {
		switch {
		case int(at) >= len(own) || int(own[at]) >= len(a.inventory.Devices):
		case a.cfg.Device != nil: // the task sees only its own, numbered from 0
			names = append(names, seenAs(at, a.inventory.Devices[own[at]].UUID))
		default:
			names = append(names, a.inventory.Devices[own[at]].UUID)
		}
	}
	return names
}

// reportedStep returns the report of a step that has ended. gstepd exits with the worst status of its
// tasks, as a shell reports it.
func reportedStep(number uint32, exit tasks.Exit) *greylagv1.ReportedStep {
	r := &greylagv1.ReportedStep{Id: number, ExitCode: int32(exit.Code), OutOfMemory: exit.OOM || exit.Code == step.StatusOOM, MemoryPeak: int64(exit.PeakMemory)}
	if exit.Code > 128 && exit.Code <= 128+64 {
		r.ExitCode, r.ExitSignal = 0, int32(exit.Code-128)
	}
	if exit.CPUTime > 0 {
		r.CpuTime, r.UserTime = durationpb.New(exit.CPUTime), durationpb.New(min(exit.UserTime, exit.CPUTime))
	}
	return r
}
