//go:build linux

package taskdir

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/greylag/greylag/internal/runtime/proc"
)

// Reach sends sig to every process of a task with send, which returns the number of processes
// besides ginit, the process first. If there was none, the program has not started and the signal
// must not be lost: ginit receives it when it listens, and forwards it, or does not start the
// program if it is to end. No process gets a signal twice.
//
// For SIGKILL ginit receives SIGTERM, since it has to record the end; the program gets SIGKILL as
// soon as it exists.
func (d Dir) Reach(ctx context.Context, first proc.Handle, sig syscall.Signal, send func() (int, error)) error {
	logged := false
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if reached, err := send(); err != nil || reached > 0 {
			return err
		}
		if sig == syscall.SIGSTOP || sig == syscall.SIGCONT || !first.Alive() {
			return nil
		}
		switch {
		case logged || !d.Started():
		case sig != syscall.SIGKILL:
			return ended(first.Signal(sig))
		default:
			logged = true
			if err := ended(first.Signal(syscall.SIGTERM)); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// ended ignores the error of a process that is gone.
func ended(err error) error {
	if errors.Is(err, proc.ErrGone) {
		return nil
	}
	return err
}
