package pki

import (
	"crypto/ecdsa"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// LaunchToken returns the join token of the nodes of a launch. Every controller that has the private key of the CA
// computes the same token from the same arguments, so a repeated request to the cloud has the same user data. Another
// try, and another CA, have another token. The error wraps ErrNoKey.
func (ca *CA) LaunchToken(launch cluster.LeaseID, try uint32, expires time.Time) (JoinToken, TokenHash, error) {
	cert := ca.trust.first()
	private, ok := ca.keyOf(cert).(*ecdsa.PrivateKey)
	if !ok {
		return JoinToken{}, TokenHash{}, fmt.Errorf("%w %.16s…", ErrNoKey, FingerprintOf(cert.Raw))
	}
	scalar, err := private.Bytes()
	if err != nil {
		return JoinToken{}, TokenHash{}, err
	}
	token := JoinToken{Role: RoleNode, Expires: expires.UTC().Truncate(time.Second), CA: FingerprintOf(cert.Raw)}
	// HKDF is HMAC-SHA-256 here: the secret reveals neither the key nor the secret of another launch.
	label := fmt.Sprintf("greylag launch token 1 %s %d %d", ca.trust.clusterID, launch, try)
	secret, err := hkdf.Key(sha256.New, scalar, nil, label, len(token.id)+len(token.secret))
	if err != nil {
		return JoinToken{}, TokenHash{}, err
	}
	copy(token.secret[:], secret[copy(token.id[:], secret):])
	return token, token.Hash(), nil
}
