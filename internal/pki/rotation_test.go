package pki

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// rotating returns a CA with a second one of the same cluster and both keys.
func rotating(t *testing.T) (ca *CA, old, next []byte) {
	t.Helper()
	ca, second := testCA(t, "prod"), testCA(t, "prod")
	keys, err := second.KeyPEM()
	if err == nil {
		err = ca.AddKeys(keys)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ca, ca.Trust().DERs()[0], second.Trust().DERs()[0]
}

// replace makes these the CAs of t.
func (t *Trust) replace(tb testing.TB, ders ...[]byte) {
	tb.Helper()
	if changed, err := t.Replace(ders); err != nil || !changed {
		tb.Fatalf("changed %t: %v", changed, err)
	}
}

func TestBothCAsAreAcceptedWhileOneReplacesTheOther(t *testing.T) {
	ca, old, next := rotating(t)
	server, _ := testIdentity(t, ca, RoleController, "c1")
	before, _ := testIdentity(t, ca, RoleNode, "n1")
	_, csr, err := NewRequest(RoleNode)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ca.SignBy(testCA(t, "prod").Trust().DERs()[0], csr, Grant{Peer: before.Peer()}, time.Now()); !errors.Is(err, ErrNoKey) {
		t.Errorf("signed by a CA without its key: %v", err)
	}
	ca.Trust().replace(t, next, old)
	after, _ := testIdentity(t, ca, RoleNode, "n1")
	if fresh, _, err := OpenIdentity(filepath.Dir(before.path)); err != nil || fresh.Superseded() {
		t.Errorf("a host that has not heard of the new CA: %v", err)
	}
	config := ServerTLS(ca.Trust(), server)
	for what, id := range map[string]*Identity{"old": before, "new": after} {
		if _, err := handshake(t, config, ClientTLS(ca.Trust(), id)); err != nil {
			t.Errorf("%s certificate: %v", what, err)
		}
	}
	resuming := ClientTLS(ca.Trust(), before)
	resuming.ServerName, resuming.ClientSessionCache = "c1", tls.NewLRUClientSessionCache(1)
	if _, err := handshake(t, config, resuming); err != nil {
		t.Fatal(err)
	}
	moved, _ := testIdentity(t, ca, RoleController, "c1")
	ca.Trust().replace(t, next)
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return moved.Certificate(), nil }
	if _, err := handshake(t, config, ClientTLS(ca.Trust(), after)); err != nil {
		t.Errorf("the new certificate: %v", err)
	}
	for what, kind := range map[string]*tls.Config{"a new session": ClientTLS(ca.Trust(), before), "a resumed session": resuming} {
		if _, err := handshake(t, config, kind); err == nil {
			t.Errorf("%s of the old CA is accepted", what)
		}
	}
	if _, accepted := ca.Trust().Issuer(before.Certificate().Leaf); accepted {
		t.Error("the old CA still counts")
	}
}

// TestAHostRenewsAtOnceUnderANewCA checks that the loop wakes up, and that the host keeps the CAs
// that it received.
func TestAHostRenewsAtOnceUnderANewCA(t *testing.T) {
	ca, old, next := rotating(t)
	id, dir := testIdentity(t, ca, RoleNode, "n1")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	reports := make(chan error, 1)
	go Renew(ctx, dir, id, func(_ context.Context, csr []byte) ([]byte, error) {
		return ca.SignBy(next, csr, Grant{Peer: id.Peer()}, time.Now())
	}, func(err error) { reports <- err })
	id.trust.replace(t, next, old)
	if err := <-reports; err != nil || id.Superseded() {
		t.Fatalf("renewed: %v, superseded %t", err, id.Superseded())
	}
	kept, trust, err := OpenIdentity(dir)
	if err != nil || kept.Superseded() || !trust.Equal(id.trust) {
		t.Errorf("after a restart: %v", err)
	}
	if _, err := id.trust.Replace(testCA(t, "other").Trust().DERs()); !errors.Is(err, ErrUntrusted) {
		t.Errorf("the CA of another cluster: %v", err)
	}
	if _, err := id.trust.Replace(nil); !errors.Is(err, ErrUntrusted) {
		t.Errorf("no CA at all: %v", err)
	}
}

func TestKeysOfTwoCAsAreKeptUntilOneIsDropped(t *testing.T) {
	first, second := testCA(t, "prod"), testCA(t, "prod")
	dir := filepath.Join(t.TempDir(), "pki")
	if err := first.Save(dir); err != nil {
		t.Fatal(err)
	}
	ca, err := OpenCA(dir)
	if err != nil {
		t.Fatal(err)
	}
	next := second.Trust().DERs()[0]
	ca.Trust().replace(t, first.Trust().DERs()[0], next)
	if err := ca.Trust().Save(dir); err != nil {
		t.Fatal(err)
	}
	if half, err := OpenCA(dir); err != nil || half.HasKey(next) { // a crash before the key arrived
		t.Fatalf("without the second key: %v", err)
	}
	keys, err := second.KeyPEM()
	if err != nil || !KeyFits(keys, next) || KeyFits(keys, first.Trust().DERs()[0]) {
		t.Fatalf("the key of the second: %v", err)
	}
	if err := ca.AddKeys(keys); err != nil {
		t.Fatal(err)
	}
	if both, err := OpenCA(dir); err != nil || !both.HasKey(next) {
		t.Fatalf("with both keys: %v", err)
	}
	if err := ca.DropKey(first.Trust().DERs()[0]); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, caKeyFile))
	if err != nil || bytes.Count(text, []byte("BEGIN PRIVATE KEY")) != 1 || !KeyFits(text, next) {
		t.Errorf("the key file after the drop: %v\n%d keys", err, bytes.Count(text, []byte("BEGIN PRIVATE KEY")))
	}
}

// TestAConnectionShowsTheRenewedCertificate checks that it does not resume a session of an earlier
// connection.
func TestAConnectionShowsTheRenewedCertificate(t *testing.T) {
	ca := testCA(t, "prod")
	ctl, _ := testIdentity(t, ca, RoleController, "c1")
	id, dir := testIdentity(t, ca, RoleNode, "n1")
	server, client := ServerTLS(ca.Trust(), ctl), ClientTLS(ca.Trust(), id)
	client.ServerName = "c1"
	for range 2 {
		if err := ca.Issue(dir, Grant{Peer: id.Peer()}, time.Now()); err != nil {
			t.Fatal(err)
		}
		if err := id.Check(); err != nil {
			t.Fatal(err)
		}
		state, err := handshake(t, server, client)
		if err != nil || !state.PeerCertificates[0].Equal(id.Certificate().Leaf) {
			t.Errorf("%v; resumed: %t", err, state.DidResume)
		}
	}
}
