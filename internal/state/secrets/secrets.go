// Package secrets stores the secrets of users as ciphertext.
//
// It decides who may change a secret, how many a user may have, and whether a job may name them. It never
// encrypts or decrypts: controllers do, outside the replicated state.
package secrets

import (
	"cmp"
	"crypto/sha256"
	"iter"
	"strings"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state/hosts"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/cluster"
)

// Bounds of the secrets.
const (
	maxSealed  = cluster.MaxSecret + 256 // bytes of a ciphertext
	maxPerUser = 64                      // secrets
	maxBytes   = 64 << 20                // ciphertexts of all users
)

// Key is the user and the name of a secret.
type Key struct{ User, Name string }

// Secrets is the table of all secrets. It has one writer; any goroutine may read a clone.
type Secrets struct {
	all   table.Table[Key, *command.Secret]
	bytes int // of all ciphertexts
}

var schema = table.Schema[Key, *command.Secret]{ // never written
	Kind: table.Secrets, Compare: compareKeys, Fields: table.Pointer(command.SecretFields),
	KeyOf: func(s **command.Secret) Key { return keyOf(*s) },
}

func compareKeys(a, b Key) int {
	return cmp.Or(strings.Compare(a.User, b.User), strings.Compare(a.Name, b.Name))
}

func keyOf(s *command.Secret) Key { return Key{s.Owner.User, s.Name} }

// New returns an empty table.
func New(h *table.Hasher) Secrets { return Secrets{all: table.New(&schema, h)} }

// Clone returns a table that later writes to x do not change. O(1).
func (x *Secrets) Clone(h *table.Hasher) Secrets { return Secrets{x.all.Clone(h), x.bytes} }

// Digest returns the digest of the table. O(1).
func (x *Secrets) Digest() uint64 { return x.all.Digest() }

// Encode writes the table into a snapshot.
func (x *Secrets) Encode(w *table.Writer) { x.all.Encode(w) }

// Readers returns what reads the table from a snapshot.
func (x *Secrets) Readers() table.Readers {
	return table.Readers{table.Secrets: func(c *codec.Coder) {
		if _, s := x.all.Decode(c); s != nil {
			x.bytes += len(s.Sealed)
		}
	}}
}

// Check returns every invariant that does not hold. O(n).
func (x *Secrets) Check() []error {
	size := 0
	for s := range x.All() {
		size += len(s.Sealed)
	}
	faults := []error{x.all.Check()}
	if size != x.bytes {
		faults = append(faults, command.Refusef(command.Internal, "secrets have %d bytes, counted %d", size, x.bytes))
	}
	return faults
}

// All yields the secrets by user and name. They must not be changed.
func (x *Secrets) All() iter.Seq[*command.Secret] { return x.all.Values() }

// Of yields the secrets of a user by name. They must not be changed. O(log n) to the first.
func (x *Secrets) Of(user string) iter.Seq[*command.Secret] {
	return func(yield func(*command.Secret) bool) {
		for k, s := range x.all.From(Key{User: user}) {
			if k.User != user || !yield(s) {
				return
			}
		}
	}
}

// Get finds a secret of a user. It must not be changed. O(log n).
func (x *Secrets) Get(owner cluster.Identity, name string) (*command.Secret, bool) {
	s, known := x.all.Get(Key{owner.User, name})
	if !known || s.Owner.UID != owner.UID {
		return nil, false
	}
	return s, true
}

// CheckJob refuses a job that names secrets which its owner does not have. O(names log n).
func (x *Secrets) CheckJob(spec *cluster.JobSpec) *command.Refusal {
	for _, name := range spec.Secrets {
		if _, known := x.Get(spec.Owner, name); !known {
			return Missing(spec.Owner.User, name)
		}
	}
	return nil
}

// Missing returns the refusal for a secret that does not exist.
func Missing(user, name string) *command.Refusal {
	return command.WithHint(command.Refusef(command.NotFound, "%s has no secret %q", command.Sanitize(user), command.Sanitize(name)), "store it with gctl secret set %s; gctl secret list shows the others", command.Sanitize(name))
}

