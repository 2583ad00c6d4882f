package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/cluster"
)

// ErrDamaged is wrapped by the errors of [Decode] for input that is no snapshot, or is incomplete.
var ErrDamaged = errors.New("snapshot is damaged")

// ErrUnsupported is wrapped by the errors of [Decode] for a snapshot that a newer
// version of Greylag wrote.
var ErrUnsupported = errors.New("snapshot was written by a newer version of greylag")

// A snapshot is the mark, the version, and frames in the order of their kinds (package table).
// Records are sorted by key, so equal states write equal bytes. The last frame is the digest,
// and its version.
const (
	snapshotMark    = "Greylag state\n"
	earlierMark     = "GREYLAG state\n" // of development versions
	snapshotVersion = 1
	maxFrame        = 1 << 30
)

// Encode writes a snapshot. Equal states write equal bytes, on every replica. O(state); the State
// may change meanwhile.
func (v *View) Encode(w io.Writer) error {
	head := binary.LittleEndian.AppendUint32([]byte(snapshotMark), snapshotVersion)
	if _, err := w.Write(head); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	f := table.NewWriter(w)
	m := v.metaOf()
	table.One(f, table.Meta, &m, metaFields)
	table.One(f, table.Policy, v.policy, command.PolicyFields)
	if v.fabric.version > 0 {
		table.One(f, table.Topology, v.fabric, fabricFields)
	}
	v.nodes.Encode(f)
	v.fleet.levels.Encode(f)
	v.blobs.Encode(f)
	v.encodeJobs(f)
	v.requests.Encode(f)
	v.hosts.Encode(f)
	v.accounts.Encode(f)
	if err := v.credits.Encode(f); err != nil {
		return err
	}
	if v.history != (History{}) {
		table.One(f, table.History, &v.history, historyFields)
	}
	v.totals.Encode(f)
	v.crontab.Encode(f)
	v.secrets.Encode(f)
	v.leases.Encode(f)
	f.Begin(table.End)
	closingFields(f.Coder(), &closing{v.digest, DigestVersion})
	return f.Flush()
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

func (v *View) encodeJobs(f *table.Writer) {
	var specs specWindow
	v.arrays.Encode(f)
	f.Begin(table.Jobs)
	for j := range v.Jobs(0) {
		specs.write(f.Coder(), j.Spec)
		codec.Record(f.Coder(), j, command.JobFields)
		f.EndRecord()
	}
	v.signals.Encode(f)
	f.Begin(table.Tail)
	for seq, j := range v.tail.All() {
		codec.Uint(f.Coder(), &seq)
		specs.write(f.Coder(), j.Spec)
		codec.Record(f.Coder(), j, command.JobFields)
		f.EndRecord()
	}
}

// specWindow holds the newest specifications written or read. Jobs that share one, such as the
// elements of an array, refer to it by its position: 1 and up. 0 means that the specification
// itself follows, which then takes the next position.
type specWindow struct {
	places map[string]uint64 // by encoding, when writing
	recent []string          // the encodings by position, when writing
	specs  []*cluster.JobSpec
	next   int
	last   *cluster.JobSpec // the one written last, and its position
	place  uint64
	buf    []byte
}

const windowSize = 1024

// write writes a reference to a specification. The bytes follow from the contents alone, not from
// which jobs share memory.
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

// read returns the specification of a reference; nil, and an error in c, for an invalid position.
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
