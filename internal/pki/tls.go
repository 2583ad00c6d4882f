package pki

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"
)

// ALPNRaft is the application protocol under which controllers speak raft on the API's port.
const ALPNRaft = "greylag-raft/1"

// ServerTLS returns a controller's settings: TLS 1.3, HTTP/2, HTTP/1.1 and raft by ALPN. A client
// may have no certificate (users have an identity token instead); a certificate must be of this
// cluster, and raft is for controllers only.
func ServerTLS(t *Trust, id *Identity) *tls.Config {
	c := &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{"h2", "http/1.1", ALPNRaft},
		ClientAuth: tls.VerifyClientCertIfGiven,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return id.Certificate(), nil
		},
		VerifyConnection: func(state tls.ConnectionState) error {
			peer, err := Peer{}, error(nil)
			switch {
			case len(state.PeerCertificates) == 0:
			case state.DidResume: // not checked again by the handshake; it may have expired since
				peer, err = t.Verify(state.PeerCertificates[0], time.Now())
			default:
				peer, err = t.ours(state.PeerCertificates[0])
			}
			if err != nil || state.NegotiatedProtocol != ALPNRaft {
				return err
			}
			if peer.Role != RoleController {
				return fmt.Errorf("%w: raft is for controllers, this is %s", ErrWrongRole, describe(peer))
			}
			return t.checkRevoked(peer, state.PeerCertificates[0])
		},
	}
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := c.Clone() // session tickets keep the keys of c
		now.ClientCAs = t.current.Load().pool
		return now, nil
	}
	return c
}

// ClientTLS returns the settings for dialling a controller. id is nil for a user's command, which
// proves its identity by token. The other end must hold a controller's certificate of this cluster;
// its host name or address does not matter, since only the CA's signature identifies a controller.
// An http.Transport that uses it needs ForceAttemptHTTP2, since h2 is offered.
func ClientTLS(t *Trust, id *Identity) *tls.Config {
	c := dialTLS(func(chain []*x509.Certificate) error { return t.controller(chain[0]) })
	c.NextProtos = []string{"h2", "http/1.1"}
	if id != nil {
		// The server takes the certificate of a resumed session from its first handshake; it may
		// have been renewed since.
		c.ClientSessionCache = nil
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			full := id.Certificate()
			return &tls.Certificate{Certificate: full.Certificate[:1], PrivateKey: full.PrivateKey, Leaf: full.Leaf}, nil
		}
	}
	return c
}

// RaftTLS returns the settings of a controller that dials another one for raft.
func RaftTLS(t *Trust, id *Identity) *tls.Config {
	c := ClientTLS(t, id)
	c.NextProtos = []string{ALPNRaft}
	return c
}

// PinnedTLS returns the settings for the one call that a joining host makes before it has the CA
// certificate: the other end must be a controller under the CA whose fingerprint the join token
// carries.
func PinnedTLS(pin Fingerprint) *tls.Config {
	c := dialTLS(func(chain []*x509.Certificate) error {
		t, err := pinned(chain, pin)
		if err != nil {
			return err
		}
		return t.controller(chain[0])
	})
	c.NextProtos = []string{"h2", "http/1.1"}
	return c
}

// dialTLS replaces the standard check, which is by host name, by one by role. VerifyConnection runs
// on every handshake, resumed ones included.
func dialTLS(check func([]*x509.Certificate) error) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, // replaced by VerifyConnection, which checks the whole chain
		ClientSessionCache: tls.NewLRUClientSessionCache(16),
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 {
				return fmt.Errorf("%w: the server showed none", ErrUntrusted)
			}
			return check(state.PeerCertificates)
		},
	}
}

func (t *Trust) controller(leaf *x509.Certificate) error {
	peer, err := t.Verify(leaf, time.Now())
	if err != nil {
		return err
	}
	if peer.Role != RoleController {
		return fmt.Errorf("%w: dialled a controller, reached %s", ErrWrongRole, peer)
	}
	return t.checkRevoked(peer, leaf)
}

func pinned(chain []*x509.Certificate, pin Fingerprint) (*Trust, error) {
	for _, cert := range chain {
		if pin.equal(sha256.Sum256(cert.Raw)) {
			return newTrust(cert.Raw)
		}
	}
	return nil, fmt.Errorf("%w: the server is not of the cluster that made this join token (CA %.16s…); check the host name, and make a new token if the CA was rotated since", ErrUntrusted, pin)
}

func describe(p Peer) string {
	if p.Role == "" {
		return "a client without a certificate"
	}
	return p.String()
}
