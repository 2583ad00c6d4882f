package ui

import (
	"context"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/config"
)

// TestInterruptible checks that Ctrl-C ends a command that observes its context with its own
// status, and one that waits for input without.
func TestInterruptible(t *testing.T) {
	pipe, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	defer end.Close()
	interrupt := func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct {
		name string
		run  func(context.Context) int
		want Status
	}{
		{"no interrupt", func(context.Context) int { return 7 }, 7},
		{"the command sees it", func(ctx context.Context) int { interrupt(); <-ctx.Done(); return 8 }, 8},
		{"the command reads a pipe", func(context.Context) int { interrupt(); _, _ = io.ReadAll(pipe); return 9 }, Interrupted},
	} {
		if got := Interruptible(c.run); got != int(c.want) {
			t.Errorf("%s: status %d, want %d", c.name, got, c.want)
		}
	}
}

// TestTermInsideAJob checks that a command that gets SIGTERM with its job still gets the answer to
// its call. One that continues is ended a moment later.
func TestTermInsideAJob(t *testing.T) {
	t.Setenv(config.SocketEnv, "/dev/greylag/job/socket")
	term := func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	}
	for name, run := range map[string]func(context.Context) int{
		"an answer is under way": func(ctx context.Context) int {
			term()
			select {
			case <-ctx.Done():
				return int(Interrupted)
			case <-time.After(termGrace / 10):
				return 7
			}
		},
		"the command goes on": func(ctx context.Context) int { term(); <-ctx.Done(); return 7 },
	} {
		if got := Interruptible(run); got != 7 {
			t.Errorf("%s: status %d", name, got)
		}
	}
}
