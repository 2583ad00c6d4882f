package agent

import (
	"context"
	"fmt"
	"slices"

	"github.com/greylag/greylag/internal/reconcile"
	"github.com/greylag/greylag/internal/scratch"
	"github.com/greylag/greylag/pkg/cluster"
)

// scratchAttempt returns the identity of a task's scratch space.
func scratchAttempt(id reconcile.ID) scratch.Attempt {
	return scratch.Attempt{Job: uint64(id.Job), Number: uint32(id.Attempt)}
}

// checkScratch checks ScratchDir. It returns the zero Space if it is not set.
func (a *Agent) checkScratch() (scratch.Space, error) {
	if a.cfg.ScratchDir == "" {
		return scratch.Space{}, nil
	}
	return scratch.Check(a.cfg.ScratchDir)
}

// applyScratch applies a check of the scratch directory. While it fails, the node gets no new jobs. The
// first successful check determines how much the node offers.
func (a *Agent) applyScratch(space scratch.Space, err error) {
	if a.cfg.ScratchDir == "" {
		return
	}
	size := min((int64(space.Total)-int64(a.cfg.ScratchReserve))/int64(cluster.MiB), cluster.MaxGresCount)
	switch {
	case err != nil:
		a.setFault("scratch", "scratch_dir: "+err.Error())
		return
	case size < 1:
		a.setFault("scratch", fmt.Sprintf("scratch_dir: scratch_reserve leaves no space for jobs: the file system of %s has only %v", a.cfg.ScratchDir, cluster.Bytes(space.Total)))
		return
	}
	a.setFault("scratch", "")
	if a.scratch > 0 {
		return
	}
	a.scratch = size
	nudge(a.reregister)
	if !space.Limited {
		a.log.Warn("jobs can exceed their --tmp: the file system does not enforce project quotas", "scratch_dir", a.cfg.ScratchDir)
	}
}

// gres returns the generic resources of the node.
func (a *Agent) gres() []cluster.Gres {
	if a.scratch == 0 {
		return a.cfg.Gres
	}
	list := append(slices.Clone(a.cfg.Gres), cluster.Gres{Name: cluster.GresTmp, Count: a.scratch})
	cluster.SortGres(list)
	return list
}

// tmpDirOf returns the path of a task's scratch space; "" if it has none.
func (a *Agent) tmpDirOf(t *task) string {
	if a.cfg.ScratchDir == "" || t.spec.GetTmp() <= 0 {
		return ""
	}
	return scratch.Path(a.cfg.ScratchDir, scratchAttempt(t.ID))
}

// createScratch creates the scratch space of a task.
func (a *Agent) createScratch(ctx context.Context, l *launch) error {
	if l.tmpDir == "" {
		return nil
	}
	l.setWaitingFor("the scratch space of earlier jobs has not been removed yet")
	select {
	case <-a.staleScratchRemoved:
	case <-ctx.Done():
		return ctx.Err()
	}
	_, err := scratch.Create(a.cfg.ScratchDir, scratchAttempt(l.id), l.spec.GetUid(), l.spec.GetGid(), uint64(l.spec.GetTmp()))
	if err != nil {
		return failed(cluster.NodeFault, "cannot create scratch space on node %s: %v", l.node, err)
	}
	return nil
}

// removeScratch removes the scratch space of a task, if it has any.
func (a *Agent) removeScratch(id reconcile.ID) []problem {
	if a.cfg.ScratchDir == "" {
		return nil
	}
	if err := scratch.Remove(a.cfg.ScratchDir, scratchAttempt(id)); err != nil {
		return []problem{{"scratch of " + taskID(id).String(), fmt.Sprintf("cannot remove the scratch space of task %s: %v%s", taskID(id), err, untilRestart)}}
	}
	return nil
}

// removeStaleScratch removes the scratch directories of tasks that no longer exist. Call it after the runtime
// has listed its tasks, in the loop or before it starts. Tasks with scratch space wait for it.
func (a *Agent) removeStaleScratch() {
	if a.cfg.ScratchDir == "" {
		return
	}
	kept := map[scratch.Attempt]bool{}
	for id, t := range a.tasks {
		if t.Phase < reconcile.Clean {
			kept[scratchAttempt(id)] = true
		}
	}
	a.workers.Go(func() {
		err := scratch.RemoveOthers(a.cfg.ScratchDir, func(other scratch.Attempt) bool { return kept[other] })
		close(a.staleScratchRemoved)
		if err != nil {
			a.post(func() {
				a.setFault("scratch of earlier tasks", fmt.Sprintf("cannot remove the scratch space of earlier tasks: %v%s", err, untilRestart))
			})
		}
	})
}
