package gctld

import (
	"context"
	"errors"
	"log/slog"

	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/state/hosts"
)

// rotation brings the CAs that this controller accepts and holds in line with the replicated state.
type rotation struct {
	view   func() *state.View
	trust  *pki.Trust
	ca     *pki.CA
	dir    string // pki_dir
	peers  *client.Peers
	others func() []string
	log    *slog.Logger

	failed string // the last failure, which is logged once
}

// follow applies the current step of the state. It is called again until nothing is left to do.
func (r *rotation) follow(ctx context.Context) {
	err := r.takeUp(ctx)
	switch {
	case err == nil:
		r.failed = ""
	case err.Error() != r.failed && ctx.Err() == nil:
		r.failed = err.Error()
		r.log.Warn("cannot follow the CA rotation, retrying", "err", err)
	}
}

func (r *rotation) takeUp(ctx context.Context) error {
	now := r.view().Hosts().Rotation()
	wanted := now.Authorities(string(pki.RoleController))
	if wanted == nil {
		return nil
	}
	changed, err := r.trust.Replace(wanted)
	if err != nil {
		return err
	}
	if changed {
		r.log.Info("the cluster's CA changed", "phase", now.Phase.String(), "ca", pki.FingerprintOf(now.New))
	}
	if err := r.trust.Save(r.dir); err != nil {
		return err
	}
	for _, authority := range wanted { // also the old one: secrets may be encrypted under it
		if !r.ca.HasKey(authority) {
			err = errors.Join(err, r.fetchKey(ctx, authority))
		}
	}
	if err != nil {
		return err
	}
	if now.Phase == hosts.RotationDone && r.ca.HasKey(now.Old) {
		return r.ca.DropKey(now.Old)
	}
	return nil
}

// fetchKey gets the private key of a CA from the other controllers; one of them created it.
func (r *rotation) fetchKey(ctx context.Context, authority []byte) error {
	err := error(pki.ErrNoKey)
	for _, address := range r.others() {
		_, keys, failed := r.peers.Authority(ctx, address)
		if failed != nil {
			err = failed
			continue
		}
		if pki.KeyFits(keys, authority) {
			r.log.Info("received the private key of the new CA", "from", address)
			return r.ca.AddKeys(keys)
		}
	}
	return err
}
