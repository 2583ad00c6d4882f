// Package table keeps records in ordered persistent maps together with what every table of the
// replicated state needs: a digest that follows each change, an encoding for snapshots, and a
// check of both.
//
// A table is described by its [Schema]. The digest of a table is the XOR of one hash for each
// record, so that a change costs two hashes whatever the size of the table. Each hash is XXH64
// of the table's kind, the key and the record, so that equal records do not cancel out. It
// tells replicas apart that differ by accident; it is no proof against constructed states.
package table

import (
	"bytes"

	"github.com/cespare/xxhash/v2"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/cluster"
)

// Kind identifies a table in snapshots and digests. Snapshots hold the tables in this order.
type Kind byte

// The kinds. Those of one type of the state follow each other; jobs name blobs and nodes.
const (
	Meta Kind = iota + 1
	Policy
	Topology
	Nodes
	Fleet
	Blobs
	Uploads
	Arrays
	Jobs
	Signals
	Tail
	Requests
	Tokens
	Controllers
	Certificates
	Rotation
	Accounts
	Associations
	Usages
	Charges
	Credits
	ProvisionalBills
	Waits
	RoundRobins
	History
	Specs          // in digests only
	JobSpecs       // in digests only
	AccountVersion // in digests only
	JobAllocations // in digests only
	JobTasks       // in digests only
	Totals
	JobSteps // in digests only
	Crons
	Secrets
	Leases
	Offers
	OfferPauses
	LeaseCosts
	LeaseNumber
	LaunchRefusals

	End Kind = 255 // the last frame of a snapshot, after those that a later version adds
)

// Readers read the records of a snapshot, by kind.
type Readers map[Kind]func(*codec.Coder)

// Hasher hashes records in memory that it reuses. A nil Hasher returns 0 for everything: the
// copies that readers use, and simulations, need no digest.
type Hasher struct{ c codec.Coder }

// Begin starts the hash of a record: its kind. The caller writes the rest to the coder.
func (h *Hasher) Begin(kind Kind) *codec.Coder {
	h.c = codec.Writer(append(h.c.Written()[:0], byte(kind)))
	return &h.c
}

// Sum returns the hash of what was written since Begin.
func (h *Hasher) Sum() uint64 { return xxhash.Sum64(h.c.Written()) }

// Hash returns the hash of a record without a key.
func Hash[V any](h *Hasher, kind Kind, v *V, fields func(*codec.Coder, *V)) uint64 {
	if h == nil {
		return 0
	}
	fields(h.Begin(kind), v)
	return h.Sum()
}

// Pointer returns the coder of a pointer to a record. Reading allocates the record.
func Pointer[V any](fields func(*codec.Coder, *V)) func(*codec.Coder, **V) {
	return func(c *codec.Coder, v **V) {
		if *v == nil {
			*v = new(V)
		}
		fields(c, *v)
	}
}

// DigestField codes the digest of a script or an environment.
func DigestField(c *codec.Coder, d *cluster.Digest) { codec.Fixed(c, d[:]) }

// CompareDigests orders digests.
func CompareDigests(a, b cluster.Digest) int { return bytes.Compare(a[:], b[:]) }
