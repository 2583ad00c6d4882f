//go:build linux

package containerd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"

	"github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/internal/runtime/proc"
	"github.com/greylag/greylag/internal/runtime/taskdir"
	"github.com/greylag/greylag/internal/userfile"
)

// Wait implements runtime.Runtime. It needs containerd only if ginit was killed before it wrote its
// record.
func (r *Runtime) Wait(ctx context.Context, id runtime.TaskID) (runtime.Exit, error) {
	ctx = r.scope(ctx)
	release, err := r.locks.acquire(ctx, id) // a Start in progress has not recorded the process
	if err != nil {
		return runtime.Exit{}, err
	}
	release()
	dir := r.tasks.Dir(id)
	if !dir.Exists() {
		return runtime.Exit{}, fmt.Errorf("wait for task %s: %w", id, runtime.ErrNotFound)
	}
	handle, known, err := dir.Process()
	if err != nil {
		return runtime.Exit{}, err
	}
	if known {
		if err := handle.Wait(ctx); err != nil {
			return runtime.Exit{}, err
		}
	}
	record, recorded, err := dir.Record()
	if err != nil {
		return runtime.Exit{}, err
	}
	exit := runtime.Exit{
		Code: record.Code, Signal: record.Signal, LaunchError: record.LaunchError,
		Ended: time.Unix(0, record.Ended), PeakMemory: record.MaxRSS, CPUTime: time.Duration(record.CPU), UserTime: time.Duration(record.User),
		OOMKills: record.OOMKills,
	}
	if record.Started != 0 {
		exit.Started = time.Unix(0, record.Started)
	}
	if !recorded {
		if exit, err = r.unrecorded(ctx, id); err != nil {
			return runtime.Exit{}, err
		}
	}
	if !record.Measured { // repeated calls give the same answer, whether or not the group still exists
		r.measure(id, &exit)
	}
	exit.OOM = exit.OOMKills > 0 && (exit.Code != 0 || exit.Lost)
	return exit, nil
}

// unrecorded asks containerd how ginit ended, until it answers. If containerd does not know, the
// task is lost.
func (r *Runtime) unrecorded(ctx context.Context, id runtime.TaskID) (runtime.Exit, error) {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		answer, err := r.client.TaskService().Get(ctx, &tasks.GetRequest{ContainerID: id.String()})
		err = errgrpc.ToNative(err)
		switch {
		case errdefs.IsNotFound(err) && !r.tasks.Dir(id).Exists():
			return runtime.Exit{}, fmt.Errorf("end of task %s: %w", id, runtime.ErrNotFound)
		case errdefs.IsNotFound(err):
			return runtime.Exit{Lost: true, Ended: time.Now()}, nil
		case err == nil && answer.Process.Status == task.Status_STOPPED:
			return fromStatus(answer.Process.ExitStatus, answer.Process.ExitedAt.AsTime()), nil
		}
		// Still running: the shim is about to reap it. Otherwise containerd is away; ctx limits the
		// wait.
		select {
		case <-ctx.Done():
			return runtime.Exit{}, fmt.Errorf("end of task %s: %w", id, errors.Join(ctx.Err(), err))
		case <-time.After(pause):
		}
	}
}

// fromStatus returns the end of a ginit that wrote no record: it was killed with its program.
func fromStatus(status uint32, ended time.Time) runtime.Exit {
	exit := runtime.Exit{Code: int(status), Ended: ended}
	if status > 128 && status < 128+65 {
		exit.Signal = int(status) - 128
	}
	return exit
}

// measure adds the values of the control group, which exists until the task is removed, or under
// systemd until its last process ends. Without the group the values of the record stay.
func (r *Runtime) measure(id runtime.TaskID, exit *runtime.Exit) {
	group := r.group(id)
	if kills, err := group.OOMKills(); err == nil {
		exit.OOMKills = kills
	}
	if peak, err := group.PeakMemory(); err == nil && peak > 0 {
		exit.PeakMemory = peak
	}
	if used, err := group.CPUTime(); err == nil && used > 0 {
		exit.CPUTime = used
		if user, err := group.UserTime(); err == nil {
			exit.UserTime = user
		}
	}
}

