package main

import (
	"context"
	"log/slog"
	"sync"

	"github.com/greylag/greylag/internal/agent"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/daemonmain"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/version"
)

// serve runs the node until ctx ends.
func serve(ctx context.Context, cfg config.Node, file string, log *slog.Logger) error {
	id, trust, err := pki.OpenIdentity(cfg.PKIDir)
	if err != nil {
		return err
	}
	cfg.Name = id.Peer().Name // the name under which the controllers know this node
	if err := makeFolders(cfg); err != nil {
		return err
	}
	lease, err := leaseOf(cfg, trust.ClusterID())
	if err != nil {
		return err
	}
	parts := assemble(cfg, log)
	parts.config.Lease = lease
	defer parts.close()
	known, err := client.OpenKnown(cfg.PKIDir, cfg.Controllers)
	if err != nil {
		return err
	}
	tls := pki.ClientTLS(trust, id)
	session := client.New(client.Config{Known: known, TLS: tls})
	parts.config.Controllers, parts.config.File = known.Addresses, file
	parts.config.Sockets = auth.NewJobSockets(socketsOf(cfg), client.NewJobForwarder(known, tls), log)
	node, err := agent.New(parts.config, session.Node(), parts.runtime, parts.gpus)
	if err != nil {
		return err
	}
	var loops sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	defer func() { stop(); loops.Wait(); session.Close() }()
	loops.Go(func() { pki.Renew(ctx, cfg.PKIDir, id, client.Renewal(known, trust, id), pki.LogRenewals(log, id)) })
	loops.Go(func() { known.Follow(ctx, trust, session.Directory, log) })
	loops.Go(func() { parts.serve(ctx, cfg, node, id, log) })
	loops.Go(func() { daemonmain.Watchdog(ctx, func() { node.Alive(ctx) }) })
	log.Info("serving", "node", cfg.Name, "cluster", trust.ClusterID(), "version", version.Version)
	return node.Run(ctx)
}
