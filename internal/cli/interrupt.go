package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// farewell is how long an interrupted command has for its last words.
const farewell = time.Second

// Interruptible runs a command until it returns its exit status, with a context that
// Ctrl-C and SIGTERM end. One that waits for a terminal or a pipe does not see that
// end: it is given up.
func Interruptible(run func(context.Context) int) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ended := make(chan int, 1)
	go func() { ended <- run(ctx) }()
	select {
	case status := <-ended:
		return status
	case <-ctx.Done():
	}
	stop() // a second Ctrl-C does not wait for the last words
	select {
	case status := <-ended:
		return status
	case <-time.After(farewell):
		return int(Interrupted)
	}
}