// put stores a secret that is not shared yet.
func (x *Secrets) put(s *command.Secret) {
	if old, known := x.all.Get(keyOf(s)); known {
		x.bytes -= len(old.Sealed)
	}
	x.bytes += len(s.Sealed)
	x.all.Set(keyOf(s), s)
}

// Set carries out a SetSecret of the log entry index.
func (x *Secrets) Set(now cluster.Instant, index uint64, r hosts.Rotation, c *command.SetSecret) (refusal *command.Refusal, keep bool) {
	s := &command.Secret{Owner: c.Actor.Identity, Name: c.Secret.Name, Version: index, Changed: now, Authority: c.Secret.Authority, Sealed: c.Secret.Sealed}
	switch {
	case s.Owner.User == "":
		return command.Refuse(command.InvalidArgument, "a secret needs a user", ""), false
	case !cluster.ValidObjectName(s.Name):
		return command.WithHint(command.Refusef(command.InvalidArgument, "%q cannot name a secret", command.Sanitize(s.Name)), "use 1 to %d letters, digits, dots, hyphens and underscores, and begin with a letter or digit", cluster.MaxObjectName), false
	case len(s.Sealed) == 0 || len(s.Sealed) > maxSealed:
		return command.Refusef(command.InvalidArgument, "a secret has 1 byte to %d KiB", cluster.MaxSecret>>10), false
	case dropped(r, s.Authority): // its key will soon be lost, or is lost already
		return command.Refuse(command.Conflict, "the cluster CA was rotated during the request", "run gctl secret set again"), false
	}
	old, known := x.all.Get(keyOf(s))
	count, size := 0, x.bytes+len(s.Sealed)
	for range x.Of(s.Owner.User) {
		count++
	}
	if known {
		size -= len(old.Sealed)
	}
	switch {
	case known && old.Owner.UID != s.Owner.UID:
		return command.WithHint(command.Refusef(command.Denied, "secret %q belongs to an earlier user of this name (UID %d)", s.Name, old.Owner.UID), "an administrator can run gctl secret delete -u USER NAME"), true
	case !known && count >= maxPerUser:
		return command.WithHint(command.Refusef(command.Exhausted, "you have %d secrets, the maximum", count), "delete some with gctl secret delete"), true
	case size > maxBytes:
		return command.Refusef(command.Exhausted, "secret storage is full: %d MiB for all users", maxBytes>>20), true
	}
	x.put(s)
	return nil, true
}

// dropped reports whether the private key of a CA is dropped at the end of a rotation that cannot be
// cancelled any more.
func dropped(r hosts.Rotation, authority cluster.Digest) bool {
	return r.Phase >= hosts.RotationFinishing && authority != sha256.Sum256(r.New)
}

// Delete carries out a DeleteSecrets.
func (x *Secrets) Delete(c *command.DeleteSecrets) (refusal *command.Refusal, keep bool) {
	if len(c.Names) == 0 || len(c.Names) > maxPerUser {
		return command.Refusef(command.InvalidArgument, "%d secrets to delete: a request takes 1 to %d", len(c.Names), maxPerUser), false
	}
	for _, name := range c.Names {
		switch s, known := x.all.Get(Key{c.User, name}); {
		case !known:
			return command.WithHint(command.Refusef(command.NotFound, "%s has no secret %q", command.Sanitize(c.User), command.Sanitize(name)), "list them with gctl secret list"), true
		case !c.Actor.Owns(s.Owner) && !c.Actor.Has(command.RoleAdmin):
			return command.Refusef(command.Denied, "the secret %q belongs to %s", name, c.User), true
		}
	}
	for _, name := range c.Names {
		if s, known := x.all.Get(Key{c.User, name}); known { // a name may be repeated
			x.bytes -= len(s.Sealed)
			x.all.Delete(keyOf(s))
		}
	}
	return nil, true
}

// Reseal carries out a ResealSecrets.
func (x *Secrets) Reseal(r hosts.Rotation, c *command.ResealSecrets) {
	for _, next := range c.Secrets {
		old, known := x.all.Get(keyOf(&next))
		if !known || old.Version != next.Version || len(next.Sealed) == 0 || len(next.Sealed) > maxSealed || dropped(r, next.Authority) {
			continue
		}
		s := *old
		s.Authority, s.Sealed = next.Authority, next.Sealed
		x.put(&s)
	}
}
