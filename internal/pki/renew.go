package pki

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"
)

// Request sends a signing request (DER) to a holder of the CA and returns the certificate (DER).
type Request func(ctx context.Context, csr []byte) ([]byte, error)

// Waits between attempts to renew: an absence of the controllers for a minute costs one attempt,
// one for days one an hour from each host.
const (
	renewRetryFirst = time.Minute
	renewRetryMost  = time.Hour
	// renewLook is how often the loop checks the file, so that a certificate placed manually or by
	// gctl join is noticed and a bad one reported.
	renewLook = time.Hour
)

// renewAt returns when a certificate is due for renewal: at two thirds of its validity.
func renewAt(notBefore, notAfter time.Time) time.Time {
	return notBefore.Add(notAfter.Sub(notBefore) / 3 * 2)
}

// Renew keeps id valid until ctx ends: at two thirds of its validity, and as soon as another CA
// signs new certificates, it creates a new key, requests a certificate and stores both; users of id
// pick them up automatically. It reports failures and retries after 1 minute, doubling to 1 hour,
// with up to a tenth of jitter so that a thousand nodes do not ask together. It calls report with
// nil after a renewal.
func Renew(ctx context.Context, dir string, id *Identity, ask Request, report func(error)) {
	retry := renewRetryFirst
	for {
		wait, changed := renewLook, id.trust.Changed()
		if err := id.Check(); err != nil {
			report(err)
		}
		leaf := id.Certificate().Leaf
		if due := renewAt(leaf.NotBefore, leaf.NotAfter).Sub(id.now()); due > 0 && !id.Superseded() {
			wait = min(wait, due)
		} else if err := RenewNow(ctx, dir, id, ask); err != nil {
			report(err)
			wait, retry = retry+rand.N(retry/10), min(2*retry, renewRetryMost)
		} else {
			report(nil)
			retry = renewRetryFirst
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-time.After(wait):
		}
	}
}

// RenewNow replaces the key and certificate in dir at once. The answer must be for the same peer.
func RenewNow(ctx context.Context, dir string, id *Identity, ask Request) error {
	key, csr, err := NewRequest(id.Peer().Role)
	if err != nil {
		return err
	}
	cert, err := ask(ctx, csr)
	if err != nil {
		return fmt.Errorf("renew certificate of %s, which ends %s: %w", id.Peer(), id.Expires().UTC().Format(time.DateTime), err)
	}
	peer, _, err := id.trust.VerifyDER(cert, id.now())
	if err != nil {
		return fmt.Errorf("renew certificate: %w", err)
	}
	if peer != id.Peer() {
		return fmt.Errorf("renew certificate: %w: answer is for %s, asked for %s", ErrUntrusted, peer, id.Peer())
	}
	if err := SaveIdentity(dir, id.trust, key, cert); err != nil {
		return err
	}
	return id.Check()
}

// LogRenewals returns a report function for Renew that writes to log.
func LogRenewals(log *slog.Logger, id *Identity) func(error) {
	return func(err error) {
		if err != nil {
			log.Error("certificate not renewed, trying again", "err", err, "certificate_ends", id.Expires())
			return
		}
		log.Info("certificate renewed", "certificate_ends", id.Expires())
	}
}
