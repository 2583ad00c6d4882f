package ui

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/greylag/greylag/internal/config"
)

// farewell is how long an interrupted command may take for its last output.
const farewell = time.Second

// termGrace is how long a command inside a job may continue after SIGTERM. Every process of a job
// that is stopped gets the signal, including the command that requested the stop, which must still
// get its answer.
const termGrace = 2 * time.Second

// Interruptible runs a command until it returns its exit status, with a context that Ctrl-C and
// SIGTERM cancel. One that waits for a terminal or a pipe does not notice that: it is abandoned.
func Interruptible(run func(context.Context) int) int {
	ctx, stop := untilInterrupted(os.Getenv(config.SocketEnv) != "")
	defer stop()
	ended := make(chan int, 1)
	go func() { ended <- run(ctx) }()
	select {
	case status := <-ended:
		return status
	case <-ctx.Done():
	}
	stop() // a second Ctrl-C does not wait for the last output
	select {
	case status := <-ended:
		return status
	case <-time.After(farewell):
		return int(Interrupted)
	}
}

// untilInterrupted returns a context that Ctrl-C and SIGTERM cancel; inside a job SIGTERM cancels
// it termGrace later.
func untilInterrupted(inJob bool) (context.Context, context.CancelFunc) {
	if !inJob {
		return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-term:
			time.AfterFunc(termGrace, cancel)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(term)
		cancel()
		stop()
	}
}
