// Command gnoded is the daemon of a compute node: it runs what the controllers
// want on the node. It may be stopped and started at any time; tasks go on.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/greylag/greylag/internal/agent"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stderr))
}

func run(ctx context.Context, args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("gnoded", flag.ContinueOnError)
	flags.SetOutput(stderr)
	path := flags.String("config", "", "read this `file` instead of "+config.NodePath)
	flags.Usage = func() {
		fmt.Fprint(stderr, "usage: gnoded [--config FILE]\n\nRuns the cluster's jobs on this host. Stopping it leaves them running.\nExit status: 0 stopped by a signal, 1 failed, 2 wrong usage or configuration.\n")
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0:
		flags.Usage()
		return 2
	}
	cfg, err := config.LoadNode(*path)
	if err != nil {
		fmt.Fprintf(stderr, "gnoded: error: %v\n", err)
		return 2
	}
	if err := serve(ctx, cfg, cfg.Log.Logger(stderr)); err != nil {
		fmt.Fprintf(stderr, "gnoded: error: %v\n", err)
		return 1
	}
	return 0
}

func serve(ctx context.Context, cfg config.Node, log *slog.Logger) error {
	id, trust, err := pki.OpenIdentity(cfg.PKIDir)
	if err != nil {
		return err
	}
	cfg.Name = id.Peer().Name // what the controllers know this node by
	parts := assemble(cfg, log)
	defer parts.close()
	session := client.New(client.Config{Controllers: cfg.Controllers, TLS: pki.ClientTLS(trust, id)})
	node, err := agent.New(parts.config, session.Node(), parts.runtime, parts.gpus)
	if err != nil {
		return err
	}
	var renewing sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	defer func() { stop(); renewing.Wait(); session.Close() }()
	renewing.Go(func() {
		pki.Renew(ctx, cfg.PKIDir, id, pki.RenewFrom(cfg.Controllers, trust, id), pki.LogRenewals(log, id))
	})
	log.Info("serving", "node", cfg.Name, "cluster", trust.ClusterID(), "version", version.Version)
	return node.Run(ctx)
}