// Signal implements runtime.Runtime. It does not need containerd.
func (r *Runtime) Signal(ctx context.Context, id runtime.TaskID, sig syscall.Signal, all bool) error {
	dir := r.tasks.Dir(id)
	if !dir.Exists() {
		return fmt.Errorf("signal task %s: %w", id, runtime.ErrNotFound)
	}
	handle, known, err := dir.Process()
	if err != nil {
		return err
	}
	if !known || !handle.Alive() {
		return nil
	}
	if all || sig == syscall.SIGKILL || sig == syscall.SIGSTOP || sig == syscall.SIGCONT {
		return dir.Reach(ctx, handle, sig, func() (int, error) {
			reached, err := r.group(id).Signal(sig, handle.PID)
			if sig == syscall.SIGKILL && reached > 0 && err == nil {
				// ginit stays to record the end; it ends after its program.
				err = r.group(id).Kill(ctx, handle.PID)
			}
			return reached, err
		})
	}
	if err := handle.Signal(sig); err != nil && !errors.Is(err, proc.ErrGone) {
		return fmt.Errorf("signal task %s: %w", id, err)
	}
	return nil
}

// Remove implements runtime.Runtime. It makes two calls to containerd.
func (r *Runtime) Remove(ctx context.Context, id runtime.TaskID) error {
	release, err := r.locks.acquire(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	return r.remove(r.scope(ctx), id)
}

// remove removes a task in any state. The caller holds its lock.
func (r *Runtime) remove(ctx context.Context, id runtime.TaskID) error {
	dir := r.tasks.Dir(id)
	notes, err := dir.Notes()
	if err != nil {
		notes.Snapshot = true // unreadable: check for everything
	}
	err = dir.Fence()
	if err == nil {
		err = r.kill(ctx, id, dir)
	}
	if err != nil {
		return fmt.Errorf("remove task %s: %w", id, err)
	}
	if err := r.deleteTask(ctx, id); err != nil {
		return fmt.Errorf("remove task %s: %w", id, unavailable(err))
	}
	err = r.client.ContainerService().Delete(ctx, id.String())
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("remove container %s: %w", id, unavailable(err))
	}
	if notes.Snapshot || !dir.Exists() {
		err := r.client.SnapshotService(r.config.Snapshotter).Remove(ctx, id.String())
		if err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("remove snapshot of task %s: %w", id, unavailable(err))
		}
	}
	if err := r.group(id).Remove(); err != nil {
		return err
	}
	for _, dir := range []string{
		filepath.Join(r.config.ScratchDir, id.String()),
		// Already removed, unless the shim was killed.
		filepath.Join(ociState(r.config), r.config.Namespace, id.String()),
	} {
		if err := userfile.RemoveTree(dir); err != nil {
			return fmt.Errorf("remove directories of task %s: %w", id, err)
		}
	}
	return dir.Remove()
}

// kill kills ginit, and with it every process of its PID namespace, and all other processes of the
// control group.
func (r *Runtime) kill(ctx context.Context, id runtime.TaskID, dir taskdir.Dir) error {
	handle, known, err := dir.Process()
	if err == nil && known {
		if err := handle.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, proc.ErrGone) {
			return err
		}
	}
	return r.group(id).Kill(ctx)
}

// deleteTask makes the shim clean up. A shim that has not yet noticed the end of ginit refuses;
// then it waits.
func (r *Runtime) deleteTask(ctx context.Context, id runtime.TaskID) error {
	service := r.client.TaskService()
	var err error
	for range 3 {
		_, err = service.Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: id.String()})
		err = errgrpc.ToNative(err)
		if err == nil || errdefs.IsNotFound(err) {
			return nil
		}
		// Usually "cannot delete a running process", which has no code of its own.
		_, errWait := service.Wait(ctx, &tasks.WaitRequest{ContainerID: id.String()})
		if errWait = errgrpc.ToNative(errWait); errdefs.IsNotFound(errWait) {
			return nil
		} else if errWait != nil {
			return errors.Join(err, errWait)
		}
	}
	return err
}

// Processes implements runtime.ProcessLister.
func (r *Runtime) Processes(id runtime.TaskID) ([]int, error) { return r.group(id).Processes() }

// Stats implements runtime.Runtime. It reads only the control group.
func (r *Runtime) Stats(_ context.Context, id runtime.TaskID) (runtime.Stats, error) {
	group := r.group(id)
	memory, errMemory := group.Memory()
	used, errCPU := group.CPUTime()
	pids, errPids := group.Processes()
	if err := errors.Join(errMemory, errCPU, errPids); err != nil {
		return runtime.Stats{}, fmt.Errorf("stats of task %s: %w: %w", id, runtime.ErrNotFound, err)
	}
	stats := runtime.Stats{Memory: memory, CPUTime: used, Processes: uint64(len(pids))}
	if peak, err := group.PeakMemory(); err == nil { // version 2 before Linux 5.19 has none
		stats.PeakMemory = peak
	}
	return stats, nil
}
