package agent

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/greylag/greylag/internal/reconcile"
	tasks "github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	// signalTimeout is the timeout of sending one signal.
	signalTimeout = 10 * time.Second
	// removeTimeout is the timeout of one attempt to remove a task.
	removeTimeout = time.Minute
	// minRetry and maxRetry bound the delay between attempts to remove a task, which doubles.
	minRetry, maxRetry = 500 * time.Millisecond, 30 * time.Second
	// maxRemoveTries is the number of failed removals after which node unhealthy: no new tasks.
	maxRemoveTries = 4
)

// dispatch begins a recorded action. It never blocks.
func (a *Agent) dispatch(ctx context.Context, action reconcile.Action) {
	t := a.tasks[action.ID]
	if t == nil {
		return
	}
	switch action.Kind {
	case reconcile.Start:
		a.start(ctx, t)
	case reconcile.Deliver:
		a.deliver(t, action.Signal)
	case reconcile.Stop:
		a.log.Info("stopping task", "job", t.ID.Job, "attempt", t.ID.Attempt)
		a.signal(t, syscall.SIGTERM, true, stopNotice(a.specs[t.ID], a.cfg.Name, time.Now()))
	case reconcile.Kill:
		if t.kills++; t.kills == 1 {
			a.log.Info("killing task", "job", t.ID.Job, "attempt", t.ID.Attempt)
		}
		if !t.killing.IsZero() && time.Since(t.killing) >= a.cfg.UnkillableAfter {
			a.endUnkillable(t)
			return
		}
		a.signal(t, syscall.SIGKILL, true, "")
	case reconcile.Remove:
		a.remove(ctx, t)
	}
}

// signal writes notice to the output of the task and sends sig, in a worker.
func (a *Agent) signal(t *task, sig syscall.Signal, all bool, notice string) {
	spec := t.spec
	a.runAsync(t, signalTimeout+noticeTimeout, func(ctx context.Context) error {
		a.notify(ctx, spec, notice)
		if sig == syscall.SIGTERM {
			// A stopped process would not see the signal.
			_ = a.runtime.Signal(ctx, taskID(t.ID), syscall.SIGCONT, true) // the next call reports errors
		}
		err := a.runtime.Signal(ctx, taskID(t.ID), sig, all)
		if sig == syscall.SIGTERM && spec.GetIdle() { // its first process waits for the steps
			err = errors.Join(err, a.runtime.Signal(ctx, taskID(t.ID), sig, false))
		}
		return err
	}, func(err error) {
		t.work = reconcile.NoWork
		if err == nil && sig == syscall.SIGKILL && t.killing.IsZero() {
			t.killing = time.Now()
		}
		if err != nil && !errors.Is(err, tasks.ErrNotFound) {
			a.log.Warn("cannot signal task", "job", t.ID.Job, "attempt", t.ID.Attempt, "signal", int(sig), "err", err)
		}
	})
}

// deliver sends a user's signal: to the tasks of the steps if the task has running ones and the signal is
// not for the script only, as in Slurm; else to the script, and to all processes unless it is for the
// script only.
func (a *Agent) deliver(t *task, signal reconcile.Signal) {
	runner, able := a.runtime.(tasks.Steps)
	running := t.runningSteps()
	if signal.BatchOnly || !able || len(running) == 0 {
		a.signal(t, syscall.Signal(signal.Number), !signal.BatchOnly, "")
		return
	}
	a.runAsync(t, signalTimeout, func(ctx context.Context) error {
		var failed error
		for _, n := range running {
			failed = errors.Join(failed, runner.SignalStep(ctx, taskID(t.ID), n, signal.ID, syscall.Signal(signal.Number)))
		}
		return failed
	}, func(err error) {
		t.work = reconcile.NoWork
		if err != nil {
			a.log.Warn("cannot signal steps", "job", t.ID.Job, "attempt", t.ID.Attempt, "signal", signal.Number, "err", err)
		}
	})
}

// runAsync runs work in a goroutine with a timeout and then posts its error to the loop. Workers
// outlive the context of the loop: an operation that was begun is completed and recorded.
func (a *Agent) runAsync(t *task, limit time.Duration, work func(context.Context) error, then func(error)) {
	a.workers.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		err := work(ctx)
		a.post(func() {
			if a.tasks[t.ID] == t {
				then(err)
			}
		})
	})
}

// watchTask waits for the end of a task in a goroutine.
func (a *Agent) watchTask(ctx context.Context, t *task) {
	if t.watched {
		return
	}
	t.watched = true
	spec := t.spec
	a.workers.Go(func() {
		for pause := minRetry; ; pause = min(2*pause, maxRetry) {
			exit, err := a.runtime.Wait(ctx, taskID(t.ID))
			if err == nil || errors.Is(err, tasks.ErrNotFound) {
				if err != nil {
					exit = tasks.Exit{Lost: true, Ended: time.Now()}
				}
				switch { // before the report of the end, after which the user reads the file
				case exit.OOM:
					a.notify(ctx, spec, memoryNotice(spec, exit))
				case t.flooded.Load():
					a.notify(ctx, spec, outputNotice(spec))
				}
				a.post(func() { a.ended(t, exit) })
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
				a.log.Warn("cannot wait for task", "job", t.ID.Job, "attempt", t.ID.Attempt, "err", err)
			}
		}
	})
}

