package certs

import (
	"context"
	"errors"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/state"
)

// resealBytes is the size of the ciphertexts of one command of a rotation.
const resealBytes = 1 << 20

// Seal encrypts the value of a secret under the CA that signs the certificates of controllers: every
// controller has its key.
func (s *Service) Seal(x *command.Secret, value []byte) error {
	return s.CA.Seal(s.authorities(pki.RoleController)[0], x, value)
}

// Unseal returns the value of a secret. The errors wrap pki.ErrNoKey if another controller may have the key,
// or pki.ErrUnreadable.
func (s *Service) Unseal(x *command.Secret) ([]byte, error) { return s.CA.Unseal(x) }

// resealSecrets encrypts the secrets of v under the new CA of its rotation, which is being finished: the
// state accepts no others any more. Unreadable secrets are left as they are.
func (s *Service) resealSecrets(ctx context.Context, v *state.View) error {
	cmd, size, next := &command.ResealSecrets{}, 0, pki.FingerprintOf(v.Hosts().Rotation().New)
	propose := func() error {
		if len(cmd.Secrets) == 0 {
			return nil
		}
		_, _, err := call.Propose[*command.Done](ctx, s.Leader, cmd)
		cmd, size = &command.ResealSecrets{}, 0
		return err
	}
	for old := range v.Secrets().All() {
		if pki.Fingerprint(old.Authority) == next {
			continue
		}
		value, err := s.Unseal(old)
		if errors.Is(err, pki.ErrUnreadable) {
			continue
		}
		x := *old
		if err == nil {
			err = s.Seal(&x, value)
		}
		if err != nil {
			return err
		}
		cmd.Secrets, size = append(cmd.Secrets, x), size+len(x.Sealed)
		if size >= resealBytes {
			if err := propose(); err != nil {
				return err
			}
		}
	}
	return propose()
}
