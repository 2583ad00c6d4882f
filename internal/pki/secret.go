package pki

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdsa"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// ErrUnreadable marks a secret that no controller can decrypt.
var ErrUnreadable = errors.New("the secret cannot be decrypted")

// Seal encrypts the value of a secret for its owner and name, which must be set. The key is derived from the
// private key of the CA with this certificate (DER). The error wraps ErrNoKey without that key.
func (ca *CA) Seal(authority []byte, s *command.Secret, value []byte) error {
	cert, _, err := parseAuthority(authority)
	if err != nil {
		return err
	}
	aead, err := ca.secretCipher(cert)
	if err != nil {
		return err
	}
	s.Authority, s.Sealed = sha256.Sum256(authority), aead.Seal(nil, nil, value, secretLabel(s))
	return nil
}

// Unseal returns the value of a secret. The errors wrap ErrNoKey or ErrUnreadable.
func (ca *CA) Unseal(s *command.Secret) ([]byte, error) {
	certs := ca.trust.current.Load().certs
	i := slices.IndexFunc(certs, func(c *x509.Certificate) bool { return cluster.Digest(sha256.Sum256(c.Raw)) == s.Authority })
	if i < 0 {
		return nil, fmt.Errorf("%w: the cluster does not use the CA %.16s…", ErrUnreadable, Fingerprint(s.Authority))
	}
	aead, err := ca.secretCipher(certs[i])
	if err != nil {
		return nil, err
	}
	value, err := aead.Open(nil, nil, s.Sealed, secretLabel(s))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return value, nil
}

// secretCipher returns the cipher of secrets under a CA: AES-256-GCM with random nonces, which the
// ciphertext begins with.
func (ca *CA) secretCipher(cert *x509.Certificate) (cipher.AEAD, error) {
	private, ok := ca.keyOf(cert).(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%w %.16s…", ErrNoKey, FingerprintOf(cert.Raw))
	}
	scalar, err := private.Bytes()
	if err != nil {
		return nil, err
	}
	key, err := hkdf.Key(sha256.New, scalar, nil, "greylag secrets 1 "+ca.trust.clusterID, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// secretLabel binds a ciphertext to its owner and name.
func secretLabel(s *command.Secret) []byte {
	return fmt.Appendf(nil, "%s\x00%d\x00%s", s.Owner.User, s.Owner.UID, s.Name)
}
