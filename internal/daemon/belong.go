package daemon

import (
	"context"
	"path/filepath"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/pki"
)

// belongRetry is how often a controller that has joined asks for its vote.
const belongRetry = 2 * time.Second

// belong makes a controller that has joined the cluster a member of the log: it asks
// those that gctl join noted, until it has a vote.
func (d *Daemon) belong(ctx context.Context) {
	if !d.store.log.Status().Fresh {
		return
	}
	id := d.store.log.Status().ID
	known, err := readLines(filepath.Join(d.cfg.DataDir, controllersFile))
	if err != nil || len(known) == 0 {
		d.log.Warn("this controller is not a member yet: run gctl cluster add", "id", id, "address", d.cfg.Advertise, "err", err)
		return
	}
	asker := client.New(client.Config{Controllers: known, TLS: pki.ClientTLS(d.trust, d.identity), Timeout: time.Minute})
	defer asker.Close()
	for !d.votes() {
		_, err := asker.Cluster().AddMember(ctx, &greylagv1.AddMemberRequest{Id: id, Address: d.cfg.Advertise})
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			d.log.Warn("not a member yet", "asked", known, "err", err)
		}
		select {
		case <-time.After(belongRetry):
		case <-ctx.Done():
			return
		}
	}
	d.log.Info("this controller is a member", "id", id)
}

// votes reports whether this controller has a vote.
func (d *Daemon) votes() bool {
	status := d.store.log.Status()
	for _, m := range status.Members {
		if m.ID == status.ID {
			return m.Voter
		}
	}
	return false
}
