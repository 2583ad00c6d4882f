package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// ErrNoIdentity marks a host that has not joined, or whose certificate ended before it was renewed.
var ErrNoIdentity = errors.New("this host has no valid certificate of the cluster")

// recheck is the shortest interval between two checks of the identity file. A stat costs 1 µs; a
// second is soon enough for a certificate that is renewed ten days before its end.
const recheck = time.Second

// Identity is this process's own key and certificate, read from DIR/identity.pem and again when
// that file changes. Safe for concurrent use.
type Identity struct {
	path    string
	trust   *Trust
	now     func() time.Time
	current atomic.Pointer[credential]
	next    atomic.Int64 // unix ns before which the file is not checked
	reload  sync.Mutex
}

// credential is one matching pair, immutable once published.
type credential struct {
	peer Peer
	tls  tls.Certificate // chain: leaf, CA, so that a pinning joiner sees the CA
	file fs.FileInfo
}

// NewRequest creates a key for the role and a signing request (DER) for it. The request carries no
// names: the CA takes them from the grant.
func NewRequest(role Role) (crypto.Signer, []byte, error) {
	var key crypto.Signer
	var err error
	if role == RoleAuth {
		_, key, err = ed25519.GenerateKey(rand.Reader)
	} else {
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("make key: %w", err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, nil, fmt.Errorf("make certificate request: %w", err)
	}
	return key, csr, nil
}

// SaveIdentity writes the CA certificate and then, in one file and one rename, key and certificate
// (DER). It refuses a certificate that trust did not sign or that is not for this key.
func SaveIdentity(dir string, trust *Trust, key crypto.Signer, cert []byte) error {
	leaf, err := x509.ParseCertificate(cert)
	if err != nil {
		return fmt.Errorf("save certificate: %w", err)
	}
	if _, err := trust.Verify(leaf, leaf.NotBefore.Add(backdate)); err != nil {
		return fmt.Errorf("save certificate: %w", err)
	}
	if !samePublic(key.Public(), leaf.PublicKey) {
		return fmt.Errorf("save certificate: %w: it is not for the key that was made", ErrUntrusted)
	}
	private, err := keyPEM(key)
	if err != nil {
		return err
	}
	if err := trust.Save(dir); err != nil {
		return err
	}
	content := append(pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: cert}), private...)
	return writeFile(filepath.Join(dir, IdentityFile), content, 0o600)
}

// OpenIdentity reads DIR/identity.pem and DIR/ca.pem. For a host that has not joined, or whose
// certificate has expired, it returns ErrNoIdentity.
func OpenIdentity(dir string) (*Identity, *Trust, error) {
	path := filepath.Join(dir, IdentityFile)
	trust, err := LoadTrust(filepath.Join(dir, TrustFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("%w: %s is absent, run: gctl join TOKEN@HOST", ErrNoIdentity, filepath.Join(dir, TrustFile))
	}
	if err != nil {
		return nil, nil, err
	}
	id := &Identity{path: path, trust: trust, now: time.Now}
	if err := id.load(); err != nil {
		return nil, nil, err
	}
	return id, trust, nil
}

// Peer returns this process's identity in the cluster.
func (id *Identity) Peer() Peer { return id.current.Load().peer }

// Expires returns the end of the certificate in use.
func (id *Identity) Expires() time.Time { return id.current.Load().tls.Leaf.NotAfter }

// Superseded reports whether another CA than that of the certificate in use signs new certificates.
// The certificate has to be renewed then.
func (id *Identity) Superseded() bool {
	f, ok := id.trust.Issuer(id.current.Load().tls.Leaf)
	return !ok || f != id.trust.Fingerprint()
}

// Certificate returns the pair in use; the chain is leaf, CA, and its Leaf is parsed. It first
// reads a changed file; a new file that is not usable leaves the old pair in place, and Check
// returns why.
func (id *Identity) Certificate() *tls.Certificate {
	if now := id.now().UnixNano(); now >= id.next.Load() {
		id.next.Store(now + int64(recheck))
		_ = id.Check() // reported by the caller of Check
	}
	return &id.current.Load().tls
}

// Check reads the file if it changed, and uses the new pair. It returns why a changed file cannot
// be used. Daemons call it from their renewal loop to log that.
func (id *Identity) Check() error {
	id.reload.Lock()
	defer id.reload.Unlock()
	info, err := os.Stat(id.path)
	if err != nil {
		return fmt.Errorf("stat certificate: %w", err)
	}
	old := id.current.Load().file
	if os.SameFile(old, info) && old.ModTime().Equal(info.ModTime()) && old.Size() == info.Size() {
		return nil
	}
	return id.load()
}

func (id *Identity) load() error {
	info, err := os.Stat(id.path) // before the read: a later change is then seen as a change
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s is absent, run: gctl join TOKEN@HOST", ErrNoIdentity, id.path)
	}
	if err != nil {
		return fmt.Errorf("read certificate: %w", err)
	}
	text, err := readPrivate(id.path)
	if err != nil {
		return fmt.Errorf("read certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(text, text)
	if err != nil {
		return fmt.Errorf("read certificate: %s: %w", id.path, err)
	}
	peer, err := id.trust.Verify(pair.Leaf, id.now())
	if end := pair.Leaf.NotAfter; err != nil && id.now().After(end) {
		return fmt.Errorf("%w: %s ended on %s, run: gctl join TOKEN@HOST", ErrNoIdentity, id.path, end.UTC().Format(time.DateTime))
	}
	if err != nil {
		return fmt.Errorf("read certificate: %s: %w", id.path, err)
	}
	pair.Certificate = [][]byte{pair.Certificate[0], id.trust.issuer(pair.Leaf).Raw}
	id.current.Store(&credential{peer: peer, tls: pair, file: info})
	return nil
}
