package pki

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

// Fingerprint is the SHA-256 of the CA certificate's DER form.
type Fingerprint [sha256.Size]byte

// String is the fingerprint in lower-case hexadecimal.
func (f Fingerprint) String() string { return hex.EncodeToString(f[:]) }

// Trust is the public half of the cluster's CA: enough to tell who a peer is, not to make one.
// It is safe for concurrent use.
type Trust struct {
	clusterID string
	cert      *x509.Certificate
	pool      *x509.CertPool
	revoked   atomic.Pointer[Revoked]
}

// Revoked returns an error that wraps ErrRevoked if the certificate of peer that was issued at that
// time is revoked, else nil.
type Revoked func(peer Peer, issued time.Time) error

// SetRevoked has raft connections, and the certificates of controllers that are dialled, checked
// against the revocations that a controller knows. Other connections are checked call by call.
func (t *Trust) SetRevoked(check Revoked) { t.revoked.Store(&check) }

// checkRevoked returns an error that wraps ErrRevoked for a revoked certificate.
func (t *Trust) checkRevoked(peer Peer, leaf *x509.Certificate) error {
	check := t.revoked.Load()
	if check == nil {
		return nil
	}
	return (*check)(peer, Issued(leaf))
}

// CheckConnection returns an error if the peer at the other end of a finished handshake may no
// longer be connected: its certificate has expired or was revoked.
func (t *Trust) CheckConnection(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return nil
	}
	peer, err := t.Verify(state.PeerCertificates[0], time.Now())
	if err != nil {
		return err
	}
	return t.checkRevoked(peer, state.PeerCertificates[0])
}

func newTrust(der []byte) (*Trust, error) {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read CA certificate: %w", err)
	}
	if !cert.IsCA || cert.CheckSignatureFrom(cert) != nil {
		return nil, fmt.Errorf("%w: not a certificate of a cluster's CA", ErrUntrusted)
	}
	if len(cert.URIs) != 1 || cert.URIs[0].Scheme != scheme || cert.URIs[0].Path != "" {
		return nil, fmt.Errorf("%w: CA certificate does not name a cluster", ErrUntrusted)
	}
	if err := ValidClusterID(cert.URIs[0].Host); err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &Trust{clusterID: cert.URIs[0].Host, cert: cert, pool: pool}, nil
}

// ParseTrust reads a CA certificate in PEM form.
func ParseTrust(text []byte) (*Trust, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != pemCertificate {
		return nil, fmt.Errorf("%w: no PEM certificate found", ErrUntrusted)
	}
	return newTrust(block.Bytes)
}

// PinnedTrust reads the CA certificate (DER) that a joining host was sent and holds it against the
// fingerprint of its join token.
func PinnedTrust(der []byte, pin Fingerprint) (*Trust, error) {
	if !pin.equal(sha256.Sum256(der)) {
		return nil, fmt.Errorf("%w: the CA certificate received is not the one of the join token", ErrUntrusted)
	}
	return newTrust(der)
}

// LoadTrust reads a CA certificate file, such as DIR/ca.pem or /etc/greylag/ca.pem.
func LoadTrust(path string) (*Trust, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read CA certificate: %w", err)
	}
	t, err := ParseTrust(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// Save writes the CA certificate to DIR/ca.pem, mode 0644, creating the folder as MakePrivate
// does.
func (t *Trust) Save(dir string) error {
	if err := MakePrivate(dir); err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, TrustFile), t.PEM(), 0o644)
}

// ClusterID is the id of the cluster whose CA this is.
func (t *Trust) ClusterID() string { return t.clusterID }

// PEM is the CA certificate in PEM form.
func (t *Trust) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: t.cert.Raw})
}

// DER is the CA certificate in DER form.
func (t *Trust) DER() []byte { return bytes.Clone(t.cert.Raw) }

// Fingerprint identifies the CA. It stands in join tokens.
func (t *Trust) Fingerprint() Fingerprint { return sha256.Sum256(t.cert.Raw) }

// Expires is when the CA certificate, and with it every certificate of the cluster, ends.
func (t *Trust) Expires() time.Time { return t.cert.NotAfter }

// Verify returns who leaf belongs to if this CA signed it and it is valid at now. The errors wrap
// ErrUntrusted or ErrBadPeer. One signature check, about 60 µs.
func (t *Trust) Verify(leaf *x509.Certificate, now time.Time) (Peer, error) {
	if leaf.IsCA {
		return Peer{}, fmt.Errorf("%w: a CA's certificate is no peer's", ErrUntrusted)
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: t.pool, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil {
		return Peer{}, fmt.Errorf("%w: %w", ErrUntrusted, err)
	}
	return t.ours(leaf)
}

// VerifyDER is Verify of a certificate in DER form; it returns the parsed certificate as well.
func (t *Trust) VerifyDER(der []byte, now time.Time) (Peer, *x509.Certificate, error) {
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return Peer{}, nil, fmt.Errorf("%w: %w", ErrUntrusted, err)
	}
	peer, err := t.Verify(leaf, now)
	return peer, leaf, err
}

// PeerOf tells who the client of a finished handshake under ServerTLS is. ok is false for a client
// that showed no certificate. It costs no signature check: the handshake made it.
func (t *Trust) PeerOf(state *tls.ConnectionState) (peer Peer, ok bool) {
	if state == nil || !state.HandshakeComplete || len(state.VerifiedChains) == 0 {
		return Peer{}, false
	}
	peer, err := t.ours(state.VerifiedChains[0][0])
	return peer, err == nil
}

// ours reads the name of a certificate whose signature was checked against this CA.
func (t *Trust) ours(leaf *x509.Certificate) (Peer, error) {
	peer, err := peerOf(leaf)
	if err != nil {
		return Peer{}, err
	}
	if peer.ClusterID != t.clusterID {
		return Peer{}, fmt.Errorf("%w: %s is of another cluster, this one is %s", ErrUntrusted, peer, t.clusterID)
	}
	return peer, nil
}

// equal reports whether two fingerprints are the same, in constant time.
func (f Fingerprint) equal(g Fingerprint) bool { return subtle.ConstantTimeCompare(f[:], g[:]) == 1 }
