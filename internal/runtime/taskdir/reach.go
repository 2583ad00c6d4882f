//go:build linux

package taskdir

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/greylag/greylag/internal/runtime/proc"
)

// Reach sends sig to every process of a task with send, which tells how many there
// were beside ginit, the process first. Where there was none the program has yet to
// begin, and the signal must not be lost: ginit is told as soon as it listens, and
// passes it on, or does not begin the program where it is to end. So no process
// gets a signal twice.
//
// Of SIGKILL ginit is told with SIGTERM, since it has to record the end, and the
// program gets it once there is one all the same.
func (d Dir) Reach(ctx context.Context, first proc.Handle, sig syscall.Signal, send func() (int, error)) error {
	told := false
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if reached, err := send(); err != nil || reached > 0 {
			return err
		}
		if sig == syscall.SIGSTOP || sig == syscall.SIGCONT || !first.Alive() {
			return nil
		}
		switch {
		case told || !d.Started():
		case sig != syscall.SIGKILL:
			return ended(first.Signal(sig))
		default:
			told = true
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

// ended makes nothing of a process that is gone.
func ended(err error) error {
	if errors.Is(err, proc.ErrGone) {
		return nil
	}
	return err
}
