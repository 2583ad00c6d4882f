// Command gsubmit submits batch scripts.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/greylag/greylag/internal/cli"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := cli.Submit(ctx, cli.ThisProcess("gsubmit", dial))
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
