// Command gnoded is the daemon of a compute node: it runs the tasks that the controllers place on
// the node. It may be stopped and started at any time; tasks continue.
package main

import (
	"cmp"
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/greylag/greylag/internal/checkpoint"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/daemonmain"
	"github.com/greylag/greylag/internal/staging"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if len(os.Args) == 2 && os.Args[1] == checkpoint.ChildCommand {
		os.Exit(checkpoint.ChildMain(ctx, os.Stdin, os.Stdout))
	}
	if len(os.Args) == 2 && os.Args[1] == staging.ChildCommand {
		os.Exit(staging.ChildMain(ctx, os.Stdin, os.Stdout))
	}
	os.Exit(run(ctx, os.Args[1:], os.Stderr))
}

// run is the program; it returns the exit status.
func run(ctx context.Context, args []string, stderr io.Writer) int {
	file := config.NodePath
	return daemonmain.Daemon[config.Node]{
		Name: "gnoded", About: "Runs the cluster's jobs on this host. Stopping it leaves them running.",
		Path: file, Load: func(path string) (config.Node, error) {
			file = cmp.Or(path, file)
			return config.LoadNode(path)
		},
		Serve: func(ctx context.Context, cfg config.Node, stderr io.Writer) error {
			log := cfg.Log.Logger(stderr)
			defer daemonmain.FollowLevel(log, func() (config.Log, error) { now, err := config.LoadNode(file); return now.Log, err })()
			return daemonmain.Ended(log, serve(ctx, cfg, file, log))
		},
	}.Main(ctx, args, stderr)
}
