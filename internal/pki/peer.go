// Package pki is the cluster's own certificate authority and what depends on it: the identity of a
// peer, read from its certificate; the TLS settings of both ends; join tokens; renewal.
//
// It decides one question, "which controller, node or gauthd is at the other end", from the
// cluster's CA certificate alone. It never decides what that peer may do (internal/auth does),
// never trusts a name that the other side wrote (names come from the grant that the controller
// made, not from the signing request), and never uses the host's own list of authorities.
//
// Keys are ECDSA P-256 for the CA, controllers and nodes: browsers and curl accept it and a
// handshake costs less than with RSA. gauthd holds an Ed25519 key, because the same key signs
// identity tokens.
package pki

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Role is the role of a certificate's holder in the cluster.
type Role string

// The roles that the CA signs for.
const (
	RoleController Role = "controller"
	RoleNode       Role = "node"
	RoleAuth       Role = "auth"
)

// Valid reports whether the CA signs for this role.
func (r Role) Valid() bool { return r == RoleController || r == RoleNode || r == RoleAuth }

// Peer is the identity in a certificate. Its printed form is the certificate's URI name,
// greylag://<cluster-id>/<role>/<name>.
type Peer struct {
	ClusterID string
	Role      Role
	Name      string
}

// Errors about the identity of a peer.
var (
	// ErrBadPeer marks a name, role or cluster ID that cannot be in a certificate.
	ErrBadPeer = errors.New("not a valid peer name")
	// ErrUntrusted marks a certificate that this cluster's CA did not sign, or no longer accepts.
	ErrUntrusted = errors.New("certificate is not trusted by this cluster")
	// ErrWrongRole marks a certificate of this cluster whose role may not do this.
	ErrWrongRole = errors.New("certificate has the wrong role")
	// ErrRevoked marks a certificate of this cluster that an administrator revoked.
	ErrRevoked = errors.New("certificate was revoked")
)

const scheme = "greylag"

// Names longer than these are refused: 64 is the limit of a certificate's common name, 253 that of a
// host name.
const (
	maxClusterID = 64
	maxName      = 253
)

// String returns the URI in the peer's certificate.
func (p Peer) String() string {
	return scheme + "://" + p.ClusterID + "/" + string(p.Role) + "/" + p.Name
}

// Validate returns nil if the peer can be in a certificate, else an error that wraps ErrBadPeer.
func (p Peer) Validate() error {
	if err := ValidClusterID(p.ClusterID); err != nil {
		return err
	}
	if !p.Role.Valid() {
		return fmt.Errorf("%w: role %q is not controller, node or auth", ErrBadPeer, p.Role)
	}
	if p.Name == "" || len(p.Name) > maxName || !onlyNameBytes(p.Name) || strings.Trim(p.Name, ".-_") != p.Name {
		return fmt.Errorf("%w: %q must be a host name: letters, digits, dots, dashes, at most %d of them", ErrBadPeer, p.Name, maxName)
	}
	return nil
}

// ValidClusterID returns nil for 1 to 64 lower-case letters, digits and inner dashes, else an error
// that wraps ErrBadPeer.
func ValidClusterID(id string) error {
	bad := id == "" || len(id) > maxClusterID || strings.Trim(id, "-") != id
	for _, c := range []byte(id) {
		bad = bad || !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-')
	}
	if bad {
		return fmt.Errorf("%w: cluster ID %q must be 1 to %d lower-case letters, digits and inner dashes", ErrBadPeer, id, maxClusterID)
	}
	return nil
}

// suffix is the number of hexadecimal digits that make a cluster's name unique.
const suffix = 8

// NewClusterID returns a unique ID from a cluster's name of at most 40 characters: two clusters of
// one name must not be mixed up. The error wraps ErrBadPeer.
func NewClusterID(name string) (string, error) {
	if err := ValidClusterID(name); err != nil {
		return "", err
	}
	if len(name) > 40 {
		return "", fmt.Errorf("%w: a cluster's name has at most 40 characters, %q has %d", ErrBadPeer, name, len(name))
	}
	var b [suffix / 2]byte
	_, _ = rand.Read(b[:]) // never fails on Linux
	return name + "-" + hex.EncodeToString(b[:]), nil
}

// ClusterName returns the name in an ID of NewClusterID; else the ID itself.
func ClusterName(id string) string {
	at := strings.LastIndexByte(id, '-')
	if at < 1 || len(id)-at-1 != suffix {
		return id
	}
	if _, err := hex.DecodeString(id[at+1:]); err != nil {
		return id
	}
	return id[:at]
}

func onlyNameBytes(s string) bool {
	for _, c := range []byte(s) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '-' || c == '_') {
			return false
		}
	}
	return true
}

// peerOf reads the one URI name of a certificate. It does not check who signed it.
func peerOf(cert *x509.Certificate) (Peer, error) {
	if len(cert.URIs) != 1 {
		return Peer{}, fmt.Errorf("%w: certificate has %d URI names, expected one", ErrBadPeer, len(cert.URIs))
	}
	return parsePeer(cert.URIs[0])
}

func parsePeer(u *url.URL) (Peer, error) {
	role, name, ok := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	p := Peer{ClusterID: u.Host, Role: Role(role), Name: name}
	if !ok || u.Scheme != scheme || p.String() != u.String() {
		return Peer{}, fmt.Errorf("%w: %q is not of the form greylag://CLUSTER/ROLE/NAME", ErrBadPeer, u.String())
	}
	return p, p.Validate()
}
