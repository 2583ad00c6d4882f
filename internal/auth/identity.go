// Package auth identifies the calling Unix user and decides what they may do.
//
// The identity comes from the kernel: gauthd reads the credentials of the process at the other end
// of its Unix socket and signs them, for 60 seconds, with a key that the cluster's CA certifies.
// From such a token, the CA and the time the controller identifies the caller; from the caller's
// role, the RPC and the job's owner, a pure table decides whether the call is allowed. Nothing that
// a request says about its sender is trusted, and nothing is allowed that the table does not name.
//
// It never looks a user up on the controller, keeps no list of gauthd keys (each token carries its
// signer's certificate) and stores no secret.
package auth

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/greylag/greylag/pkg/cluster"
)

// Identity is a user as a gauthd signed it.
type Identity struct {
	cluster.Identity
	Host    string    // the login node whose gauthd signed: the name in its certificate
	Issued  time.Time // by the clock of Host
	Expires time.Time // by the clock of Host; Verify allows Skew beyond it
	// Signer is the certificate of Host, whose key signed.
	Signer *x509.Certificate
}

// Times of identity tokens.
const (
	// TokenLife is the validity of a token: long enough for a slow retry to the next controller,
	// short enough that a stolen one soon expires.
	TokenLife = 60 * time.Second
	// Skew is the largest difference between the clocks of a login node and a controller. A token
	// is accepted from Skew before its issue until Skew after its end.
	Skew = 30 * time.Second
	// maxLife bounds the validity that a signer may grant.
	maxLife = 10 * time.Minute
)

// Errors about tokens, wrapped with details.
var (
	// ErrBadToken marks text that is no token, was altered, or has no trusted signer.
	ErrBadToken = errors.New("identity token is not valid")
	// ErrExpired marks an expired token.
	ErrExpired = errors.New("identity token has expired")
	// ErrClock marks a token from the future: the clocks of two hosts disagree.
	ErrClock = errors.New("clocks disagree")
)

// maxUser is the longest user name that is signed; Linux tools stop at 32.
const maxUser = 255

// checkUser refuses names that no password file may hold and that would garble a table or a log.
func checkUser(name string) error {
	if name == "" || len(name) > maxUser || !utf8.ValidString(name) {
		return fmt.Errorf("%w: user name has %d bytes or is not UTF-8", ErrBadToken, len(name))
	}
	for _, r := range name {
		if r == ':' || r == utf8.RuneError || !unicode.IsPrint(r) {
			return fmt.Errorf("%w: user name %q holds %q", ErrBadToken, name, r)
		}
	}
	return nil
}
