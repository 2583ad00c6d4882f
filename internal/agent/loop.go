package agent

import (
	"context"
	"time"

	"github.com/greylag/greylag/internal/reconcile"
	"github.com/greylag/greylag/internal/taskdb"
	"github.com/greylag/greylag/pkg/cluster"
)

// recordRetry is the delay after a failed write of records; nothing starts meanwhile.
const recordRetry = time.Second

// loop executes calls until ctx ends. After each batch it decides the next steps.
func (a *Agent) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case call := <-a.calls:
			call()
			for n := len(a.calls); n > 0; n-- {
				(<-a.calls)()
			}
		case <-timer.C:
		}
		a.step(ctx)
		a.rebootIfDue()
		a.runSteps()
		for _, request := range a.asked { // after their tasks were admitted
			a.serveLog(request)
		}
		a.asked = nil
		if a.wake.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(a.wake))
		}
	}
}

// step asks reconcile for the next actions, records them and runs them, until none is left.
func (a *Agent) step(ctx context.Context) {
	for {
		if !a.flush() {
			a.wake = time.Now().Add(recordRetry)
			return
		}
		for _, action := range a.backlog {
			a.dispatch(ctx, action)
		}
		a.backlog = a.backlog[:0]
		if len(a.dirty) > 0 { // actions without work are done already
			continue
		}
		a.endForeign()
		actions, wake := reconcile.Diff(a.set, a.seen(), cluster.InstantOf(time.Now()))
		if len(actions) == 0 {
			a.wake = wake.Time()
			a.settle()
			return
		}
		for _, action := range actions {
			a.take(action)
		}
	}
}

// settle records that every task of the admitted set is on record, so that reports may state it.
func (a *Agent) settle() {
	if a.set == nil || a.acted != a.set.Version && a.waitsForOldTasks() {
		return
	}
	a.acted = a.set.Version
	if !a.identity.Recovering {
		return
	}
	id := a.identity
	id.Recovering = false
	if err := a.db.SetIdentity(id); err != nil {
		a.setFault("records", err.Error())
		return // recover again: what is recorded stays recorded
	}
	a.identity, a.set.Recovering = id, false
}

// waitsForOldTasks reports whether a wanted task has no record because an older grant of the same
// job and attempt is still being removed.
func (a *Agent) waitsForOldTasks() bool {
	for id, spec := range a.specs {
		if t := a.tasks[id]; t != nil && reconcile.Superseded(t.Granted, spec.GetGranted()) {
			return true
		}
	}
	return false
}

// seen returns the records of the loop for reconcile. O(tasks).
func (a *Agent) seen() []reconcile.Seen {
	list := make([]reconcile.Seen, 0, len(a.tasks))
	for _, t := range a.tasks {
		list = append(list, reconcile.Seen{
			ID: t.ID, Phase: t.Phase, CopiesOut: !a.foreign && t.copiesOut(), Work: t.work, Signalled: t.Signalled, KillAt: t.KillAt,
			Killed: t.killed, Doomed: t.Doomed != "", NotBefore: t.notBefore, Granted: t.Granted, Started: t.End.Started, Periodic: t.askedAt,
		})
	}
	return list
}

// take applies an action to the records. Its work waits in the backlog until they are written.
func (a *Agent) take(action reconcile.Action) {
	t := a.tasks[action.ID]
	switch action.Kind {
	case reconcile.Accept:
		t = a.accept(action.ID, reconcile.Accepted)
		t.CPUs = a.cores.take(t.ID, t.own().GetCpus(), a.numaOf(t))
		return
	case reconcile.Decline:
		t = a.accept(action.ID, reconcile.Clean)
		t.End.Cause = cluster.Stopped
		nudge(a.reports)
		return
	case reconcile.Disown:
		t = a.accept(action.ID, reconcile.Clean)
		t.End.Cause, t.End.Message = cluster.TaskLost, "the node lost its record of the task; it may have run"
		nudge(a.reports)
		return
	case reconcile.Forget:
		a.forgetTask(t)
		return
	case reconcile.Abandon:
		t.abandon()
		t.work = reconcile.Working
		return
	case reconcile.Start:
		t.work = reconcile.Starting
		if !t.Hooked && a.cfg.Prolog+a.cfg.Epilog != "" {
			t.Hooked = true
			a.dirty[t.ID] = true
		}
	case reconcile.Deliver:
		if action.Signal.Periodic() {
			t.askedAt = cluster.InstantOf(time.Now())
		} else {
			t.Signalled = max(t.Signalled, action.Signal.ID)
		}
		t.work = reconcile.Working
		a.dirty[t.ID] = true
	case reconcile.Stop:
		t.KillAt = action.KillAt
		t.work = reconcile.Working
		a.dirty[t.ID] = true
	case reconcile.Kill:
		t.killed = cluster.InstantOf(time.Now())
		t.work = reconcile.Working
	case reconcile.Remove:
		t.work = reconcile.Working
	}
	a.backlog = append(a.backlog, action)
}

