// Command grun runs programs on the nodes of a job.
package main

import (
	"context"
	"os"

	"github.com/greylag/greylag/internal/cli/grun"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
)

func main() {
	os.Exit(grun.Run(context.Background(), ui.ThisProcess("grun", dial)))
}

func dial(cfg config.Client) (ui.Cluster, error) {
	c, err := client.DialOnce(cfg)
	if err != nil {
		return nil, err // not a nil *client.Client in an interface
	}
	return c, nil
}
