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
	"slices"
	"sync/atomic"
	"time"
)

// Fingerprint is the SHA-256 of the CA certificate's DER form.
type Fingerprint [sha256.Size]byte

// String returns the fingerprint in lower-case hexadecimal.
func (f Fingerprint) String() string { return hex.EncodeToString(f[:]) }

// Trust is the public half of the cluster's CA: it identifies peers, and signs nothing. During a
// rotation it holds the certificates of two CAs, and either may have signed a peer's
// certificate. It is safe for concurrent use.
type Trust struct {
	clusterID string
	current   atomic.Pointer[authorities]
	revoked   atomic.Pointer[Revoked]
}

// authorities are the CAs that a Trust accepts, replaced and never changed.
type authorities struct {
	certs   []*x509.Certificate // the first one signs new certificates
	pool    *x509.CertPool
	changed chan struct{} // closed when they are replaced
}

func newAuthorities(certs []*x509.Certificate) *authorities {
	a := &authorities{certs: certs, pool: x509.NewCertPool(), changed: make(chan struct{})}
	for _, cert := range certs {
		a.pool.AddCert(cert)
	}
	return a
}

// maxAuthorities bounds the CAs of one cluster: the previous one and the next.
const maxAuthorities = 2

// Revoked returns an error that wraps ErrRevoked if the certificate of peer that was issued at that
// time is revoked, else nil.
type Revoked func(peer Peer, issued time.Time) error

// SetRevoked makes raft connections, and the certificates of dialled controllers, subject to the
// revocations that a controller knows. Other connections are checked call by call.
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
// longer be connected: its certificate has expired or was revoked, or its CA was replaced.
func (t *Trust) CheckConnection(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return nil
	}
	if err := t.CheckIssuer(state.PeerCertificates[0]); err != nil {
		return err
	}
	peer, err := t.Verify(state.PeerCertificates[0], time.Now())
	if err != nil {
		return err
	}
	return t.checkRevoked(peer, state.PeerCertificates[0])
}

// newTrust reads one or two CA certificates (DER) of one cluster.
func newTrust(ders ...[]byte) (*Trust, error) {
	certs, clusterID, err := parseAuthorities(ders)
	if err != nil {
		return nil, err
	}
	t := &Trust{clusterID: clusterID}
	t.current.Store(newAuthorities(certs))
	return t, nil
}

func parseAuthorities(ders [][]byte) (certs []*x509.Certificate, clusterID string, err error) {
	if len(ders) == 0 || len(ders) > maxAuthorities {
		return nil, "", fmt.Errorf("%w: %d CA certificates, want 1 or %d", ErrUntrusted, len(ders), maxAuthorities)
	}
	for i, der := range ders {
		cert, id, err := parseAuthority(der)
		if err != nil {
			return nil, "", err
		}
		if i > 0 && id != clusterID {
			return nil, "", fmt.Errorf("%w: CA certificates of two clusters, %s and %s", ErrUntrusted, clusterID, id)
		}
		certs, clusterID = append(certs, cert), id
	}
	return certs, clusterID, nil
}

// parseAuthority reads a CA certificate and the ID of its cluster.
func parseAuthority(der []byte) (*x509.Certificate, string, error) {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, "", fmt.Errorf("read CA certificate: %w", err)
	}
	if !cert.IsCA || cert.CheckSignatureFrom(cert) != nil {
		return nil, "", fmt.Errorf("%w: not a certificate of a cluster's CA", ErrUntrusted)
	}
	if len(cert.URIs) != 1 || cert.URIs[0].Scheme != scheme || cert.URIs[0].Path != "" {
		return nil, "", fmt.Errorf("%w: CA certificate does not name a cluster", ErrUntrusted)
	}
	return cert, cert.URIs[0].Host, ValidClusterID(cert.URIs[0].Host)
}

// ParseTrust reads one or two CA certificates in PEM form.
func ParseTrust(text []byte) (*Trust, error) {
	var ders [][]byte
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != pemCertificate {
			return nil, fmt.Errorf("%w: found a PEM block %.40q, want only certificates", ErrUntrusted, block.Type)
		}
		ders = append(ders, block.Bytes)
	}
	if len(ders) == 0 {
		return nil, fmt.Errorf("%w: no PEM certificate found", ErrUntrusted)
	}
	return newTrust(ders...)
}

// PinnedTrust reads the CA certificates (DER) that a joining host received and compares them with
// the fingerprint of its join token, which must be that of one of them. The host received all of
// them from a controller under the CA of the token.
func PinnedTrust(ders [][]byte, pin Fingerprint) (*Trust, error) {
	if !slices.ContainsFunc(ders, func(der []byte) bool { return pin.equal(sha256.Sum256(der)) }) {
		return nil, fmt.Errorf("%w: the CA certificate received is not the one of the join token", ErrUntrusted)
	}
	return newTrust(ders...)
}

// LoadTrust reads a file of CA certificates, such as DIR/ca.pem or /etc/greylag/client.d/ca.pem.
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

