// Command gsim replays logs of real workloads and saved clusters through Greylag's own
// scheduler in virtual time.
package main

import (
	"context"
	"os"
	"runtime/debug"

	"github.com/greylag/greylag/internal/cli/gsim"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
)

// garbage is how much memory may be wasted, in percent of what is used: collecting
// costs a simulation more than memory does.
const garbage = 400

func main() {
	debug.SetGCPercent(garbage)
	os.Exit(ui.Interruptible(func(ctx context.Context) int {
		return gsim.Run(ctx, ui.ThisProcess("gsim", dial))
	}))
}

func dial(cfg config.Client) (ui.Cluster, error) {
	c, err := client.Dial(cfg)
	if err != nil {
		return nil, err // not a nil *client.Client in an interface
	}
	return c, nil
}
