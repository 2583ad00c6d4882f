// Command gcancel ends or signals jobs.
package main

import (
	"context"
	"os"

	"github.com/greylag/greylag/internal/cli"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
)

func main() {
	os.Exit(cli.Interruptible(func(ctx context.Context) int {
		return cli.Cancel(ctx, cli.ThisProcess("gcancel", dial))
	}))
}

func dial(cfg config.Client) (cli.Cluster, error) {
	c, err := client.DialOnce(cfg)
	if err != nil {
		return nil, err // not a nil *client.Client in an interface
	}
	return c, nil
}
