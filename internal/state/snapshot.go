package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// ErrDamaged is wrapped by the errors of [Decode] for input that is no snapshot,
// or is not whole.
var ErrDamaged = errors.New("snapshot is damaged")

// ErrUnsupported is wrapped by the errors of [Decode] for a snapshot that a newer
// version of Greylag wrote.
var ErrUnsupported = errors.New("snapshot was written by a newer version of greylag")

// A snapshot is the mark, the version, and frames:
//
//	kind, 1 byte | length, 4 bytes LE | records | CRC-32C of all before, 4 bytes LE
//
// Kinds ascend; a table takes as many frames of its kind as it needs. Records are sorted by
// key, so equal states write equal bytes. The last frame is the digest, and how it is made.
const (
	snapshotMark    = "Greylag state\n"
	earlierMark     = "GREYLAG state\n" // of development versions
	snapshotVersion = 1
	frameBytes      = 128 << 10 // a frame ends with the record that passes this
	maxFrame        = 1 << 30
)

// Kinds of frames, in their order.
const (
	frameMeta byte = iota + 1
	framePolicy
	frameNodes
	frameBlobs
	frameArrays
	frameJobs
	frameSignals
	frameTail
	frameRequests
	frameTokens
	frameUploads
	frameTopology
	frameAccounts
	frameAssociations
	frameUsages
	frameCharges
	frameCredits
	frameUnproven
	frameWaits
	frameCircles
	frameFleet
	frameMembers
	frameHistory
	frameHolders
	frameRotation
)

// frameEnd is the last frame, after those that a later version may add.
const frameEnd byte = 255

var castagnoli = crc32.MakeTable(crc32.Castagnoli) // never written

// frames writes records into frames. After the first error it writes nothing.
type frames struct {
	w     io.Writer
	kind  byte
	c     codec.Coder
	specs specWindow
	err   error
}

// of begins the frames of a kind.
func (f *frames) of(kind byte) {
	f.flush()
	f.kind = kind
}

// flush writes the frame that was begun, unless it is empty.
func (f *frames) flush() {
	body := f.c.Written()
	if f.err != nil || len(body) == 0 {
		return
	}
	head := binary.LittleEndian.AppendUint32([]byte{f.kind}, uint32(len(body)))
	sum := crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, body)
	for _, part := range [][]byte{head, body, binary.LittleEndian.AppendUint32(nil, sum)} {
		if _, err := f.w.Write(part); err != nil {
			f.err = fmt.Errorf("write snapshot: %w", err)
			return
		}
	}
	f.c = codec.Writer(body[:0])
}

// record adds one record under a key.
func record[K, T any](f *frames, key *K, keyFields func(*codec.Coder, *K), v *T, fields func(*codec.Coder, *T)) {
	keyFields(&f.c, key)
	codec.Record(&f.c, v, fields)
	if len(f.c.Written()) >= frameBytes {
		f.flush()
	}
}

func digestField(c *codec.Coder, d *cluster.Digest) { codec.Fixed(c, d[:]) }

func noKey(*codec.Coder, *none) {}

// Encode writes a snapshot. Equal states write equal bytes, on every replica.
// O(state); the State may go on meanwhile.
func (v *View) Encode(w io.Writer) error {
	head := binary.LittleEndian.AppendUint32([]byte(snapshotMark), snapshotVersion)
	if _, err := w.Write(head); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	f := &frames{w: w}
	m := v.metaOf()
	f.of(frameMeta)
	record(f, &none{}, noKey, &m, metaFields)
	f.of(framePolicy)
	record(f, &none{}, noKey, v.policy, command.PolicyFields)
	f.of(frameNodes)
	for _, n := range v.nodes.All() {
		record(f, &none{}, noKey, n, command.NodeFields)
	}
	f.of(frameBlobs)
	for d, u := range v.blobs.All() {
		record(f, &d, digestField, &u, blobFields)
	}
	v.encodeJobs(f)
	f.of(frameRequests)
	for number, r := range v.requests.All() {
		record(f, &number, codec.Uint, &r, requestRecord)
	}
	f.of(frameTokens)
	for d, t := range v.tokens.All() {
		record(f, &d, digestField, &t, tokenFields)
	}
	f.of(frameUploads)
	for d, u := range v.uploads.All() {
		record(f, &d, digestField, &u, uploadFields)
	}
	if v.fabric.version > 0 {
		f.of(frameTopology)
		record(f, &none{}, noKey, v.fabric, fabricFields)
	}
	v.encodeSharing(f)
	v.encodeCredits(f)
	v.encodeTurns(f)
	v.encodeFleet(f)
	v.encodeMembers(f)
	v.encodeHistory(f)
	v.encodeHolders(f)
	v.encodeRotation(f)
	f.of(frameEnd)
	closingFields(&f.c, &closing{v.digest, DigestVersion})
	f.flush()
	return f.err
}

// closing is the last frame.
type closing struct {
	digest  uint64
	version uint16
}

func closingFields(c *codec.Coder, x *closing) {
	codec.Uint(c, &x.digest)
	codec.Uint(c, &x.version)
}

func (v *View) encodeJobs(f *frames) {
	f.of(frameArrays)
	for id, a := range v.arrays.All() {
		record(f, &id, codec.Uint, &a, arrayFields)
	}
	f.of(frameJobs)
	for j := range v.Jobs(0) {
		f.specs.write(&f.c, j.Spec)
		record(f, &none{}, noKey, j, command.JobFields)
	}
	f.of(frameSignals)
	for id, list := range v.signals.All() {
		record(f, &id, codec.Uint, &list, signalsFields)
	}
	f.of(frameTail)
	for seq, j := range v.tail.All() {
		codec.Uint(&f.c, &seq)
		f.specs.write(&f.c, j.Spec)
		record(f, &none{}, noKey, j, command.JobFields)
	}
}

// specWindow holds the specifications written or read lately, so that jobs which
// share one, as the elements of an array do, name it by its place: 1 and up, or 0
// and the specification itself, which then takes the next place.
type specWindow struct {
	places map[string]uint64 // by encoding, when writing
	recent []string          // the encodings by place, when writing
	specs  []*cluster.JobSpec
	next   int
	last   *cluster.JobSpec // the one written last, and its place
	place  uint64
	buf    []byte
}

const windowSize = 1024

// write names a specification. What it writes follows from the contents alone, not
// from which jobs share memory.
func (x *specWindow) write(c *codec.Coder, spec *cluster.JobSpec) {
	if spec == x.last {
		codec.Uint(c, &x.place)
		return
	}
	if x.places == nil {
		x.places, x.recent = map[string]uint64{}, make([]string, windowSize)
	}
	w := codec.Writer(x.buf[:0])
	command.SpecFields(&w, spec)
	x.buf = w.Written()
	place, known := x.places[string(x.buf)]
	codec.Uint(c, &place)
	if !known {
		codec.Record(c, spec, command.SpecFields)
		delete(x.places, x.recent[x.next])
		x.recent[x.next] = string(x.buf)
		place = uint64(x.next) + 1
		x.places[x.recent[x.next]] = place
		x.next = (x.next + 1) % windowSize
	}
	x.last, x.place = spec, place
}

// read returns the specification that was named; nil, and an error in c, when
// there is no such place.
func (x *specWindow) read(c *codec.Coder) *cluster.JobSpec {
	var place uint64
	codec.Uint(c, &place)
	if place > 0 {
		if place > uint64(len(x.specs)) {
			c.Fail("specification %d is not there", place)
			return nil
		}
		return x.specs[place-1]
	}
	spec := new(cluster.JobSpec)
	codec.Record(c, spec, command.SpecFields)
	if len(x.specs) < windowSize {
		x.specs = append(x.specs, spec)
	} else {
		x.specs[x.next] = spec
	}
	x.next = (x.next + 1) % windowSize
	return spec
}
