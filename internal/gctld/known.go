package gctld

import (
	"context"
	"errors"

	"github.com/greylag/greylag/internal/client"
)

// errNotInTouch is returned when this controller cannot know the current members.
var errNotInTouch = errors.New("this controller is not a member or knows no leader")

// follow writes the members' addresses for the commands of this host, and keeps them current.
func (d *Daemon) follow(ctx context.Context) {
	known, err := client.OpenKnown(d.cfg.PKIDir, nil)
	if err != nil {
		d.log.Warn("cannot read the list of controllers", "err", err)
		return
	}
	known.Follow(ctx, d.trust, d.directory, d.log)
}

// directory returns the addresses of the voters, and the CAs, if this controller is a member and in
// contact with the others.
func (d *Daemon) directory(context.Context) (client.Directory, error) {
	status := d.store.log.Status()
	var list []string
	member := false
	for _, m := range status.Members {
		member = member || m.ID == status.ID
		if m.Voter {
			list = append(list, m.Addr)
		}
	}
	if !member || status.LeaderID == "" {
		return client.Directory{}, errNotInTouch
	}
	return client.Directory{Controllers: list, Authorities: d.trust.DERs()}, nil
}
