package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/greylag/greylag/internal/reconcile"
	"github.com/greylag/greylag/internal/scratch"
	"github.com/greylag/greylag/pkg/cluster"
)

// scratchAttempt returns the identity of a task's scratch space.
func scratchAttempt(id reconcile.ID) scratch.Attempt {
	return scratch.Attempt{Job: uint64(id.Job), Number: uint32(id.Attempt)}
}

// scratchArea returns the node's scratch directory.
func (a *Agent) scratchArea() scratch.Area {
	return scratch.Area{Dir: a.cfg.ScratchDir, Node: a.cfg.Name}
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
	return a.scratchArea().Path(scratchAttempt(t.ID))
}

// createScratch creates the scratch space of a task.
func (a *Agent) createScratch(ctx context.Context, l *launch) error {
	if l.tmpDir == "" {
		return nil
	}
	l.setWaitingFor("the scratch directory has not been searched for space of earlier jobs yet")
	select {
	case <-a.staleScratchRenamed:
	case <-ctx.Done():
		return ctx.Err()
	}
	_, err := a.scratchArea().Create(scratchAttempt(l.id), l.spec.GetUid(), l.spec.GetGid(), uint64(l.spec.GetTmp()))
	if err != nil {
		return failed(cluster.NodeFault, "cannot create scratch space on node %s: %v", l.node, err)
	}
	return nil
}

// removeScratch removes the scratch space of a task, if it has any. What cannot be removed, since processes of the
// user use it for instance, is tried again with each check of the node.
func (a *Agent) removeScratch(id reconcile.ID) {
	if a.cfg.ScratchDir == "" {
		return
	}
	left, err := a.scratchArea().Remove(scratchAttempt(id))
	if err != nil {
		a.post(func() { a.deletedScratch(left, err); a.applyLeftScratch() })
	}
}

// deletedScratch applies the result of a removal of a scratch directory. It runs in the loop.
func (a *Agent) deletedScratch(path string, err error) {
	switch {
	case err == nil:
		delete(a.leftScratch, path)
		return
	case a.leftScratch[path] == nil:
		a.log.Warn("cannot remove scratch directory: it is tried again with each check of the node", "path", path, "err", err)
	}
	a.leftScratch[path] = err
}

// applyLeftScratch takes the node out of service while its disk prevents a removal. It runs in the loop.
func (a *Agent) applyLeftScratch() {
	for _, path := range slices.Sorted(maps.Keys(a.leftScratch)) {
		if err := a.leftScratch[path]; scratch.IsDiskFault(err) {
			a.setFault("scratch removal", fmt.Sprintf("cannot remove scratch directory %s: %v", path, err))
			return
		}
	}
	a.setFault("scratch removal", "")
}

// deleteScratch removes what is left of scratch space in a goroutine. It runs in the loop.
func (a *Agent) deleteScratch() {
	if a.deletingScratch || len(a.leftScratch) == 0 {
		return
	}
	a.deletingScratch = true
	paths, area, stopping := slices.Sorted(maps.Keys(a.leftScratch)), a.scratchArea(), a.reading
	a.workers.Go(func() {
		for _, path := range paths {
			if stopping.Err() != nil {
				break
			}
			err := area.Delete(path)
			a.post(func() { a.deletedScratch(path, err) })
		}
		a.post(func() { a.deletingScratch = false; a.applyLeftScratch() })
	})
}

// removeStaleScratch removes the scratch directories of tasks that no longer exist. Call it after the runtime
// has listed its tasks, in the loop or before it starts. Tasks with scratch space wait until they are renamed.
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
		paths, err := a.scratchArea().Discard(func(other scratch.Attempt) bool { return kept[other] })
		close(a.staleScratchRenamed)
		if err != nil { // as checkScratch reports too
			a.log.Warn("cannot search the scratch directory for space of earlier tasks", "scratch_dir", a.cfg.ScratchDir, "err", err)
		}
		a.post(func() {
			for _, path := range paths {
				a.log.Info("removing the scratch directory of an earlier task", "path", path)
				a.leftScratch[path] = nil
			}
			a.deleteScratch()
		})
	})
}