// Replace makes t accept these CA certificates (DER); the first one signs new certificates. It
// reports whether anything changed. The error wraps ErrUntrusted for certificates of another
// cluster, and nothing changes then.
func (t *Trust) Replace(ders [][]byte) (changed bool, err error) {
	certs, clusterID, err := parseAuthorities(ders)
	if err != nil {
		return false, err
	}
	if clusterID != t.clusterID {
		return false, fmt.Errorf("%w: CA certificates of cluster %s, this one is %s", ErrUntrusted, clusterID, t.clusterID)
	}
	old := t.current.Load()
	if slices.EqualFunc(old.certs, certs, (*x509.Certificate).Equal) {
		return false, nil
	}
	t.current.Store(newAuthorities(certs))
	close(old.changed)
	return true, nil
}

// Equal reports whether both accept the same CAs, in any order.
func (t *Trust) Equal(u *Trust) bool {
	mine, theirs := t.current.Load().certs, u.current.Load().certs
	return len(mine) == len(theirs) && !slices.ContainsFunc(mine, func(cert *x509.Certificate) bool {
		return !slices.ContainsFunc(theirs, cert.Equal)
	})
}

// Changed returns a channel that is closed when Replace changes t.
func (t *Trust) Changed() <-chan struct{} { return t.current.Load().changed }

// Save writes the CA certificates to DIR/ca.pem, mode 0644, unless they are there, creating the folder
// as MakePrivate does.
func (t *Trust) Save(dir string) error {
	if err := MakePrivate(dir); err != nil {
		return err
	}
	path, text := filepath.Join(dir, TrustFile), t.PEM()
	if present, err := os.ReadFile(path); err == nil && bytes.Equal(present, text) {
		return nil
	}
	return writeFile(path, text, 0o644)
}

// ClusterID returns the ID of the CA's cluster.
func (t *Trust) ClusterID() string { return t.clusterID }

// PEM returns the CA certificates in PEM form.
func (t *Trust) PEM() []byte {
	var text []byte
	for _, cert := range t.current.Load().certs {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: cert.Raw})...)
	}
	return text
}

// DERs returns the CA certificates in DER form. The first CA signs new certificates.
func (t *Trust) DERs() [][]byte {
	var ders [][]byte
	for _, cert := range t.current.Load().certs {
		ders = append(ders, bytes.Clone(cert.Raw))
	}
	return ders
}

// first returns the certificate of the CA that signs new certificates.
func (t *Trust) first() *x509.Certificate { return t.current.Load().certs[0] }

// Fingerprint identifies the CA that signs new certificates. It is in join tokens.
func (t *Trust) Fingerprint() Fingerprint { return FingerprintOf(t.first().Raw) }

// FingerprintOf returns the fingerprint of a CA certificate (DER).
func FingerprintOf(der []byte) Fingerprint { return sha256.Sum256(der) }

// Holds reports whether t accepts the CA with that fingerprint.
func (t *Trust) Holds(f Fingerprint) bool {
	return slices.ContainsFunc(t.current.Load().certs, func(cert *x509.Certificate) bool { return f.equal(FingerprintOf(cert.Raw)) })
}

// issuer returns the CA that signed a certificate, nil if t does not accept it. The signature must
// have been checked before: this compares key identifiers.
func (t *Trust) issuer(leaf *x509.Certificate) *x509.Certificate {
	for _, cert := range t.current.Load().certs {
		if bytes.Equal(cert.SubjectKeyId, leaf.AuthorityKeyId) {
			return cert
		}
	}
	return nil
}

// Issuer returns the fingerprint of the CA that signed a certificate whose signature was checked. ok is
// false if t does not accept that CA, or no longer.
func (t *Trust) Issuer(leaf *x509.Certificate) (f Fingerprint, ok bool) {
	cert := t.issuer(leaf)
	if cert == nil {
		return f, false
	}
	return FingerprintOf(cert.Raw), true
}

// CheckIssuer returns an error that wraps ErrUntrusted if the CA that signed a certificate, whose
// signature was checked, is no longer accepted.
func (t *Trust) CheckIssuer(leaf *x509.Certificate) error {
	if t.issuer(leaf) == nil {
		return fmt.Errorf("%w: its CA was replaced", ErrUntrusted)
	}
	return nil
}

// Expires returns the end of the certificate of the CA that signs new certificates.
func (t *Trust) Expires() time.Time { return t.first().NotAfter }

// Verify returns the identity in leaf if one of the CAs signed it and it is valid at now. The
// errors wrap ErrUntrusted or ErrBadPeer. One signature check, about 60 µs.
func (t *Trust) Verify(leaf *x509.Certificate, now time.Time) (Peer, error) {
	if leaf.IsCA {
		return Peer{}, fmt.Errorf("%w: a CA's certificate is no peer's", ErrUntrusted)
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: t.current.Load().pool, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
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

// PeerOf returns the identity of the client of a finished handshake under ServerTLS. ok is false
// for a client without a certificate. The CA may have been replaced since: see CheckIssuer. It
// costs no signature check: the handshake made it.
func (t *Trust) PeerOf(state *tls.ConnectionState) (peer Peer, ok bool) {
	if state == nil || !state.HandshakeComplete || len(state.VerifiedChains) == 0 {
		return Peer{}, false
	}
	peer, err := t.ours(state.VerifiedChains[0][0])
	return peer, err == nil
}

// ours reads the name in a certificate whose signature was checked against this CA.
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
