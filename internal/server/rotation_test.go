package server_test

import (
	"crypto/x509"
	"fmt"
	"testing"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/wire"
)

// rotate carries out one step of a rotation, and waits until every controller has applied it.
func (w *world) rotate(step string, force bool) error {
	w.t.Helper()
	_, err := w.as(root).Cluster().RotateAuthority(w.t.Context(), &greylagv1.RotateAuthorityRequest{Step: wire.Enum[greylagv1.RotationStep](step), Force: force})
	if err != nil {
		return err
	}
	_, err = w.ca.Trust().Replace(w.authorities(w.identity(pki.RoleController, "c1")))
	return err
}

// authorities returns the CAs that a host is sent.
func (w *world) authorities(id *pki.Identity) [][]byte {
	w.t.Helper()
	answer, err := w.client(client.Config{TLS: pki.ClientTLS(w.ca.Trust(), id)}, nil).Cluster().ListAuthorities(w.t.Context(), &greylagv1.ListAuthoritiesRequest{})
	must(w.t, err)
	return answer.GetCa()
}

// renewed renews a certificate, and reports whether the first of the CAs that its holder is sent
// signed the new one.
func (w *world) renewed(id *pki.Identity) (bool, error) {
	w.t.Helper()
	first := w.authorities(id)[0]
	_, csr, err := pki.NewRequest(id.Peer().Role)
	must(w.t, err)
	der, err := pki.RenewFrom([]string{w.all[0].addr}, w.ca.Trust(), id)(w.t.Context(), csr)
	if err != nil {
		return false, err
	}
	leaf, err := x509.ParseCertificate(der)
	must(w.t, err)
	issuer, _ := w.ca.Trust().Issuer(leaf)
	return issuer == pki.FingerprintOf(first), nil
}

// TestRotationOfTheCA checks that hosts renew under the new CA, that controllers stay under the old
// one until the rotation is finished, and that a revoked host is refused throughout.
func TestRotationOfTheCA(t *testing.T) {
	w := newWorld(t, options{})
	ids := map[pki.Role]*pki.Identity{}
	for _, role := range []pki.Role{pki.RoleNode, pki.RoleAuth, pki.RoleController} {
		id, err := w.join(w.token(role, "", false), "h1")
		must(t, err)
		ids[role] = id
	}
	stolen, err := w.join(w.token(pki.RoleNode, "", false), "h2")
	must(t, err)
	early := w.token(pki.RoleNode, "h3", false)
	before := w.ca.Trust().Fingerprint()
	says(t, "an unknown step", w.rotate("end", false), "want ROTATION_STEP_BEGIN, ROTATION_STEP_FINISH")
	says(t, "to finish what was not begun", w.rotate("finish", false), "gctl cert rotate begins one")
	must(t, w.rotate("begin", false))
	says(t, "to begin twice", w.rotate("begin", false), "has been in progress since")
	w.revoke(w.as(root), pki.RoleNode, "h2")
	err = w.renew(stolen)
	says(t, "a revoked host", err, "certificate was revoked")
	says(t, "to finish too early", w.rotate("finish", false), "without a certificate of the new CA", "auth/h1", "node/h1")
	for role, id := range ids {
		if first, err := w.renewed(id); err != nil || !first {
			t.Errorf("%s: %v; not signed by the first CA that it was sent", role, err)
		}
	}
	if _, err := w.join(early, "h3"); err != nil {
		t.Errorf("a token from before the rotation: %v", err)
	}
	must(t, w.rotate("finish", true)) // login1 of this test does not renew
	for _, role := range []pki.Role{pki.RoleController, pki.RoleNode} {
		if first, err := w.renewed(ids[role]); err != nil || !first {
			t.Errorf("%s: %v; not under the new CA", role, err)
		}
	}
	if w.ca.Trust().Fingerprint() == before {
		t.Error("controllers renew under the old CA")
	}
}

// TestADaemonLeavesTheConnectionOfTheOldCA checks that its stream ends when the CA is replaced, and
// that its next call shows the certificate that it has renewed.
func TestADaemonLeavesTheConnectionOfTheOldCA(t *testing.T) {
	w := newWorld(t, options{})
	id := w.identity(pki.RoleNode, "n1")
	n := &node{w: w, session: w.client(client.Config{TLS: pki.ClientTLS(w.ca.Trust(), id)}, nil).Node(), sets: make(chan *greylagv1.WatchTasksResponse, 100), ended: make(chan error, 1)}
	register := func() error {
		answer, err := n.session.Register(t.Context(), &greylagv1.RegisterNodeRequest{BootId: "boot", Cpus: 8, Memory: 32 << 30})
		n.epoch = answer.GetEpoch()
		return err
	}
	must(t, register())
	n.listen()
	n.next()
	next, err := pki.NewCA("test", time.Now())
	must(t, err)
	keys, err := next.KeyPEM()
	must(t, err)
	must(t, w.ca.AddKeys(keys))
	w.accept(next.Trust().DERs()[0], w.ca.Trust().DERs()[0])
	for i := range w.all {
		w.identity(pki.RoleController, fmt.Sprintf("c%d", i+1))
	}
	w.identity(pki.RoleNode, "n1")
	w.accept(next.Trust().DERs()[0])
	says(t, "the open stream", <-n.ended, "its CA was replaced")
	w.until("the daemon shows its new certificate", func() bool { return register() == nil })
}

// accept replaces the CAs that controllers and programs accept.
func (w *world) accept(ders ...[]byte) {
	w.t.Helper()
	for _, trust := range append(w.trusts, w.ca.Trust()) {
		_, err := trust.Replace(ders)
		must(w.t, err)
	}
}
