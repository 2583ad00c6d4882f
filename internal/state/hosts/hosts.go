// Package hosts stores the cluster's records of hosts: one-time join tokens, the certificates
// issued to nodes, controllers and login hosts, the replacement of the CA, and the records of
// the controllers.
//
// Methods that carry out a command get the log's clock from the caller. They return a refusal,
// or nil if the change was made, and whether the answer must be remembered under the command's
// request ID: a refusal that follows from the command alone need not be.
package hosts

import (
	"strings"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/cluster"
)

// maxName bounds the name of a host, in bytes.
const maxName = 256

// Hosts is the tables of hosts. It has one writer; any goroutine may read a clone.
type Hosts struct {
	tokens      table.Table[cluster.Digest, token]
	controllers table.Table[string, Controller]
	holders     table.Table[holderKey, *CertificateHolder]
	rotation    Rotation
	hasher      *table.Hasher
}

var tokenSchema = table.Schema[cluster.Digest, token]{ // never written
	Kind: table.Tokens, Compare: table.CompareDigests, Key: table.DigestField, Fields: tokenFields,
}

var controllerSchema = table.Schema[string, Controller]{ // never written
	Kind: table.Controllers, Compare: strings.Compare, Key: codec.String, Fields: controllerFields,
}

var holderSchema = table.Schema[holderKey, *CertificateHolder]{ // never written
	Kind: table.Certificates, Compare: compareHolders, Fields: table.Pointer(holderFields),
	KeyOf: func(h **CertificateHolder) holderKey { return holderKey{(*h).Role, (*h).Name} },
}

// New returns empty tables.
func New(h *table.Hasher) Hosts {
	return Hosts{table.New(&tokenSchema, h), table.New(&controllerSchema, h), table.New(&holderSchema, h), Rotation{}, h}
}

// Clone returns tables that later writes to x do not change. O(1).
func (x *Hosts) Clone(h *table.Hasher) Hosts {
	return Hosts{x.tokens.Clone(h), x.controllers.Clone(h), x.holders.Clone(h), x.rotation, h}
}

// Digest returns the digest of all tables. It covers a rotation that was begun. O(1).
func (x *Hosts) Digest() uint64 {
	d := x.tokens.Digest() ^ x.controllers.Digest() ^ x.holders.Digest()
	if x.rotation.Phase != NoRotation {
		d ^= table.Hash(x.hasher, table.Rotation, &x.rotation, rotationFields)
	}
	return d
}

// Encode writes the tables into a snapshot.
func (x *Hosts) Encode(w *table.Writer) {
	x.tokens.Encode(w)
	x.controllers.Encode(w)
	x.holders.Encode(w)
	if x.rotation.Phase != NoRotation {
		table.One(w, table.Rotation, &x.rotation, rotationFields)
	}
}

// Readers returns what reads the tables from a snapshot.
func (x *Hosts) Readers() table.Readers {
	return table.Readers{
		table.Tokens:       func(c *codec.Coder) { x.tokens.Decode(c) },
		table.Controllers:  func(c *codec.Coder) { x.controllers.Decode(c) },
		table.Certificates: x.readHolder,
		table.Rotation:     x.readRotation,
	}
}

// Check returns every invariant that does not hold. O(n).
func (x *Hosts) Check() []error {
	return append(x.checkHolders(), x.tokens.Check(), x.controllers.Check(), x.holders.Check())
}

// Tokens returns the number of join tokens that are kept. O(1).
func (x *Hosts) Tokens() int { return x.tokens.Len() }

func denied(a command.Actor, action string) *command.Refusal {
	return command.Refusef(command.Denied, "%s may not %s: requires role admin", a.Identity.User, action)
}
