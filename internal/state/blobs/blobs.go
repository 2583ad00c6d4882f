// Package blobs tracks the cluster's scripts and environments, by digest: how many active
// jobs name each, since when none does, and those that arrived only in part. Their
// content is in the archive.
package blobs

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"iter"
	"time"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/cow"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/cluster"
)

// life is how long a blob that no active job names may still be named without being sent again:
// long enough for a client that asks before it submits, and for a user who submits the same
// script again.
const life = time.Hour

// Blob is a script or an environment.
type Blob struct {
	Digest  cluster.Digest // SHA-256 of Content
	Content []byte
}

// Blobs is the tables of blobs. It has one writer; any goroutine may read a clone.
type Blobs struct {
	blobs   table.Table[cluster.Digest, use]
	uploads table.Table[cluster.Digest, upload]
	idle    cow.Map[idleBlob, struct{}] // index: the blobs that no active job names
	arrived []Blob                      // to be stored in the archive
}

// use counts the active jobs that name a blob.
type use struct {
	jobs int64           // an index
	idle cluster.Instant // since when no job names it; 0 while one does
}

// idleBlob orders blobs by since when no job has named them.
type idleBlob struct {
	since  cluster.Instant
	digest cluster.Digest
}

var blobSchema = table.Schema[cluster.Digest, use]{ // never written
	Kind: table.Blobs, Compare: table.CompareDigests, Key: table.DigestField,
	Fields: func(c *codec.Coder, u *use) { codec.Int(c, &u.idle) },
}

var uploadSchema = table.Schema[cluster.Digest, upload]{ // never written
	Kind: table.Uploads, Compare: table.CompareDigests, Key: table.DigestField,
	Fields: uploadFields, Digested: uploadDigest,
}

// New returns empty tables.
func New(h *table.Hasher) Blobs {
	return Blobs{
		blobs: table.New(&blobSchema, h), uploads: table.New(&uploadSchema, h),
		idle: cow.New[idleBlob, struct{}](func(a, b idleBlob) int {
			return cmp.Or(cmp.Compare(a.since, b.since), table.CompareDigests(a.digest, b.digest))
		}),
	}
}

// Clone returns tables that later writes to x do not change. O(1).
func (x *Blobs) Clone(h *table.Hasher) Blobs {
	return Blobs{blobs: x.blobs.Clone(h), uploads: x.uploads.Clone(h), idle: x.idle.Clone()}
}

// Digest returns the digest of the tables. O(1).
func (x *Blobs) Digest() uint64 { return x.blobs.Digest() ^ x.uploads.Digest() }

// Encode writes the tables into a snapshot.
func (x *Blobs) Encode(w *table.Writer) {
	x.blobs.Encode(w)
	x.uploads.Encode(w)
}

// Readers returns what reads the tables from a snapshot.
func (x *Blobs) Readers() table.Readers {
	return table.Readers{table.Blobs: func(c *codec.Coder) { x.blobs.Decode(c) }, table.Uploads: x.readUpload}
}

// Restore counts a job of a snapshot that names the blob. It reports whether the blob exists.
func (x *Blobs) Restore(d cluster.Digest) bool {
	u, known := x.blobs.Get(d)
	if known {
		u.jobs++
		x.blobs.SetIndexed(d, u)
	}
	return known || d.IsZero()
}

// Restored rebuilds the index after a snapshot was read. O(n).
func (x *Blobs) Restored() {
	for d, u := range x.blobs.All() {
		if u.jobs == 0 {
			x.idle.Set(idleBlob{u.idle, d}, struct{}{})
		}
	}
}

// Len returns how many blobs jobs may name. O(1).
func (x *Blobs) Len() int { return x.blobs.Len() }

// Digests yields the digests that a submission may name, ascending.
func (x *Blobs) Digests() iter.Seq[cluster.Digest] {
	return func(yield func(cluster.Digest) bool) {
		for d := range x.blobs.All() {
			if !yield(d) {
				return
			}
		}
	}
}

