package auth

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"sync"
	"time"

	"github.com/greylag/greylag/internal/hint"
	"github.com/greylag/greylag/internal/pki"
)

// Bounds of a Verifier's cache: about 5 MB together. Only valid tokens are cached, so invalid ones
// push nothing out.
const (
	maxTokensKept  = 16 << 10 // one entry for each user's process of the last minute
	maxSignersKept = 1 << 10  // login nodes
)

// Verifier checks identity tokens against the cluster's CA. It caches tokens, so that a repeated
// one costs a hash and no signature check, and the certificates of signers, so that a new token of
// a known login node costs one signature check instead of two. Safe for concurrent use.
type Verifier struct {
	trust   *pki.Trust
	revoked pki.Revoked
	mu      sync.Mutex
	tokens  *lru[Identity]
	signers *lru[signer]
}

// signer is a gauthd whose certificate the CA signed.
type signer struct {
	host string
	key  ed25519.PublicKey
	leaf *x509.Certificate
}

// NewVerifier returns a verifier for the cluster of that CA. It asks revoked about the signer of
// each token, also of a cached one; nil means that no certificate is ever revoked.
func NewVerifier(trust *pki.Trust, revoked pki.Revoked) *Verifier {
	if revoked == nil {
		revoked = func(pki.Peer, time.Time) error { return nil }
	}
	return &Verifier{trust: trust, revoked: revoked, tokens: newLRU[Identity](maxTokensKept), signers: newLRU[signer](maxSignersKept)}
}

// Verify returns the identity in a token if it is valid at now. The errors wrap ErrBadToken,
// ErrExpired or ErrClock; those about time carry a hint. O(length of the token).
func (v *Verifier) Verify(token string, now time.Time) (Identity, error) {
	if len(token) > maxToken {
		return Identity{}, fmt.Errorf("%w: %d characters are too many", ErrBadToken, len(token))
	}
	key := digest(sha256.Sum256([]byte(token)))
	v.mu.Lock()
	id, known := v.tokens.find(key)
	v.mu.Unlock()
	if known {
		if err := v.checkSigner(id); err != nil {
			return Identity{}, err
		}
		return id, checkTimes(id, now)
	}
	id, err := v.verify(token, now)
	if err == nil {
		err = v.checkSigner(id)
	}
	if err != nil {
		return Identity{}, err
	}
	v.mu.Lock()
	v.tokens.add(key, id)
	v.mu.Unlock()
	return id, nil
}

// checkSigner returns an error that wraps ErrBadToken if the login node's certificate was revoked, or
// its CA is no longer accepted.
func (v *Verifier) checkSigner(id Identity) error {
	if err := v.trust.CheckIssuer(id.Signer); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrBadToken, id.Host, err)
	}
	peer := pki.Peer{ClusterID: v.trust.ClusterID(), Role: pki.RoleAuth, Name: id.Host}
	if err := v.revoked(peer, pki.Issued(id.Signer)); err != nil {
		return fmt.Errorf("%w: %w", ErrBadToken, err)
	}
	return nil
}

func (v *Verifier) verify(token string, now time.Time) (Identity, error) {
	c, signed, signature, err := decode(token)
	if err != nil {
		return Identity{}, err
	}
	if c.life <= 0 || c.life > maxLife {
		return Identity{}, fmt.Errorf("%w: it claims to last %v, at most %v", ErrBadToken, c.life, maxLife)
	}
	s, err := v.signer(c.cert, now)
	if err != nil {
		return Identity{}, err
	}
	if !ed25519.Verify(s.key, signed, signature) {
		return Identity{}, fmt.Errorf("%w: it was altered after %s signed it", ErrBadToken, s.host)
	}
	issued := time.UnixMilli(c.issued).UTC()
	id := Identity{Identity: c.user, Host: s.host, Issued: issued, Expires: issued.Add(c.life), Signer: s.leaf}
	return id, checkTimes(id, now)
}

// signer returns the gauthd whose certificate (DER) this is, if it may sign at now.
func (v *Verifier) signer(cert []byte, now time.Time) (signer, error) {
	key := digest(sha256.Sum256(cert))
	v.mu.Lock()
	s, known := v.signers.find(key)
	v.mu.Unlock()
	if known && !now.Before(s.leaf.NotBefore) && !now.After(s.leaf.NotAfter) {
		return s, nil
	}
	peer, leaf, err := v.trust.VerifyDER(cert, now)
	if err != nil {
		return signer{}, fmt.Errorf("%w: its signer is unknown: %w", ErrBadToken, err)
	}
	public, ok := leaf.PublicKey.(ed25519.PublicKey)
	if peer.Role != pki.RoleAuth || !ok {
		return signer{}, fmt.Errorf("%w: %w: %s may not issue identity tokens", ErrBadToken, pki.ErrWrongRole, peer)
	}
	s = signer{host: peer.Name, key: public, leaf: leaf}
	v.mu.Lock()
	v.signers.add(key, s)
	v.mu.Unlock()
	return s, nil
}

// checkTimes allows Skew on both sides. Beyond it, a token's age tells the two cases apart.
func checkTimes(id Identity, now time.Time) error {
	if ahead := id.Issued.Sub(now); ahead > Skew {
		return hint.New(
			fmt.Errorf("%w: the clock of %s is %v ahead of this controller's", ErrClock, id.Host, ahead.Round(time.Second)),
			"set the clocks, for example with chrony: they may differ by "+Skew.String(),
		)
	}
	if late := now.Sub(id.Expires); late > Skew {
		return hint.New(
			fmt.Errorf("%w: %v ago, by the clock of this controller", ErrExpired, late.Round(time.Second)),
			"run the command again; if that does not help, the clock of "+id.Host+" is behind",
		)
	}
	return nil
}