// accept creates a record of a wanted task.
func (a *Agent) accept(id reconcile.ID, phase reconcile.Phase) *task {
	spec := a.specs[id]
	t := newTask(&taskdb.Task{ID: id, Phase: phase, Granted: spec.GetGranted()}, spec)
	a.tasks[id] = t
	a.dirty[id] = true
	return t
}

// forgetTask drops a record.
func (a *Agent) forgetTask(t *task) {
	delete(a.tasks, t.ID)
	delete(a.dirty, t.ID)
	a.cores.free(t.ID)
	a.forget = append(a.forget, t.ID)
}

// flush writes the changed records. If that fails, nothing may be acted on, and the node takes no
// more work until a write succeeds.
func (a *Agent) flush() bool {
	if len(a.dirty) == 0 && len(a.forget) == 0 {
		return true
	}
	change := taskdb.Change{Forget: a.forget, Floor: a.floor}
	for id := range a.dirty {
		if t := a.tasks[id]; t != nil {
			change.Put = append(change.Put, t.Task)
		}
	}
	if err := a.db.Write(change); err != nil {
		a.setFault("records", err.Error())
		return false
	}
	a.setFault("records", "")
	clear(a.dirty)
	a.forget = nil
	return true
}

// admit takes a set from the controllers and reports whether it counts.
func (a *Agent) admit(set *reconcile.Set, specs wantedTasks) bool {
	if a.foreign || !a.listed && a.identity.Recovering {
		return false
	}
	if !reconcile.Admit(set.Version, a.floor) && !a.rolledBack(set.Version) {
		return false
	}
	a.refused = time.Time{}
	if set.Version < a.floor {
		a.acted = 0 // the log was cut back: its indexes are used again
	}
	set.Recovering, set.Acted = a.identity.Recovering, a.acted
	a.set, a.specs, a.floor = set, specs, set.Version
	for id, spec := range specs {
		t := a.tasks[id]
		if t != nil && reconcile.Superseded(t.Granted, spec.GetGranted()) {
			a.log.Warn("removing a task of an earlier grant of the same job and attempt", "job", id.Job, "attempt", id.Attempt)
			continue
		}
		if t != nil && t.others != nil && !spec.GetWaits() {
			close(t.others)
			t.others = nil
		}
		if t != nil && t.spec == nil { // found without a record
			t.setSpec(spec)
			a.reopenSocket(t)
			t.Granted = spec.GetGranted()
			a.dirty[id] = true
		}
		if t != nil {
			a.updateMembers(t)
		}
	}
	a.stopUnwanted()
	return true
}

// rollbackDelay is the time after which the node follows a leader that sends only sets older
// than what the node has seen. A leader that was deposed without noticing gives up within seconds.
// One that still has a quorum after this time leads a cluster whose log was cut back (a recovery
// from a lost quorum).
const rollbackDelay = time.Minute

func (a *Agent) rolledBack(version uint64) bool {
	if a.refused.IsZero() {
		a.refused = time.Now()
		a.log.Warn("ignored an outdated desired set", "version", version, "last", a.floor)
	}
	if time.Since(a.refused) < rollbackDelay {
		return false
	}
	a.log.Warn("the cluster was restored to an earlier log index: accepting it", "version", version, "last", a.floor)
	return true
}

// endForeign completes the removal of another cluster's tasks.
func (a *Agent) endForeign() {
	if !a.foreign {
		return
	}
	for _, t := range a.tasks {
		if t.Phase != reconcile.Clean {
			return
		}
	}
	for _, t := range a.tasks {
		a.forgetTask(t)
	}
	a.foreign = false
	a.flush()
	nudge(a.reregister)
}
