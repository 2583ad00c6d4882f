package gctld

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/server/certs"
)

const (
	// memberRetry is how often a controller that has joined asks to be added as a member.
	memberRetry = 2 * time.Second
	// memberRemind is how often it logs that it is not a member.
	memberRemind = 10 * time.Minute
)

// joinMembers makes a controller that has joined the cluster a member: it asks the known
// controllers until it has been a member once. After that it never asks again: a controller
// that was removed must not add itself.
func (d *Daemon) joinMembers(ctx context.Context) {
	known, err := d.knownControllers()
	if err != nil {
		d.log.Warn("cannot read the list of controllers", "err", err)
		return
	}
	if d.store.log.Status().Fresh && !d.becomeMember(ctx, known) {
		return
	}
	d.watchRemoval(ctx, known)
}

// becomeMember asks to be added until this controller is a member. It returns false when ctx ends
// or this controller was removed.
func (d *Daemon) becomeMember(ctx context.Context, known *client.Known) bool {
	id := d.store.log.Status().ID
	var reported time.Time
	for !d.store.log.Status().WasMember {
		err := d.ask(ctx, known, id)
		switch {
		case ctx.Err() != nil:
			return false
		case hasCode(err, client.CodeRemoved, client.CodeRevoked):
			d.store.log.EndRemoved()
			return false
		case err != nil && time.Since(reported) > memberRemind:
			reported = time.Now()
			d.log.Warn("this controller is not a member of the cluster yet, retrying every 2s; to add it manually, run on another host: gctl cluster add "+id+" "+d.cfg.Advertise,
				"asked", known.Addresses(), "err", err, "hint", client.Hint(err))
		}
		if !pause(ctx, memberRetry) {
			return false
		}
	}
	d.log.Info("this controller is a member", "id", id)
	return true
}

// watchRemoval ends this controller once another one answers that it was removed. It asks only
// while it knows no leader: the members refuse the certificate of a removed controller, so one that
// was down while it was removed does not learn it from them.
func (d *Daemon) watchRemoval(ctx context.Context, known *client.Known) {
	asker := client.New(client.Config{Known: known, TLS: pki.ClientTLS(d.trust, d.identity), Timeout: time.Minute})
	defer asker.Close()
	var reported time.Time
	for pause(ctx, memberRetry) {
		if status := d.store.log.Status(); status.LeaderID != "" || status.Fresh {
			continue
		}
		for _, address := range append(d.others(), known.Addresses()...) {
			if address == d.cfg.Advertise {
				continue
			}
			_, err := asker.StatusOf(ctx, address)
			switch {
			case hasCode(err, client.CodeRemoved):
				d.store.log.EndRemoved()
				return
			case hasCode(err, client.CodeRevoked) && time.Since(reported) > memberRemind:
				reported = time.Now()
				d.log.Warn("the other controllers reject this controller", "err", err, "hint", client.Hint(err))
			}
		}
	}
}

// pause waits. It returns false when ctx ends first.
func pause(ctx context.Context, span time.Duration) bool {
	select {
	case <-time.After(span):
		return true
	case <-ctx.Done():
		return false
	}
}

// checkRevoked returns an error for the revoked certificate of a controller. The certificate of a
// controller that is being removed is accepted until its removal is committed: until then the
// others may need its vote.
func (d *Daemon) checkRevoked(peer pki.Peer, issued time.Time) error {
	view := d.store.replica.View()
	err := certs.CheckRevoked(view, peer, issued)
	if err == nil || peer.Role != pki.RoleController {
		return err
	}
	for _, m := range d.store.log.Status().Members {
		if r, _ := view.Hosts().Controller(m.ID); r.Name == peer.Name && r.Retired != 0 {
			return nil
		}
	}
	return err
}

// knownControllers returns the controllers that can be asked: those that gctl join stored, and
// those that the cluster has reported since.
func (d *Daemon) knownControllers() (*client.Known, error) {
	noted, err := readLines(filepath.Join(d.cfg.DataDir, controllersFile))
	if err != nil {
		return nil, err
	}
	return client.OpenKnown(d.cfg.PKIDir, noted)
}

// errNoneKnown is returned when no controller is known.
var errNoneKnown = errors.New("no other controller is known")

// ask asks the leader, through any of the known controllers, to add this one. It first updates the
// list of controllers: the one through which this one joined may have been removed since.
func (d *Daemon) ask(ctx context.Context, known *client.Known, id string) error {
	if len(known.Addresses()) == 0 {
		return errNoneKnown
	}
	asker := client.New(client.Config{Known: known, TLS: pki.ClientTLS(d.trust, d.identity), Timeout: time.Minute})
	defer asker.Close()
	if present, err := asker.Members(ctx); err == nil {
		if err := known.Learn(present); err != nil {
			d.log.Warn("cannot store the list of controllers", "err", err)
		}
	}
	_, err := asker.Cluster().AddMember(ctx, &greylagv1.AddMemberRequest{Id: id, Address: d.cfg.Advertise})
	return err
}

// hasCode reports whether a controller's answer has one of the codes.
func hasCode(err error, codes ...string) bool {
	var answer *connect.Error
	return errors.As(err, &answer) && slices.Contains(codes, answer.Meta().Get(client.CodeHeader))
}
