// Command gctl inspects and manages a cluster, its jobs and its nodes. Under
// the name gsubmit it is the full gsubmit.
package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/greylag/greylag/internal/cli/express"
	"github.com/greylag/greylag/internal/cli/gctl"
	"github.com/greylag/greylag/internal/cli/gctl/interactive"
	"github.com/greylag/greylag/internal/cli/gsubmit"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
)

func main() {
	if interactive.Named(os.Args[1:]) {
		os.Exit(run(context.Background()))
	}
	os.Exit(ui.Interruptible(run))
}

func run(ctx context.Context) int {
	if filepath.Base(os.Args[0]) != "gsubmit" {
		return gctl.Run(ctx, ui.ThisProcess("gctl", dial))
	}
	request := os.Getenv(express.RequestVariable)
	os.Unsetenv(express.RequestVariable) // it is not for jobs
	submit := ui.ThisProcess("gsubmit", dial)
	submit.Request = request
	return gsubmit.Run(ctx, submit)
}

func dial(cfg config.Client) (ui.Cluster, error) {
	c, err := client.DialOnce(cfg)
	if err != nil {
		return nil, err // not a nil *client.Client in an interface
	}
	return c, nil
}
