package doctor

import (
	"errors"
	"time"

	"github.com/greylag/greylag/internal/pki"
)

// authorityEnds is how long before the end of the cluster's CA it is worth a warning:
// a rotation takes minutes, but machines without a daemon need the new ca.pem by hand.
const authorityEnds = 180 * 24 * time.Hour

// identity checks the certificate by which a daemon proves itself. Daemons renew
// theirs when a third of its life is left, so one with less than a quarter is not
// being renewed.
func (x *exam) identity(dir string, role pki.Role) (*pki.Identity, *pki.Trust) {
	id, trust, err := pki.OpenIdentity(dir)
	advice := "run: gctl join TOKEN@CONTROLLER; gctl cluster token makes one"
	if errors.Is(err, pki.ErrExposed) {
		advice = "close it to others, and if anybody else could log in here, move the folder away and join again"
	}
	if x.failed("certificate", advice, err) {
		return nil, nil
	}
	leaf := id.Certificate().Leaf
	left := time.Until(leaf.NotAfter)
	switch {
	case id.Peer().Role != role:
		x.note(Fault, "certificate", "this folder holds another daemon's key: set pki_dir, or join this host with a token for "+string(role), "it is that of a %s: %s", id.Peer().Role, id.Peer().Name)
	case left < leaf.NotAfter.Sub(leaf.NotBefore)/4:
		x.note(Warning, "certificate", "the daemon renews it when it runs and reaches a controller: see its log", "it ends on %s and was not renewed", day(leaf.NotAfter))
	default:
		x.good("certificate", "%s %s of cluster %s, until %s", id.Peer().Role, id.Peer().Name, trust.ClusterID(), day(leaf.NotAfter))
	}
	x.authority(trust)
	return id, trust
}

// authority checks how long the cluster's CA lives.
func (x *exam) authority(trust *pki.Trust) {
	if time.Until(trust.Expires()) < authorityEnds {
		x.note(Warning, "authority", "replace it: gctl cert rotate; no certificate is valid beyond its end", "the cluster's CA ends on %s", day(trust.Expires()))
	}
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }
