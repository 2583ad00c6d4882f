package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// Decode reads the output of [View.Encode], and nothing that follows it. Its errors wrap
// [ErrDamaged], [ErrUnsupported], codec.ErrEarlier or those of r. Hostile input gives an error, and
// never more memory than a small multiple of its length. O(state).
func Decode(r io.Reader) (*State, error) { return decode(r, defaultLimits()) }

func decode(r io.Reader, l limits) (*State, error) {
	head := make([]byte, len(snapshotMark)+4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, readError(err)
	}
	version := binary.LittleEndian.Uint32(head[len(snapshotMark):])
	switch {
	case string(head[:len(snapshotMark)]) == earlierMark:
		return nil, fmt.Errorf("the state is %w", codec.ErrEarlier)
	case string(head[:len(snapshotMark)]) != snapshotMark || version == 0:
		return nil, fmt.Errorf("%w: no state", ErrDamaged)
	case version > snapshotVersion:
		return nil, fmt.Errorf("%w: version %d", ErrUnsupported, version)
	}
	x := &restoring{State: newState(l, new(table.Hasher)), body: new(bytes.Buffer)}
	x.readers = x.allReaders()
	for kind := table.Kind(0); kind != table.End; {
		next, body, err := x.frame(r)
		if err != nil {
			return nil, err
		}
		if next < kind {
			return nil, fmt.Errorf("%w: frame %d after %d", ErrDamaged, next, kind)
		}
		kind = next
		if err := x.section(kind, body); err != nil {
			return nil, err
		}
	}
	return x.State, nil
}

// restoring is a state being read.
type restoring struct {
	*State
	readers table.Readers
	body    *bytes.Buffer
	specs   specWindow
}

// readError distinguishes input that ends too early from input that cannot be read.
func readError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends too early", ErrDamaged)
	}
	return fmt.Errorf("read snapshot: %w", err)
}

// frame reads one frame. The body is valid until the next one is read.
func (x *restoring) frame(r io.Reader) (kind table.Kind, body []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, readError(err)
	}
	size := binary.LittleEndian.Uint32(head[1:])
	if size > maxFrame {
		return 0, nil, fmt.Errorf("%w: a frame of %d bytes", ErrDamaged, size)
	}
	x.body.Reset() // grows with the input, not with the size that it declares
	if _, err := io.CopyN(x.body, r, int64(size)+4); err != nil {
		return 0, nil, readError(err)
	}
	all := x.body.Bytes()
	body = all[:size]
	if table.Checksum(head[:], body) != binary.LittleEndian.Uint32(all[size:]) {
		return 0, nil, fmt.Errorf("%w: the CRC of frame %d is wrong", ErrDamaged, head[0])
	}
	return table.Kind(head[0]), body, nil
}

// allReaders returns the reader of each kind of record.
func (x *restoring) allReaders() table.Readers {
	all := table.Readers{
		table.Meta: x.readMeta, table.Policy: x.readPolicy, table.Topology: x.readTopology,
		table.Nodes: func(c *codec.Coder) { x.nodes.Decode(c) }, table.Fleet: x.fleet.read,
		table.Arrays: x.readArray, table.Jobs: x.readJob, table.Signals: x.readSignals, table.Tail: x.readEnded,
		table.Requests: x.requests.read,
		table.History:  x.readHistory, table.End: x.readEnd,
		table.Totals: x.totals.Decode,
	}
	maps.Copy(all, x.blobs.Readers())
	maps.Copy(all, x.accounts.Readers(x.holding.Has))
	maps.Copy(all, x.hosts.Readers())
	maps.Copy(all, x.credits.Readers())
	maps.Copy(all, x.crontab.Readers())
	maps.Copy(all, x.secrets.Readers())
	maps.Copy(all, x.leases.Readers())
	return all
}

// section reads the records of one frame.
func (x *restoring) section(kind table.Kind, body []byte) error {
	read := x.readers[kind]
	if read == nil {
		return fmt.Errorf("%w: frame %d", ErrUnsupported, kind)
	}
	c := codec.Reader(body)
	for c.Remaining() > 0 {
		read(&c)
	}
	err := c.Err()
	switch {
	case errors.Is(err, accounting.ErrNewer):
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	case err != nil:
		return fmt.Errorf("%w: frame %d: %w", ErrDamaged, kind, err)
	}
	return nil
}

func (x *restoring) readMeta(c *codec.Coder) {
	var m meta
	codec.Record(c, &m, metaFields)
	x.index, x.now, x.clusterID = m.index, m.now, m.clusterID
	x.jobTables.next, x.finished, x.requests.next, x.audited = m.nextJob, m.finished, m.nextRequest, m.audited
	x.accounts.SetVersion(m.accountsAt)
}

func (x *restoring) readPolicy(c *codec.Coder) {
	p := new(cluster.Policy)
	codec.Record(c, p, command.PolicyFields)
	x.policy = p
	x.policyHash = x.hashPolicy()
	x.accounts.SetHalfLife(0, p.Scheduling.FairShare.HalfLife)
}

