package command

import (
	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/cluster"
)

// Secret is a secret of a user. The state has only its ciphertext: controllers encrypt and decrypt.
type Secret struct {
	Owner   cluster.Identity
	Name    string
	Version uint64 // log index of the SetSecret that made it
	Changed cluster.Instant
	// Authority is the fingerprint of the CA from whose private key the key of Sealed is derived.
	Authority cluster.Digest
	Sealed    []byte
}

// SetSecret stores a secret of its actor, or replaces it. It uses Name, Authority and Sealed of Secret.
type SetSecret struct {
	Request RequestID
	Actor   Actor
	Secret  Secret
}

// DeleteSecrets deletes secrets of a user: all that it names or none.
type DeleteSecrets struct {
	Request RequestID
	Actor   Actor
	User    string
	Names   []string
}

// ResealSecrets replaces the ciphertexts of secrets by those under the key of another CA. It leaves out
// secrets that were set or deleted meanwhile. It uses Owner.User, Name, Version, Authority and Sealed.
type ResealSecrets struct {
	Secrets []Secret
}

func (*SetSecret) kind() kind     { return kindSetSecret }
func (*DeleteSecrets) kind() kind { return kindDeleteSecrets }
func (*ResealSecrets) kind() kind { return kindResealSecrets }

// SecretFields are those of a secret.
func SecretFields(c *codec.Coder, x *Secret) {
	identityFields(c, &x.Owner)
	codec.String(c, &x.Name)
	codec.Uint(c, &x.Version)
	codec.Int(c, &x.Changed)
	codec.Fixed(c, x.Authority[:])
	codec.Bytes(c, &x.Sealed)
}

func setSecretFields(c *codec.Coder, x *SetSecret) {
	requestIDFields(c, &x.Request)
	codec.Record(c, &x.Actor, actorFields)
	codec.Record(c, &x.Secret, SecretFields)
}

func deleteSecretsFields(c *codec.Coder, x *DeleteSecrets) {
	requestIDFields(c, &x.Request)
	codec.Record(c, &x.Actor, actorFields)
	codec.String(c, &x.User)
	codec.List(c, &x.Names, codec.String)
}

func resealSecretsFields(c *codec.Coder, x *ResealSecrets) {
	codec.List(c, &x.Secrets, func(c *codec.Coder, s *Secret) { codec.Record(c, s, SecretFields) })
}