// Known reports whether a submission may name the blob without sending it. O(log n).
func (x *Blobs) Known(d cluster.Digest) bool { return x.blobs.Has(d) }

// Needed reports whether an active job names the blob. O(log n).
func (x *Blobs) Needed(d cluster.Digest) bool {
	u, known := x.blobs.Get(d)
	return known && u.jobs > 0
}

// Drain returns the blobs that arrived since the last call, which must be stored before the log
// entry counts as applied.
func (x *Blobs) Drain() []Blob {
	all := x.arrived
	x.arrived = nil
	return all
}

// Contents are the blobs that a command carries, by digest.
type Contents map[cluster.Digest][]byte

// ContentsOf returns blobs by digest.
func ContentsOf(blobs [][]byte) Contents {
	if len(blobs) == 0 {
		return nil
	}
	c := make(Contents, len(blobs))
	for _, b := range blobs {
		c[sha256.Sum256(b)] = b
	}
	return c
}

// Has reports whether a job may name the digest. O(log n).
func (x *Blobs) Has(d cluster.Digest, carried Contents) bool {
	_, sent := carried[d]
	return sent || d.IsZero() || x.blobs.Has(d)
}

// Use counts n more jobs (fewer if negative) that name the blobs of spec, and takes the new ones
// from carried. A blob that no job names is idle from now on. O(log n).
func (x *Blobs) Use(now cluster.Instant, spec *cluster.JobSpec, n int64, carried Contents) {
	x.use(now, spec.Script, n, carried)
	x.use(now, spec.Environment, n, carried)
}

func (x *Blobs) use(now cluster.Instant, d cluster.Digest, n int64, carried Contents) {
	if d.IsZero() {
		return
	}
	// A content that is sent is stored even if the digest is known: the controller that attached
	// it did not find it in its archive.
	if content, sent := carried[d]; sent {
		x.arrived = append(x.arrived, Blob{Digest: d, Content: content})
	}
	old, known := x.blobs.Get(d)
	u := use{jobs: old.jobs + n}
	if u.jobs == 0 {
		u.idle = now
	}
	if known && old.idle == u.idle {
		x.blobs.SetIndexed(d, u)
		return
	}
	x.blobs.Set(d, u)
	if known && old.jobs == 0 {
		x.idle.Delete(idleBlob{old.idle, d})
	}
	if u.jobs == 0 {
		x.idle.Set(idleBlob{u.idle, d}, struct{}{})
	}
}

// Forget drops at most that many digests that no job has named for long.
func (x *Blobs) Forget(now cluster.Instant, most int) {
	for ; most > 0; most-- {
		b, _, found := x.idle.First()
		if !found || b.since.Add(life) > now {
			return
		}
		x.blobs.Delete(b.digest)
		x.idle.Delete(b)
	}
}

// Check returns every invariant that does not hold. named is how many active jobs name each
// blob. O(n).
func (x *Blobs) Check(named map[cluster.Digest]int64) []error {
	faults := []error{x.blobs.Check(), x.uploads.Check()}
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	idle := 0
	for d, u := range x.blobs.All() {
		if u.jobs != named[d] || (u.jobs == 0) != x.idle.Has(idleBlob{u.idle, d}) || u.jobs > 0 && u.idle != 0 {
			fault("blob %s: named by %d jobs, idle since %d, want %d jobs", d, u.jobs, u.idle, named[d])
		}
		if u.jobs == 0 {
			idle++
		}
	}
	for d := range named {
		if !x.blobs.Has(d) {
			fault("jobs name blob %s, which does not exist", d)
		}
	}
	if idle != x.idle.Len() {
		fault("%d blobs are idle, %d are listed", idle, x.idle.Len())
	}
	for d, u := range x.uploads.All() {
		var again upload
		for _, p := range u.parts {
			again = again.with(p, u.at)
		}
		if again.sum != u.sum || again.got != u.got || u.got >= u.size || u.got == 0 {
			fault("upload %s: %d of %d bytes", d, u.got, u.size)
		}
	}
	return faults
}
