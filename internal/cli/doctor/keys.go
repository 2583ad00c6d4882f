package doctor

import (
	"errors"
	"time"

	"github.com/greylag/greylag/internal/pki"
)

// authorityEnds is how long before the end of the cluster's CA it warns: a rotation takes minutes,
// but machines without a daemon need the new ca.pem manually.
const authorityEnds = 180 * 24 * time.Hour

// identity checks the certificate of a daemon. Daemons renew theirs when a third of its validity is
// left, so one with less than a quarter is not being renewed.
func (x *exam) identity(dir string, role pki.Role) (*pki.Identity, *pki.Trust) {
	id, trust, err := pki.OpenIdentity(dir)
	advice := "run: gctl join TOKEN@CONTROLLER; gctl cluster token makes one"
	if errors.Is(err, pki.ErrExposed) {
		advice = "restrict its mode, and if other users could log in here, move the directory away and join again"
	}
	if x.failed("certificate", advice, err) {
		return nil, nil
	}
	leaf := id.Certificate().Leaf
	left := time.Until(leaf.NotAfter)
	switch {
	case id.Peer().Role != role:
		x.note(Fault, "certificate", "this directory holds another daemon's key: set pki_dir, or join this host with a token for "+string(role), "it belongs to a %s: %s", id.Peer().Role, id.Peer().Name)
	case left < leaf.NotAfter.Sub(leaf.NotBefore)/4:
		x.note(Warning, "certificate", "the daemon renews it when it runs and reaches a controller: see its log", "it expires on %s and was not renewed", day(leaf.NotAfter))
	default:
		x.good("certificate", "%s %s of cluster %s, until %s", id.Peer().Role, id.Peer().Name, trust.ClusterID(), day(leaf.NotAfter))
	}
	x.authority(trust)
	return id, trust
}

// authority checks the remaining validity of the cluster's CA.
func (x *exam) authority(trust *pki.Trust) {
	if time.Until(trust.Expires()) < authorityEnds {
		x.note(Warning, "authority", "replace it: gctl cert rotate; no certificate is valid beyond its end", "the cluster's CA expires on %s", day(trust.Expires()))
	}
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }
