// Command gslurm is Slurm's commands: sbatch, squeue, scancel and others, by the name by which it is
// called.
package main

import (
	"context"
	"os"
	"runtime/debug"

	"github.com/greylag/greylag/internal/cli/express"
	"github.com/greylag/greylag/internal/cli/gslurm"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
)

// garbage is how much memory may be wasted, in percent of what is used: the process
// lives for a moment, and with 100,000 jobs collecting costs as much as reading.
const garbage = 3200

func main() {
	debug.SetGCPercent(garbage)
	request := os.Getenv(express.RequestVariable)
	os.Unsetenv(express.RequestVariable) // it is not for jobs
	run := func(ctx context.Context) int {
		p := ui.ThisProcess(os.Args[0], dial)
		p.Request = request
		return gslurm.Run(ctx, p)
	}
	if gslurm.PassesSignals(os.Args) {
		os.Exit(run(context.Background()))
	}
	os.Exit(ui.Interruptible(run))
}

func dial(cfg config.Client) (ui.Cluster, error) {
	c, err := client.DialOnce(cfg)
	if err != nil {
		return nil, err // not a nil *client.Client in an interface
	}
	return c, nil
}
