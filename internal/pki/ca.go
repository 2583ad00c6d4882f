package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/greylag/greylag/internal/command"
)

// Lifetimes of certificates.
const (
	// Lifetime of a leaf. Renewal starts at two thirds, so a daemon can miss its controllers for ten
	// days before it must join again.
	Lifetime = command.CertificateLife
	// caLifetime outlives a cluster's hardware; gctl cert rotate replaces the CA before its end.
	caLifetime = 20 * 365 * 24 * time.Hour
	// backdate lets a host with a slow clock accept a new certificate.
	backdate = time.Hour
)

// Errors about the CA and signing.
var (
	// ErrExists marks a folder that already holds another CA; it is never overwritten.
	ErrExists = errors.New("a CA already exists here")
	// ErrBadRequest marks a certificate signing request that the CA refuses.
	ErrBadRequest = errors.New("certificate request refused")
	// ErrNoKey marks a CA whose private key this controller does not have.
	ErrNoKey = errors.New("this controller does not have the private key of the CA")
)

// CA can sign for the cluster. Its holder controls the cluster, so only controllers have it. It
// holds the private keys, as far as it has them, of the CAs that its Trust accepts. It is safe for
// concurrent use.
type CA struct {
	trust *Trust
	dir   string // folder of the keys; "" keeps them only in memory
	mu    sync.Mutex
	keys  []crypto.Signer
}

// Grant is the identity that the CA certifies. The controller makes it from a join token or a
// verified peer; nothing in it may be copied from a signing request.
type Grant struct {
	Peer Peer
	// Hosts are the DNS names and IP addresses of a controller for programs that check host names,
	// such as curl and browsers. Other roles have none.
	Hosts []string
}

// NewCA creates the CA of a new cluster: a P-256 key and a certificate of 20 years.
func NewCA(clusterID string, now time.Time) (*CA, error) {
	if err := ValidClusterID(clusterID); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make CA key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          newSerial(),
		Subject:               pkix.Name{CommonName: "greylag CA " + clusterID[:min(len(clusterID), 50)]},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(caLifetime),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true, // it signs leaves only
		URIs:                  []*url.URL{{Scheme: scheme, Host: clusterID}},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make CA certificate: %w", err)
	}
	trust, err := newTrust(der)
	if err != nil {
		return nil, err
	}
	return &CA{trust: trust, keys: []crypto.Signer{key}}, nil
}

// NewCAFrom joins the CAs' public half and their private keys (PEM), as a joining controller
// receives them. Some CAs of trust may lack a key, but not all.
func NewCAFrom(trust *Trust, keyPEM []byte) (*CA, error) {
	ca := &CA{trust: trust}
	if err := ca.addKeys(keyPEM); err != nil {
		return nil, err
	}
	for _, cert := range trust.current.Load().certs {
		if ca.keyOf(cert) != nil {
			return ca, nil
		}
	}
	return nil, fmt.Errorf("%w: CA key and CA certificate do not belong together", ErrUntrusted)
}

// LoadCA reads DIR/ca-key.pem, the keys of the CAs in trust. A key file that others can read is an
// error.
func LoadCA(dir string, trust *Trust) (*CA, error) {
	keyPEM, err := readPrivate(filepath.Join(dir, caKeyFile))
	if err != nil {
		return nil, fmt.Errorf("read CA key: %w", err)
	}
	ca, err := NewCAFrom(trust, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	ca.dir = dir
	return ca, nil
}

// OpenCA reads DIR/ca.pem and DIR/ca-key.pem.
func OpenCA(dir string) (*CA, error) {
	trust, err := LoadTrust(filepath.Join(dir, TrustFile))
	if err != nil {
		return nil, err
	}
	return LoadCA(dir, trust)
}

// addKeys adds the private keys (PEM) that ca does not have.
func (ca *CA) addKeys(text []byte) error {
	keys, err := parseKeys(text)
	if err != nil {
		return fmt.Errorf("read CA key: %w", err)
	}
	ca.mu.Lock()
	defer ca.mu.Unlock()
	for _, key := range keys {
		if !slices.ContainsFunc(ca.keys, func(k crypto.Signer) bool { return samePublic(k.Public(), key.Public()) }) {
			ca.keys = append(ca.keys, key)
		}
	}
	return nil
}

// keyOf returns the private key of a CA, nil if ca does not have it.
func (ca *CA) keyOf(cert *x509.Certificate) crypto.Signer {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	for _, key := range ca.keys {
		if samePublic(key.Public(), cert.PublicKey) {
			return key
		}
	}
	return nil
}

// HasKey reports whether ca has the private key of the CA with this certificate (DER).
func (ca *CA) HasKey(der []byte) bool {
	cert, _, err := parseAuthority(der)
	return err == nil && ca.keyOf(cert) != nil
}

// KeyFits reports whether one of the private keys (PEM) is that of the CA with this certificate (DER).
func KeyFits(keyPEM, der []byte) bool {
	keys, err := parseKeys(keyPEM)
	cert, _, failed := parseAuthority(der)
	return err == nil && failed == nil && slices.ContainsFunc(keys, func(key crypto.Signer) bool { return samePublic(key.Public(), cert.PublicKey) })
}

// AddKeys adds private keys (PEM), and saves all of them where LoadCA read them.
func (ca *CA) AddKeys(keyPEM []byte) error {
	if err := ca.addKeys(keyPEM); err != nil {
		return err
	}
	return ca.saveKeys(ca.dir)
}

// DropKey removes, also on disk, the private key of the CA with this certificate (DER).
func (ca *CA) DropKey(der []byte) error {
	cert, _, err := parseAuthority(der)
	if err != nil {
		return err
	}
	ca.mu.Lock()
	ca.keys = slices.DeleteFunc(slices.Clone(ca.keys), func(key crypto.Signer) bool { return samePublic(key.Public(), cert.PublicKey) })
	ca.mu.Unlock()
	return ca.saveKeys(ca.dir)
}

func (ca *CA) saveKeys(dir string) error {
	if dir == "" {
		return nil
	}
	keys, err := ca.KeyPEM()
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, caKeyFile), keys, 0o600)
}

