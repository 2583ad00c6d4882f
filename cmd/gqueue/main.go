// Command gqueue shows the jobs that are pending or running.
package main

import (
	"context"
	"os"
	"runtime/debug"

	"github.com/greylag/greylag/internal/cli"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
)

// garbage is how much memory may be wasted, in percent of what is used: the process
// lives for a moment, and with 100,000 jobs collecting costs as much as reading.
const garbage = 3200

func main() {
	debug.SetGCPercent(garbage)
	os.Exit(cli.Interruptible(func(ctx context.Context) int {
		return cli.Queue(ctx, cli.ThisProcess("gqueue", dial))
	}))
}

func dial(cfg config.Client) (cli.Cluster, error) {
	c, err := client.DialOnce(cfg)
	if err != nil {
		return nil, err // not a nil *client.Client in an interface
	}
	return c, nil
}
