package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/greylag/greylag/internal/reconcile"
	tasks "github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/pkg/cluster"
)

// Jobs that share a GPU under MPS are clients of one control daemon for that GPU, which runs as their user. It is
// started before the first of them and ended after the last. Its directory identifies it, so that it outlives gnoded.

// addMPS makes a task a client of the MPS daemon of its GPU.
func (a *Agent) addMPS(ctx context.Context, spec *tasks.Spec, l *launch) error {
	if !l.spec.GetMps() || len(l.gpus) != 1 {
		return nil
	}
	l.setWaitingFor("the MPS daemon of its GPU does not run yet")
	c := &mpsClient{device: l.gpus[0], memory: l.gpuMemory, jobs: l.spec.GetGpuShare(), owner: spec.Owner}
	c.shared = uint64(max(l.own.GetMemory(), 0)) * uint64(max(c.jobs, 1))
	if err := a.mps.start(ctx, c); err != nil {
		return failed(cluster.NodeFault, "%v: install %s on the node, or submit the job without :mps", err, filepath.Base(a.mps.program))
	}
	pipes := a.mps.pipes(c.index)
	if a.cfg.Isolated {
		spec.MPS, pipes = pipes, tasks.MPSDir
	}
	if a.mps.isolated() {
		spec.SharedMemory = a.mps.shm(c.index)
	}
	spec.Env = append(append(spec.Env, "CUDA_MPS_PIPE_DIRECTORY="+pipes), c.limits()...)
	return nil
}

// sharer is what the end of a task on a shared GPU needs from the state of the loop.
type sharer struct {
	uuids  []string
	gpus   []int32 // their indices
	shares bool
	mps    bool
}

// sharerOf returns what the end of a task needs. It runs in the loop.
func (a *Agent) sharerOf(t *task) sharer {
	s := sharer{uuids: a.uuidsOf(t), shares: t.spec.GetGpuShare() > 0, mps: t.spec.GetMps()}
	if own := t.own(); own != nil {
		s.gpus = own.GetGpus()
	}
	return s
}

// isShared reports whether another task has a GPU, or is to start there. It runs in the loop.
func (a *Agent) isShared(t *task, uuid string) bool {
	for _, other := range a.tasks {
		if other != t && other.Phase < reconcile.Clean && !other.leftGPU && slices.Contains(a.uuidsOf(other), uuid) {
			return true
		}
	}
	return false
}

// leaveGPU returns the GPUs of a task whose processes are gone, except those that other tasks have. Of these it ends
// the MPS daemon.
func (a *Agent) leaveGPU(ctx context.Context, t *task, s sharer) (own []string, err error) {
	if !s.shares {
		return s.uuids, nil
	}
	unshared := func() []string {
		var list []string
		err = a.ask(ctx, func() {
			t.leftGPU = true
			list = slices.DeleteFunc(slices.Clone(s.uuids), func(uuid string) bool { return a.isShared(t, uuid) })
		})
		return list
	}
	if own = unshared(); s.mps && len(own) > 0 && len(s.gpus) == 1 {
		ended := a.mps.stop(ctx, s.gpus[0], func() bool { own = unshared(); return err == nil && len(own) > 0 })
		err = errors.Join(err, ended)
	}
	return own, err
}

// endUnusedMPS ends the MPS daemons that an earlier gnoded left without tasks.
func (a *Agent) endUnusedMPS() {
	entries, err := os.ReadDir(a.mps.dir)
	if err != nil {
		return // there are none
	}
	for _, e := range entries {
		index, err := strconv.ParseInt(strings.TrimPrefix(e.Name(), "gpu"), 10, 32)
		if err != nil || slices.ContainsFunc(a.mpsGPUs(), func(g int32) bool { return g == int32(index) }) {
			continue
		}
		a.workers.Go(func() {
			limited, cancel := context.WithTimeout(context.Background(), 2*mpsTimeout)
			defer cancel()
			err := a.mps.stop(limited, int32(index), func() bool {
				used := false
				err := a.ask(limited, func() { used = slices.Contains(a.mpsGPUs(), int32(index)) })
				return err == nil && !used
			})
			if err != nil {
				a.log.Warn("an MPS daemon of an earlier gnoded remains", "gpu", index, "err", err)
			}
		})
	}
}

// mpsGPUs lists the GPUs of tasks that use MPS. It runs in the loop.
func (a *Agent) mpsGPUs() (list []int32) {
	for _, t := range a.tasks {
		if t.Phase < reconcile.Clean && !t.leftGPU && t.spec.GetMps() {
			list = append(list, a.sharerOf(t).gpus...)
		}
	}
	return list
}