func (x *restoring) readArray(c *codec.Coder) {
	id, a := x.arrays.Decode(c)
	count, ok := countOf(a.ranges)
	if !ok {
		c.Fail("array %d is not well formed", id)
		return
	}
	a.count = count
	x.arrays.SetIndexed(id, a)
}

// sound reports whether a job on its own fulfils what the tables rely on.
func (x *restoring) sound(j *cluster.Job) bool {
	a, isElement := x.arrays.Get(j.Array)
	switch {
	case j.Spec == nil, j.ID == 0, j.ID >= x.jobTables.next, j.State == 0, j.State > cluster.OutOfMemory:
		return false
	case (j.Array != 0) != isElement, isElement && (j.ID < j.Array || j.ID-j.Array >= cluster.JobID(a.count)):
		return false
	}
	if _, duplicate := x.job(j.ID); duplicate {
		return false
	}
	if !j.State.HasAllocation() {
		return j.State.Final() || j.Alloc == nil && j.Tasks == nil && j.Members == nil
	}
	if j.Spec.Elastic.On() != (j.Members != nil) || j.Members != nil && len(j.Members.List) != j.Tasks.Len() {
		return false
	}
	if j.Alloc == nil || len(j.Alloc.Nodes) == 0 || len(j.Alloc.Nodes) != j.Tasks.Len() {
		return false
	}
	seen := make(map[string]none, j.Tasks.Len())
	for i, n := range j.Alloc.Nodes {
		if _, duplicate := seen[n.Node]; duplicate || n.Node != j.Tasks.At(i).Node {
			return false
		}
		seen[n.Node] = none{}
		for _, g := range n.GPUs {
			if g < 0 || g >= maxNodeGPUs {
				return false
			}
		}
	}
	return true
}

func (x *restoring) readJob(c *codec.Coder) {
	j := &cluster.Job{Spec: x.specs.read(c)}
	codec.Record(c, j, command.JobFields)
	if c.Failed() {
		return
	}
	if !x.sound(j) || j.State.Final() {
		c.Fail("job %d is not well formed", j.ID)
		return
	}
	if !x.blobs.Restore(j.Spec.Script) || !x.blobs.Restore(j.Spec.Environment) {
		c.Fail("job %d names a script or environment that does not exist", j.ID)
		return
	}
	x.words.shareWords(j.Spec)
	x.list(j)
	x.states[j.State]++
	x.keepArray(j.Array, 1, 0)
	if at := dueOf(j); at != cluster.Never {
		x.due.Set(dueJob{at, j.ID}, none{})
	}
	if !j.State.HasAllocation() {
		x.pending.Set(j.ID, j)
		x.credits.RestoreJob(j)
		return
	}
	for i, t := range j.Tasks.All() { // not shared yet
		x.words.share(&t.Node)
		j.Alloc.Nodes[i].Node = t.Node
	}
	x.holding.Set(j.ID, j)
	x.noteVictim(j)
	x.nodeTables.allocate(j, 1)
	x.keepArray(j.Array, 0, 1)
}

func (x *restoring) readEnded(c *codec.Coder) {
	var seq uint64
	codec.Uint(c, &seq)
	j := &cluster.Job{Spec: x.specs.read(c)}
	codec.Record(c, j, command.JobFields)
	if c.Failed() {
		return
	}
	if !x.sound(j) || !j.State.Final() || seq > x.finished || !x.tail.Set(seq, j) {
		c.Fail("finished job %d is not well formed", j.ID)
		return
	}
	x.words.shareWords(j.Spec)
	x.ended.Set(j.ID, seq)
	x.keepArray(j.Array, 1, 0)
}

func (x *restoring) readSignals(c *codec.Coder) {
	id, list := x.signals.Decode(c)
	if len(list) == 0 || len(list) > maxSignals || !x.holding.Has(id) {
		c.Fail("the signals of job %d are not well formed", id)
	}
}

// readEnd completes the indexes and compares the digest.
func (x *restoring) readEnd(c *codec.Coder) {
	var end closing
	closingFields(c, &end)
	x.blobs.Restored()
	for id, a := range x.arrays.All() {
		if a.kept == 0 {
			c.Fail("array %d has no elements", id)
			return
		}
	}
	if !x.accounts.Connected() {
		c.Fail("the accounts are not a tree")
		return
	}
	x.accounts.Recount(x.allActive)
	if x.credits.Restored(c, x.policy, x.pending.All()); c.Failed() {
		return
	}
	x.fleet.present = x.presentFleet()
	x.jobTables.digest = x.jobsDigest()
	if end.version != DigestVersion { // of another release: everything else must hold
		if err := x.Check(); err != nil {
			c.Fail("%v", err)
		}
		return
	}
	if x.Digest() != end.digest {
		c.Fail("the state has digest %016x, not %016x", x.Digest(), end.digest)
	}
}
