// Command gcancel ends or signals jobs.
package main

import (
	"context"
	"os"

	"github.com/greylag/greylag/internal/cli/gcancel"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
)

func main() {
	os.Exit(ui.Interruptible(func(ctx context.Context) int {
		return gcancel.Run(ctx, ui.ThisProcess("gcancel", dial))
	}))
}

func dial(cfg config.Client) (ui.Cluster, error) {
	c, err := client.DialOnce(cfg)
	if err != nil {
		return nil, err // not a nil *client.Client in an interface
	}
	return c, nil
}