// ended records the end of a task. It runs in the loop.
func (a *Agent) ended(t *task, exit tasks.Exit) {
	if a.tasks[t.ID] != t || t.Phase >= reconcile.Ended {
		return
	}
	a.collectSteps(t)
	how := classify(t, exit)
	tell := a.log.Info
	if exit.Lost { // administrators need the reason
		tell = a.log.Warn
	}
	tell("task ended", "job", t.ID.Job, "attempt", t.ID.Attempt, "user", t.spec.GetUser(), "cause", how.Cause.String(),
		"code", how.Exit.Code, "signal", how.Exit.Signal, "message", how.Message)
	a.end(t, how)
}

// remove removes a task in a goroutine: its processes and files, then it copies the files of StageOut, checks that its
// GPUs are free, and runs the epilog, then it removes its scratch space.
func (a *Agent) remove(_ context.Context, t *task) {
	if t.removing.IsZero() {
		t.removing = time.Now()
	}
	share, hook, files := a.sharerOf(t), a.hookOf(t), a.copyOutOf(t)
	limit := removeTimeout + gpuReleaseTimeout + a.cfg.HookTimeout + 2*mpsTimeout
	if files != nil {
		limit += files.limit
	}
	var problems []problem
	a.runAsync(t, limit, func(ctx context.Context) (err error) {
		if problems, err = a.clearTask(ctx, t, share, hook, files); err == nil {
			a.removeScratch(t.ID)
			a.removeWorkFolders(t.ID)
		}
		return err
	}, func(err error) {
		t.work = reconcile.NoWork
		if files != nil {
			t.Copied, t.CopyFailure, t.stopCopying = files.result, files.failure, nil
			a.dirty[t.ID] = true
		}
		if err != nil {
			a.removeAgain(t, err)
			return
		}
		a.setCondition(unkillableKey(t.ID.Job), cluster.Condition{})
		for _, found := range problems {
			if found.gpu != "" && share.shares && a.isShared(t, found.gpu) { // another task has started there meanwhile
				continue
			}
			a.setProblem(t.ID.Job, found)
		}
		if t.Phase < reconcile.Ended { // it never started
			close(t.done)
		}
		t.Phase = reconcile.Clean
		a.closeSocket(t.ID) // the socket of a task abandoned before its start
		if t.End.Cause == cluster.NoCause {
			t.End.Cause = cluster.Stopped
		}
		a.cores.free(t.ID)
		t.CPUs = nil
		a.dirty[t.ID] = true
		nudge(a.reports)
		if a.isIdle() {
			nudge(a.idle)
			nudge(a.validate)
		}
	})
}

// clearTask removes a task from the runtime, copies its files, checks its GPUs and runs the epilog.
func (a *Agent) clearTask(ctx context.Context, t *task, s sharer, h *hook, files *copyOut) ([]problem, error) {
	own, err := a.clearRuntime(ctx, t, s)
	if err == nil && files != nil {
		err = a.copyOut(files)
	}
	if err != nil {
		return nil, err
	}
	a.slots <- struct{}{}
	defer func() { <-a.slots }()
	return a.checkAfterTask(ctx, own, h), nil
}

// clearRuntime removes a task from the runtime, and returns its GPUs.
func (a *Agent) clearRuntime(ctx context.Context, t *task, s sharer) ([]string, error) {
	a.slots <- struct{}{}
	defer func() { <-a.slots }()
	limited, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	if err := a.runtime.Remove(limited, taskID(t.ID)); err != nil {
		return nil, err
	}
	return a.leaveGPU(ctx, t, s)
}

// removeAgain schedules another attempt. A node that cannot remove tasks gets no new ones. The job waits for a task
// whose processes may still execute its program, but not for a busy mount after they have ended.
func (a *Agent) removeAgain(t *task, err error) {
	t.tries++
	pause := min(minRetry<<min(t.tries-1, 10), maxRetry)
	t.notBefore = cluster.InstantOf(time.Now().Add(pause))
	a.log.Warn("cannot remove task", "job", t.ID.Job, "attempt", t.ID.Attempt, "err", err, "retry_in", pause)
	long := time.Since(t.removing) >= a.cfg.UnkillableAfter
	if isBusy(err) && a.hasEnded(t) {
		err = fmt.Errorf("a mount is still busy after all processes of the task ended: %w; unmount it, or reboot the node", err)
		if long && !t.stuck {
			t.stuck = true
			nudge(a.reports)
		}
	} else if long && !t.stuck && a.onlyKilled(t) {
		t.stuck = true
		nudge(a.reports)
	}
	if long || t.tries >= maxRemoveTries {
		a.setUnkillable(t, err)
	}
}
