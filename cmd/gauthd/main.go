// Command gauthd authenticates the Unix users of a login node to the cluster.
package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/daemonmain"
	"github.com/greylag/greylag/internal/pki"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stderr))
}

// run is the program; it returns the exit status.
func run(ctx context.Context, args []string, stderr io.Writer) int {
	file := ""
	return daemonmain.Daemon[config.Auth]{
		Name: "gauthd", About: "Vouches for the users of this host towards the cluster's controllers.",
		Path: config.AuthPath, Load: func(path string) (config.Auth, error) {
			file = path
			return config.LoadAuth(path)
		},
		Serve: func(ctx context.Context, cfg config.Auth, stderr io.Writer) error {
			log := cfg.Log.Logger(stderr)
			defer daemonmain.FollowLevel(log, func() (config.Log, error) { now, err := config.LoadAuth(file); return now.Log, err })()
			return serve(ctx, cfg, log)
		},
	}.Main(ctx, args, stderr)
}

func serve(ctx context.Context, cfg config.Auth, log *slog.Logger) error {
	daemonmain.Relax()
	id, trust, err := pki.OpenIdentity(cfg.PKIDir)
	if err != nil {
		return err
	}
	signer, err := auth.NewSigner(id)
	if err != nil {
		return err
	}
	known, err := client.OpenKnown(cfg.PKIDir, cfg.Controllers)
	if err != nil {
		return err
	}
	listener, err := auth.Listen(cfg.Socket)
	if err != nil {
		return err
	}
	own := client.New(client.Config{Known: known, TLS: pki.ClientTLS(trust, id)})
	var loops sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	defer func() { stop(); loops.Wait(); own.Close() }()
	loops.Go(func() { pki.Renew(ctx, cfg.PKIDir, id, client.Renewal(known, trust, id), pki.LogRenewals(log, id)) })
	loops.Go(func() { known.Follow(ctx, trust, own.Directory, log) })
	loops.Go(func() { daemonmain.Watchdog(ctx, func() { auth.AwaitDaemon(ctx, cfg.Socket) }) })
	log.Info("issuing tokens to users", "host", signer.Host(), "cluster", trust.ClusterID(), "socket", cfg.Socket, "certificate_ends", id.Expires())
	return daemonmain.Ended(log, auth.NewDaemon(signer, auth.NewNames(), client.NewForwarder(known, pki.ClientTLS(trust, nil)), log).Serve(ctx, listener))
}
