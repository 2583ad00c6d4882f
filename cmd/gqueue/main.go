// Command gqueue shows the jobs that are pending or running.
package main

import (
	"context"
	"os"
	"runtime/debug"

	"github.com/greylag/greylag/internal/cli/gqueue"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
)

// garbage is how much memory may be wasted, in percent of what is used: the process
// lives for a moment, and with 100,000 jobs collecting costs as much as reading.
const garbage = 3200

func main() {
	debug.SetGCPercent(garbage)
	os.Exit(ui.Interruptible(func(ctx context.Context) int {
		return gqueue.Run(ctx, ui.ThisProcess("gqueue", dial))
	}))
}

func dial(cfg config.Client) (ui.Cluster, error) {
	c, err := client.DialOnce(cfg)
	if err != nil {
		return nil, err // not a nil *client.Client in an interface
	}
	return c, nil
}
