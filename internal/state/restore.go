package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// Decode reads what [View.Encode] wrote, and nothing that follows it. Its errors
// wrap [ErrDamaged], [ErrUnsupported], codec.ErrEarlier or those of r. Hostile input gives an error,
// and never more memory than a small multiple of its length. O(state).
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
	x := &restoring{State: newState(l), body: new(bytes.Buffer)}
	for kind := byte(0); kind != frameEnd; {
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
	x.narrowAll()
	return x.State, nil
}

// restoring is a state being read.
type restoring struct {
	*State
	ledger accounting.Decoder
	body   *bytes.Buffer
	specs  specWindow
}

// readError tells an input that ends too early from one that cannot be read.
func readError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends too early", ErrDamaged)
	}
	return fmt.Errorf("read snapshot: %w", err)
}

// frame reads one frame. The body is valid until the next one is read.
func (x *restoring) frame(r io.Reader) (kind byte, body []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, readError(err)
	}
	size := binary.LittleEndian.Uint32(head[1:])
	if size > maxFrame {
		return 0, nil, fmt.Errorf("%w: a frame of %d bytes", ErrDamaged, size)
	}
	x.body.Reset() // grows with what is there, not with what size promises
	if _, err := io.CopyN(x.body, r, int64(size)+4); err != nil {
		return 0, nil, readError(err)
	}
	all := x.body.Bytes()
	body = all[:size]
	sum := crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, body)
	if sum != binary.LittleEndian.Uint32(all[size:]) {
		return 0, nil, fmt.Errorf("%w: the CRC of frame %d is wrong", ErrDamaged, head[0])
	}
	return head[0], body, nil
}

// section reads the records of one frame.
func (x *restoring) section(kind byte, body []byte) error {
	table := map[byte]func(*codec.Coder){
		frameMeta: x.readMeta, framePolicy: x.readPolicy, frameNodes: x.readNode, frameArrays: x.readArray,
		frameJobs: x.readJob, frameSignals: x.readSignals, frameTail: x.readEnded, frameRequests: x.readRequest,
		frameBlobs: x.readBlob, frameTokens: x.readToken, frameUploads: x.readUpload, frameTopology: x.readTopology,
		frameAccounts: x.readAccount, frameAssociations: x.readAssociation, frameUsages: x.readUsage, frameCharges: x.readCharge, frameCredits: x.readCredits,
		frameUnproven: x.readUnproven, frameWaits: x.readWait, frameCircles: x.readCircle, frameFleet: x.readLevel, frameMembers: x.readMember,
		frameHistory: x.readHistory, frameHolders: x.readHolder, frameRotation: x.readRotation, frameEnd: x.readEnd,
	}
	read := table[kind]
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
	x.nextJob, x.finished, x.nextRequest, x.audited = m.nextJob, m.finished, m.nextRequest, m.audited
}

func (x *restoring) readPolicy(c *codec.Coder) {
	p := new(cluster.Policy)
	codec.Record(c, p, command.PolicyFields)
	x.policy = p
	x.hashes.policy = x.hashPolicy()
}

func (x *restoring) readNode(c *codec.Coder) {
	n := new(cluster.Node)
	codec.Record(c, n, command.NodeFields)
	if !x.nodes.Set(n.Name, n) {
		c.Fail("node %q twice", n.Name)
	}
}

func (x *restoring) readArray(c *codec.Coder) {
	var id cluster.JobID
	var a array
	codec.Uint(c, &id)
	codec.Record(c, &a, arrayFields)
	count, ok := countOf(a.ranges)
	if a.count = count; !ok || !x.arrays.Set(id, a) {
		c.Fail("array %d is not well formed", id)
	}
}

// sound reports whether what the tables rely on holds for a job by itself.
func (x *restoring) sound(j *cluster.Job) bool {
	a, isElement := x.arrays.Get(j.Array)
	switch {
	case j.Spec == nil, j.ID == 0, j.ID >= x.nextJob, j.State == 0, j.State > cluster.OutOfMemory:
		return false
	case (j.Array != 0) != isElement, isElement && (j.ID < j.Array || j.ID-j.Array >= cluster.JobID(a.count)):
		return false
	}
	if _, twice := x.job(j.ID); twice {
		return false
	}
	if !j.State.Holds() {
		return j.State.Final() || j.Alloc == nil && len(j.Tasks) == 0
	}
	if j.Alloc == nil || len(j.Alloc.Nodes) == 0 || len(j.Alloc.Nodes) != len(j.Tasks) {
		return false
	}
	seen := make(map[string]none, len(j.Tasks))
	for i, n := range j.Alloc.Nodes {
		if _, twice := seen[n.Node]; twice || n.Node != j.Tasks[i].Node {
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
	if !x.countBlob(j.Spec.Script) || !x.countBlob(j.Spec.Environment) {
		c.Fail("job %d names a script or environment that is not there", j.ID)
		return
	}
	x.words.shareWords(j.Spec)
	x.users.Set(userJob{j.Spec.Owner.User, j.ID}, none{})
	x.depend(j)
	x.states[j.State]++
	x.keepArray(j.Array, 1, 0)
	if at := dueOf(j); at != cluster.Never {
		x.due.Set(dueJob{at, j.ID}, none{})
	}
	if !j.State.Holds() {
		x.pending.Set(j.ID, j)
		if j.Hold == cluster.HeldForCredits {
			x.unfunded.Set(waiting{payerOf(j), j.ID}, none{})
		}
		return
	}
	for i := range j.Tasks {
		x.words.share(&j.Tasks[i].Node)
		j.Alloc.Nodes[i].Node = j.Tasks[i].Node
	}
	x.holding.Set(j.ID, j)
	x.tables.allocate(j, 1)
	x.keepArray(j.Array, 0, 1)
}

// countBlob counts a job that names the blob, which must be there.
func (x *restoring) countBlob(d cluster.Digest) bool {
	u, known := x.blobs.Get(d)
	if known {
		u.jobs++
		x.blobs.Set(d, u)
	}
	return known || d.IsZero()
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
	var id cluster.JobID
	var list []Signal
	codec.Uint(c, &id)
	codec.Record(c, &list, signalsFields)
	if len(list) == 0 || len(list) > maxSignals || !x.holding.Has(id) || !x.signals.Set(id, list) {
		c.Fail("the signals of job %d are not well formed", id)
	}
}

func (x *restoring) readRequest(c *codec.Coder) {
	var number uint64
	var r request
	codec.Uint(c, &number)
	codec.Record(c, &r, requestRecord)
	if _, twice := x.requestOf[r.id.Key]; twice || number >= x.nextRequest || !x.requests.Set(number, r) {
		c.Fail("request %d is not well formed", number)
		return
	}
	x.requestOf[r.id.Key] = number
	x.requestBytes += len(r.answer)
}

func (x *restoring) readBlob(c *codec.Coder) {
	var d cluster.Digest
	var u blobUse
	digestField(c, &d)
	codec.Record(c, &u, blobFields)
	if !x.blobs.Set(d, u) {
		c.Fail("blob %s twice", d)
	}
}

func (x *restoring) readToken(c *codec.Coder) {
	var d cluster.Digest
	var t token
	digestField(c, &d)
	codec.Record(c, &t, tokenFields)
	if !x.tokens.Set(d, t) {
		c.Fail("join token %s twice", d)
	}
}

func (x *restoring) readUpload(c *codec.Coder) {
	var d cluster.Digest
	var u, sum upload
	digestField(c, &d)
	codec.Record(c, &u, uploadFields)
	for _, part := range u.parts {
		sum = sum.with(part, u.at)
	}
	sum.size, sum.at = u.size, u.at
	if !x.uploads.Set(d, sum) {
		c.Fail("upload %s twice", d)
	}
}

// readEnd completes the indexes and compares the digest.
func (x *restoring) readEnd(c *codec.Coder) {
	var end closing
	closingFields(c, &end)
	all := x.blobs.Clone()
	for d, u := range all.All() {
		if u.jobs == 0 {
			x.idle.Set(idleBlob{u.idle, d}, none{})
		}
	}
	for id, a := range x.arrays.All() {
		if a.kept == 0 {
			c.Fail("array %d has no elements", id)
			return
		}
	}
	if !x.connected() {
		c.Fail("the accounts are no tree")
		return
	}
	x.recountQueued()
	if !x.endCredits(c) {
		return
	}
	if !x.queuedForCredits() {
		c.Fail("a job waits for credits, and nothing says for which")
		return
	}
	x.fleet.present = x.recountFleet()
	x.digest = x.recount()
	if end.version != DigestVersion { // of another release: all else must hold
		if err := x.Check(); err != nil {
			c.Fail("%v", err)
		}
		return
	}
	if x.Digest() != end.digest {
		c.Fail("the state has digest %016x, not %016x", x.Digest(), end.digest)
	}
}