// Save writes DIR/ca.pem (0644) and DIR/ca-key.pem (0600), the folder with mode 0700. Saving the
// same CA again changes nothing; for a folder with another one it returns ErrExists.
func (ca *CA) Save(dir string) error {
	there, err := LoadTrust(filepath.Join(dir, TrustFile))
	switch {
	case err == nil && !there.Fingerprint().equal(ca.trust.Fingerprint()):
		return fmt.Errorf("%w: %s holds the CA of cluster %s", ErrExists, dir, there.clusterID)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := MakePrivate(dir); err != nil {
		return err
	}
	// The key first: a certificate without its key would look like a complete CA.
	if err := ca.saveKeys(dir); err != nil {
		return err
	}
	return ca.trust.Save(dir)
}

// Trust returns the CA's public half.
func (ca *CA) Trust() *Trust { return ca.trust }

// KeyPEM returns the CAs' private keys, for another controller. They are the whole cluster's
// secret: they leave a controller only over a connection whose other end proved a controller's
// token or certificate.
func (ca *CA) KeyPEM() ([]byte, error) {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	var text []byte
	for _, key := range ca.keys {
		one, err := keyPEM(key)
		if err != nil {
			return nil, err
		}
		text = append(text, one...)
	}
	return text, nil
}

// Sign answers a signing request (DER) with a certificate (DER) for the identity in grant, valid
// for Lifetime from now, by the first CA of the Trust. It takes only the public key from the
// request. The errors wrap ErrBadRequest, ErrBadPeer or ErrNoKey.
func (ca *CA) Sign(csr []byte, grant Grant, now time.Time) ([]byte, error) {
	return ca.SignBy(ca.trust.first().Raw, csr, grant, now)
}

// SignBy is Sign by the CA with this certificate (DER).
func (ca *CA) SignBy(authority, csr []byte, grant Grant, now time.Time) ([]byte, error) {
	if err := grant.Peer.Validate(); err != nil {
		return nil, err
	}
	if grant.Peer.ClusterID != ca.trust.clusterID {
		return nil, fmt.Errorf("%w: %s is not of cluster %s", ErrBadPeer, grant.Peer, ca.trust.clusterID)
	}
	request, err := x509.ParseCertificateRequest(csr)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadRequest, err)
	}
	if err := request.CheckSignature(); err != nil {
		return nil, fmt.Errorf("%w: requester does not hold the key: %w", ErrBadRequest, err)
	}
	if err := keyFits(request.PublicKey, grant.Peer.Role); err != nil {
		return nil, err
	}
	cert, _, err := parseAuthority(authority)
	if err != nil {
		return nil, err
	}
	key := ca.keyOf(cert)
	if key == nil {
		return nil, fmt.Errorf("%w %.16s…", ErrNoKey, FingerprintOf(authority))
	}
	der, err := x509.CreateCertificate(rand.Reader, leafTemplate(grant, now), cert, request.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate for %s: %w", grant.Peer, err)
	}
	return der, nil
}

// Issue creates a key and a certificate for grant and saves both with the CA certificate in dir: a
// controller does so for itself at init, and --dev for all three roles.
func (ca *CA) Issue(dir string, grant Grant, now time.Time) error {
	key, csr, err := NewRequest(grant.Peer.Role)
	if err != nil {
		return err
	}
	cert, err := ca.Sign(csr, grant, now)
	if err != nil {
		return err
	}
	return SaveIdentity(dir, ca.trust, key, cert)
}

func leafTemplate(grant Grant, now time.Time) *x509.Certificate {
	p := grant.Peer
	usage := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	template := &x509.Certificate{
		SerialNumber: newSerial(),
		Subject:      pkix.Name{CommonName: p.Name[:min(len(p.Name), 64)], OrganizationalUnit: []string{string(p.Role)}},
		NotBefore:    now.Add(-backdate),
		NotAfter:     now.Add(Lifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		URIs:         []*url.URL{{Scheme: scheme, Host: p.ClusterID, Path: "/" + string(p.Role) + "/" + p.Name}},
	}
	if p.Role == RoleController {
		usage = append(usage, x509.ExtKeyUsageServerAuth)
		for _, h := range grant.Hosts {
			if ip := net.ParseIP(h); ip != nil {
				template.IPAddresses = append(template.IPAddresses, ip)
			} else if onlyNameBytes(h) && h != "" {
				template.DNSNames = append(template.DNSNames, h)
			}
		}
	}
	template.ExtKeyUsage = usage
	return template
}

// Issued returns the instant of issue of a certificate of Sign, in whole seconds.
func Issued(leaf *x509.Certificate) time.Time { return leaf.NotBefore.Add(backdate) }

// keyFits refuses kinds of keys that the rest of the cluster does not expect of a role.
func keyFits(public any, role Role) error {
	switch k := public.(type) {
	case *ecdsa.PublicKey:
		if role != RoleAuth && k.Curve == elliptic.P256() {
			return nil
		}
	case ed25519.PublicKey:
		if role == RoleAuth {
			return nil
		}
	}
	return fmt.Errorf("%w: %s needs %s key, got %T", ErrBadRequest, role, map[bool]string{true: "an Ed25519", false: "a P-256"}[role == RoleAuth], public)
}

// newSerial draws 127 random bits. crypto/rand never fails on Linux; it ends the process instead.
func newSerial() *big.Int {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b[:])
}
