// Command gqueue shows the jobs that are pending or running.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/greylag/greylag/internal/cli"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
)

// garbage is how much memory may be wasted, in percent of what is used: the process
// lives for a moment, and with 100,000 jobs collecting costs as much as reading.
const garbage = 3200

func main() {
	debug.SetGCPercent(garbage)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := cli.Queue(ctx, cli.ThisProcess("gqueue", dial))
	stop()
	os.Exit(status)
}

func dial(cfg config.Client) (cli.Cluster, error) {
	c, err := client.DialOnce(cfg)
	if err != nil {
		return nil, err // not a nil *client.Client in an interface
	}
	return c, nil
}
