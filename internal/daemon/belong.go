package daemon

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/pki"
)

const (
	// belongRetry is how often a controller that has joined asks to be a member.
	belongRetry = 2 * time.Second
	// belongRemind is how often it reports that it is none.
	belongRemind = 10 * time.Minute
)

// belong makes a controller that has joined the cluster a member: it asks the controllers
// that it knows, until it has been a member. After that its membership is the leader's and
// the administrator's concern: one that was removed must not add itself.
func (d *Daemon) belong(ctx context.Context) {
	if !d.store.log.Status().Fresh {
		return
	}
	known, err := d.knownControllers()
	if err != nil {
		d.log.Warn("cannot read the list of controllers", "err", err)
		return
	}
	id := d.store.log.Status().ID
	var reported time.Time
	for !d.store.log.Status().WasMember {
		err := d.ask(ctx, known, id)
		switch {
		case ctx.Err() != nil:
			return
		case wasRemoved(err):
			d.store.log.EndRemoved()
			return
		case err != nil && time.Since(reported) > belongRemind:
			reported = time.Now()
			d.log.Warn("this controller is not a member of the cluster yet and asks every 2s; to add it by hand, run on another host: gctl cluster add "+id+" "+d.cfg.Advertise,
				"asked", known.Addresses(), "err", err, "hint", client.Hint(err))
		}
		select {
		case <-time.After(belongRetry):
		case <-ctx.Done():
			return
		}
	}
	d.log.Info("this controller is a member", "id", id)
}

// knownControllers is the controllers that can be asked: those that gctl join noted, and
// those that the cluster has reported since.
func (d *Daemon) knownControllers() (*client.Known, error) {
	noted, err := readLines(filepath.Join(d.cfg.DataDir, controllersFile))
	if err != nil {
		return nil, err
	}
	return client.OpenKnown(d.cfg.PKIDir, noted)
}

// errNoneKnown is the answer where no controller is known to ask.
var errNoneKnown = errors.New("no other controller is known")

// ask asks the leader, by any of the known controllers, to add this one. It first learns
// which controllers there are: the one through which this one joined may be removed since.
func (d *Daemon) ask(ctx context.Context, known *client.Known, id string) error {
	if len(known.Addresses()) == 0 {
		return errNoneKnown
	}
	asker := client.New(client.Config{Known: known, TLS: pki.ClientTLS(d.trust, d.identity), Timeout: time.Minute})
	defer asker.Close()
	if present, err := asker.Members(ctx); err == nil {
		if err := known.Learn(present); err != nil {
			d.log.Warn("cannot keep the list of controllers", "err", err)
		}
	}
	_, err := asker.Cluster().AddMember(ctx, &greylagv1.AddMemberRequest{Id: id, Address: d.cfg.Advertise})
	return err
}

// wasRemoved reports whether the answer is that this controller was removed.
func wasRemoved(err error) bool {
	var answer *connect.Error
	return errors.As(err, &answer) && answer.Meta().Get(client.CodeHeader) == client.CodeRemoved
}
