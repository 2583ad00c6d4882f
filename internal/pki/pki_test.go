package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func testCA(t testing.TB, cluster string) *CA {
	t.Helper()
	ca, err := NewCA(cluster, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// testIdentity joins one host to ca in a folder of its own.
func testIdentity(t testing.TB, ca *CA, role Role, name string) (*Identity, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "pki")
	grant := Grant{Peer: Peer{ca.trust.clusterID, role, name}, Hosts: []string{"localhost", "127.0.0.1"}}
	if err := ca.Issue(dir, grant, time.Now()); err != nil {
		t.Fatal(err)
	}
	id, _, err := OpenIdentity(dir)
	if err != nil {
		t.Fatal(err)
	}
	return id, dir
}

func TestCertificateSaysWhoAndNoMore(t *testing.T) {
	ca := testCA(t, "prod-1")
	for _, role := range []Role{RoleController, RoleNode, RoleAuth} {
		id, _ := testIdentity(t, ca, role, "gpu001.example.org")
		want := Peer{"prod-1", role, "gpu001.example.org"}
		if id.Peer() != want {
			t.Errorf("peer %v, want %v", id.Peer(), want)
		}
		leaf := id.Certificate().Leaf
		if got := leaf.URIs[0].String(); got != "greylag://prod-1/"+string(role)+"/gpu001.example.org" {
			t.Errorf("URI name %s", got)
		}
		if hosts := len(leaf.DNSNames) + len(leaf.IPAddresses); (role == RoleController) != (hosts == 2) {
			t.Errorf("%s has %d host names", role, hosts)
		}
		server := false
		for _, u := range leaf.ExtKeyUsage {
			server = server || u == x509.ExtKeyUsageServerAuth
		}
		if server != (role == RoleController) {
			t.Errorf("%s may serve: %v", role, server)
		}
	}
}

func TestSignTakesNoNameFromTheRequest(t *testing.T) {
	ca := testCA(t, "prod")
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	evil, _ := url.Parse("greylag://prod/controller/evil")
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		URIs: []*url.URL{evil}, DNSNames: []string{"ctl1"},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := ca.Sign(csr, Grant{Peer: Peer{"prod", RoleNode, "n1"}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	peer, leaf, err := ca.Trust().VerifyDER(der, time.Now())
	if err != nil || peer != (Peer{"prod", RoleNode, "n1"}) || len(leaf.DNSNames) != 0 {
		t.Errorf("got %v, %v, %v", peer, leaf.DNSNames, err)
	}
}

func TestSignRefuses(t *testing.T) {
	ca := testCA(t, "prod")
	_, p256, _ := NewRequest(RoleNode)
	_, ed, _ := NewRequest(RoleAuth)
	forged := bytes.Clone(p256)
	forged[len(forged)-1] ^= 1
	p384, _ := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	wide, _ := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, p384)
	for name, c := range map[string]struct {
		csr  []byte
		peer Peer
		want error
	}{
		"garbage":            {[]byte("x"), Peer{"prod", RoleNode, "n1"}, ErrBadRequest},
		"key not held":       {forged, Peer{"prod", RoleNode, "n1"}, ErrBadRequest},
		"other curve":        {wide, Peer{"prod", RoleNode, "n1"}, ErrBadRequest},
		"node with ed25519":  {ed, Peer{"prod", RoleNode, "n1"}, ErrBadRequest},
		"auth with p256":     {p256, Peer{"prod", RoleAuth, "n1"}, ErrBadRequest},
		"other cluster":      {p256, Peer{"test", RoleNode, "n1"}, ErrBadPeer},
		"unknown role":       {p256, Peer{"prod", "admin", "n1"}, ErrBadPeer},
		"no name":            {p256, Peer{"prod", RoleNode, ""}, ErrBadPeer},
		"name with a slash":  {p256, Peer{"prod", RoleNode, "a/b"}, ErrBadPeer},
		"name with a space":  {p256, Peer{"prod", RoleNode, "a b"}, ErrBadPeer},
		"name of dots":       {p256, Peer{"prod", RoleNode, ".."}, ErrBadPeer},
		"name too long":      {p256, Peer{"prod", RoleNode, strings.Repeat("a", 254)}, ErrBadPeer},
		"cluster with a dot": {p256, Peer{"prod.x", RoleNode, "n1"}, ErrBadPeer},
	} {
		if _, err := ca.Sign(c.csr, Grant{Peer: c.peer}, time.Now()); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestVerifyRefuses(t *testing.T) {
	ours, theirs := testCA(t, "prod"), testCA(t, "prod")
	id, _ := testIdentity(t, theirs, RoleNode, "n1")
	if _, err := ours.Trust().Verify(id.Certificate().Leaf, time.Now()); !errors.Is(err, ErrUntrusted) {
		t.Errorf("another CA of the same name: %v", err)
	}
	mine, _ := testIdentity(t, ours, RoleNode, "n1")
	leaf := mine.Certificate().Leaf
	for _, at := range []time.Time{leaf.NotBefore.Add(-time.Second), leaf.NotAfter.Add(time.Second)} {
		if _, err := ours.Trust().Verify(leaf, at); !errors.Is(err, ErrUntrusted) {
			t.Errorf("at %v: %v", at, err)
		}
	}
	if _, err := ours.Trust().Verify(ours.trust.first(), time.Now()); !errors.Is(err, ErrUntrusted) {
		t.Errorf("the CA as a peer: %v", err)
	}
}

func TestFilesAndModes(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	ca := testCA(t, "prod")
	dir := filepath.Join(t.TempDir(), "a", "b", "pki")
	if err := ca.Save(dir); err != nil {
		t.Fatal(err)
	}
	if err := ca.Save(dir); err != nil {
		t.Errorf("saving again: %v", err)
	}
	if err := testCA(t, "prod").Save(dir); !errors.Is(err, ErrExists) {
		t.Errorf("saving another CA: %v", err)
	}
	back, err := OpenCA(dir)
	if err != nil || back.Trust().Fingerprint() != ca.Trust().Fingerprint() {
		t.Fatalf("load: %v", err)
	}
	if err := back.Issue(dir, Grant{Peer: Peer{"prod", RoleController, "ctl1"}}, time.Now()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{"../..": 0o755, "..": 0o755, ".": 0o700, TrustFile: 0o644, caKeyFile: 0o600, IdentityFile: 0o600} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, %v, want %v", name, info.Mode().Perm(), err, want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	for _, name := range []string{caKeyFile, IdentityFile} {
		if err := os.Chmod(filepath.Join(dir, name), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := OpenCA(dir); !errors.Is(err, ErrExposed) {
		t.Errorf("CA key readable by group: %v", err)
	}
	if _, _, err := OpenIdentity(dir); !errors.Is(err, ErrExposed) {
		t.Errorf("identity readable by group: %v", err)
	}
}

func TestOpenIdentitySaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := OpenIdentity(dir); !errors.Is(err, ErrNoIdentity) || !strings.Contains(err.Error(), "gctl join") {
		t.Errorf("never joined: %v", err)
	}
	longAgo := time.Now().Add(-Lifetime - 2*time.Hour)
	ca, err := NewCA("prod", longAgo)
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.Issue(dir, Grant{Peer: Peer{"prod", RoleNode, "n1"}}, longAgo.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := OpenIdentity(dir); !errors.Is(err, ErrNoIdentity) || !strings.Contains(err.Error(), "ended on") {
		t.Errorf("ended: %v", err)
	}
}
