// Command gauthd runs on login nodes and vouches to the cluster for who is calling.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/pki"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stderr))
}

// run is the program. It returns the exit status: 0 stopped by a signal, 1 failed, 2 wrong usage or
// configuration.
func run(ctx context.Context, args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("gauthd", flag.ContinueOnError)
	flags.SetOutput(stderr)
	path := flags.String("config", "", "read this `file` instead of "+config.AuthPath)
	flags.Usage = func() {
		fmt.Fprint(stderr, "usage: gauthd [--config FILE]\n\nVouches for the users of this host towards the cluster's controllers.\nExit status: 0 stopped by a signal, 1 failed, 2 wrong usage or configuration.\n")
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
	cfg, err := config.LoadAuth(*path)
	if err != nil {
		fmt.Fprintf(stderr, "gauthd: error: %v\n", err)
		return 2
	}
	if err := serve(ctx, cfg, stderr); err != nil {
		fmt.Fprintf(stderr, "gauthd: error: %v\n", err)
		return 1
	}
	return 0
}

func serve(ctx context.Context, cfg config.Auth, stderr io.Writer) error {
	log := cfg.Log.Logger(stderr)
	id, trust, err := pki.OpenIdentity(cfg.PKIDir)
	if err != nil {
		return err
	}
	signer, err := auth.NewSigner(id)
	if err != nil {
		return err
	}
	listener, err := auth.Listen(cfg.Socket)
	if err != nil {
		return err
	}
	var renewing sync.WaitGroup
	defer renewing.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	renewing.Go(func() {
		pki.Renew(ctx, cfg.PKIDir, id, pki.RenewFrom(cfg.Controllers, trust, id), pki.LogRenewals(log, id))
	})
	log.Info("vouching for users", "host", signer.Host(), "cluster", trust.ClusterID(), "socket", cfg.Socket, "certificate_ends", id.Expires())
	return auth.NewDaemon(signer, auth.NewNames(), client.NewForwarder(cfg.Controllers, pki.ClientTLS(trust, nil)), log).Serve(ctx, listener)
}
