//go:build linux

package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
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
)

// Wait implements runtime.Runtime. It needs containerd only where ginit was
// killed before it could write its record.
func (r *Runtime) Wait(ctx context.Context, id runtime.TaskID) (runtime.Exit, error) {
	ctx = r.scope(ctx)
	release, err := r.locks.acquire(ctx, id) // a Start under way has not yet said which process
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
	if !record.Measured { // else twice the same answer, whether or not the group is there yet
		r.measure(id, &exit)
	}
	exit.OOM = exit.OOMKills > 0 && (exit.Code != 0 || exit.Lost)
	return exit, nil
}

// unrecorded asks containerd how ginit itself ended, until it answers. Where it
// does not know either, the task is lost.
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
		// Running yet: the shim is about to reap. Otherwise containerd is away;
		// the context bounds how long we ask.
		select {
		case <-ctx.Done():
			return runtime.Exit{}, fmt.Errorf("end of task %s: %w", id, errors.Join(ctx.Err(), err))
		case <-time.After(pause):
		}
	}
}

// fromStatus is the end of a ginit that wrote no record: it was killed, and
// its program with it.
func fromStatus(status uint32, ended time.Time) runtime.Exit {
	exit := runtime.Exit{Code: int(status), Ended: ended}
	if status > 128 && status < 128+65 {
		exit.Signal = int(status) - 128
	}
	return exit
}

// measure adds what only the control group knows; it goes when the task is
// removed, or with its last process where systemd made it. A group that is gone
// leaves what the record says.
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

// Signal implements runtime.Runtime. It needs no containerd.
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
				// ginit stays, to record the end; it ends when its program has.
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

// Remove implements runtime.Runtime. Two calls to containerd.
func (r *Runtime) Remove(ctx context.Context, id runtime.TaskID) error {
	release, err := r.locks.acquire(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	return r.remove(r.scope(ctx), id)
}

// remove takes away a task in whatever state it is. The caller holds its lock.
func (r *Runtime) remove(ctx context.Context, id runtime.TaskID) error {
	dir := r.tasks.Dir(id)
	notes, err := dir.Notes()
	if err != nil {
		notes.Snapshot = true // unreadable: look for everything
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
		// Gone already, unless the shim was killed.
		filepath.Join(ociState(r.config), r.config.Namespace, id.String()),
	} {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove folders of task %s: %w", id, err)
		}
	}
	return dir.Remove()
}

// kill ends ginit, and with it every process of its PID namespace, and whoever
// else is in the control group.
func (r *Runtime) kill(ctx context.Context, id runtime.TaskID, dir taskdir.Dir) error {
	handle, known, err := dir.Process()
	if err == nil && known {
		if err := handle.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, proc.ErrGone) {
			return err
		}
	}
	return r.group(id).Kill(ctx)
}

// deleteTask tells the shim to clean up. A shim that has not yet noticed that
// ginit ended refuses; then we wait for it to notice.
func (r *Runtime) deleteTask(ctx context.Context, id runtime.TaskID) error {
	service := r.client.TaskService()
	var err error
	for range 3 {
		_, err = service.Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: id.String()})
		err = errgrpc.ToNative(err)
		if err == nil || errdefs.IsNotFound(err) {
			return nil
		}
		// Most often "cannot delete a running process", which has no code of its own.
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

// Stats implements runtime.Runtime. It reads the control group alone.
func (r *Runtime) Stats(_ context.Context, id runtime.TaskID) (runtime.Stats, error) {
	group := r.group(id)
	memory, errMemory := group.Memory()
	used, errCPU := group.CPUTime()
	pids, errPids := group.Processes()
	if err := errors.Join(errMemory, errCPU, errPids); err != nil {
		return runtime.Stats{}, fmt.Errorf("stats of task %s: %w: %w", id, runtime.ErrNotFound, err)
	}
	stats := runtime.Stats{Memory: memory, CPUTime: used, Processes: uint64(len(pids))}
	if peak, err := group.PeakMemory(); err == nil { // not before Linux 5.19 on version 2
		stats.PeakMemory = peak
	}
	return stats, nil
}
