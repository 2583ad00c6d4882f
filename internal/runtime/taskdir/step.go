//go:build linux

package taskdir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/greylag/greylag/internal/ginit"
	"github.com/greylag/greylag/internal/runtime"
)

// Steps implements runtime.Steps with the directories of a root: ginit does the rest.
type Steps struct{ Root Root }

// StartStep implements runtime.Steps.
func (s Steps) StartStep(_ context.Context, id runtime.TaskID, step uint32, order []byte, owner runtime.Owner) error {
	dir := s.Root.Dir(id)
	if !dir.Exists() {
		return fmt.Errorf("start step %d of task %s: %w", step, id, runtime.ErrNotFound)
	}
	return dir.WriteStep(step, order, owner.UID, owner.GID)
}

// WaitStep implements runtime.Steps.
func (s Steps) WaitStep(ctx context.Context, id runtime.TaskID, step uint32) (runtime.Exit, error) {
	record, err := s.Root.Dir(id).WaitStep(ctx, step)
	if err != nil {
		return runtime.Exit{}, fmt.Errorf("task %s: %w", id, err)
	}
	return runtime.Exit{
		Code: record.Code, Signal: record.Signal, LaunchError: record.LaunchError, Ended: time.Unix(0, record.Ended),
		OOMKills: record.OOMKills, OOM: record.OOMKills > 0 && record.Code != 0,
		PeakMemory: record.MaxRSS, CPUTime: time.Duration(record.CPU), UserTime: time.Duration(record.User),
	}, nil
}

// SignalStep implements runtime.Steps.
func (s Steps) SignalStep(_ context.Context, id runtime.TaskID, step uint32, number uint64, sig syscall.Signal) error {
	return s.Root.Dir(id).SignalStep(step, number, sig)
}

// WriteStep stores the order of a step, readable only by its owner. ginit starts the step once; its
// program reads an order that replaces another one. WriteStep does nothing if the order is stored
// already.
func (d Dir) WriteStep(step uint32, order []byte, uid, gid uint32) error {
	name := ginit.StepOrderFile(step)
	path := filepath.Join(string(d), name)
	if holds(path, order) {
		return nil
	}
	temporary := path + ".new"
	err := os.WriteFile(temporary, order, 0o400)
	if err == nil && os.Geteuid() == 0 {
		err = os.Lchown(temporary, int(uid), int(gid))
	}
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("order of step %d: %w", step, err), ignoreAbsent(os.Remove(temporary)))
	}
	return nil
}

// holds reports whether a file has a content. The task's user owns the file and may have changed it: it may
// be of any size.
func holds(path string, content []byte) bool {
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() || info.Size() != int64(len(content)) {
		return false
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	stored, err := io.ReadAll(io.LimitReader(f, int64(len(content))+1))
	return err == nil && bytes.Equal(stored, content)
}

// SignalStep has ginit send a signal to the program of a step, once for each ID.
func (d Dir) SignalStep(step uint32, id uint64, sig syscall.Signal) error {
	path := filepath.Join(string(d), ginit.StepSignalFile(step, id, int32(sig)))
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	temporary := path + ".new"
	err := os.WriteFile(temporary, nil, 0o600)
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return fmt.Errorf("signal of step %d: %w", step, err)
	}
	return nil
}

// WaitStep waits until ginit has recorded the end of a step. Errors: runtime.ErrNotFound if the task has
// no directory, or the error of ctx.
func (d Dir) WaitStep(ctx context.Context, step uint32) (ginit.Record, error) {
	if record, known, err := d.record(ginit.StepRecordFile(step)); known || err != nil {
		return record, err
	}
	if ctx.Err() != nil {
		return ginit.Record{}, ctx.Err()
	}
	watch, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return ginit.Record{}, fmt.Errorf("wait for step %d: %w", step, err)
	}
	events := os.NewFile(uintptr(watch), "inotify")
	defer events.Close()
	stop := context.AfterFunc(ctx, func() { _ = events.Close() }) // ends Read
	defer stop()
	if _, err := syscall.InotifyAddWatch(watch, string(d), syscall.IN_MOVED_TO|syscall.IN_DELETE_SELF); err != nil {
		return ginit.Record{}, fmt.Errorf("wait for step %d: %w", step, notFound(err))
	}
	buffer := make([]byte, 4096)
	for {
		record, known, err := d.record(ginit.StepRecordFile(step))
		if known || err != nil {
			return record, err
		}
		if !d.Exists() {
			return ginit.Record{}, fmt.Errorf("wait for step %d: %w", step, runtime.ErrNotFound)
		}
		if _, err := events.Read(buffer); err != nil {
			if ctx.Err() != nil {
				return ginit.Record{}, ctx.Err()
			}
			return ginit.Record{}, fmt.Errorf("wait for step %d: %w", step, err)
		}
	}
}

// notFound marks the error of a missing directory.
func notFound(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return runtime.ErrNotFound
	}
	return err
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
