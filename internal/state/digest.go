package state

import (
	"encoding/binary"
	"math/bits"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// The digest is the XOR of one hash for each object, so that a change costs two
// hashes whatever the size of the state. Each hash covers the object's kind and
// key, so that equal objects do not cancel out. It tells replicas apart that
// differ by accident; it is no proof against someone who constructs states.
//
// A job has two: one of what changes, one of its specification, which is larger
// and stays when the job ends.

// DigestVersion tells how digests are made, and what Apply makes of a log. It is raised with
// every change of either: another encoding of what a digest covers (TestDigestVersion tells),
// another rule (TestRules tells). Replicas of two versions, in the middle of an upgrade, then
// do not compare their digests.
const DigestVersion = 9

const (
	hashMeta byte = iota + 1
	hashJobBody
	hashTailBody
	hashSpec
	hashNodes
	hashArrays
	hashSignals
	hashRequests
	hashBlobs
	hashTokens
	hashUploads
	hashAccounts
	hashAssociations
	hashUsages
	hashCharges
	hashUnproven
	hashWaits
	hashCircles
	hashFleet
	hashMembers
	hashHistory
	hashHolders
	hashRotation
)

// Odd constants with about as many ones as zeros, from wyhash by Wang Yi (public
// domain).
const (
	mix1 = 0xa0761d6478bd642f
	mix2 = 0xe7037ed1a0b428db
	mix3 = 0x8ebc6af09c88c6e3
)

func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// hash64 is a 64-bit hash in the manner of wyhash, eight bytes at a time.
func hash64(seed uint64, data []byte) uint64 {
	h := mix(seed^mix1, uint64(len(data))^mix2)
	for ; len(data) >= 8; data = data[8:] {
		h = mix(h^mix1, binary.LittleEndian.Uint64(data)^mix2)
	}
	var last [8]byte
	copy(last[:], data)
	return mix(h^mix3, binary.LittleEndian.Uint64(last[:])^mix2)
}

// hasher is memory that hashing reuses.
type hasher struct {
	c      codec.Coder      // kept, since a new one each time would be garbage
	policy uint64           // hash of the policy in force
	fabric uint64           // and of the topology
	spec   *cluster.JobSpec // whose hash is known
	known  uint64
	off    bool // nobody asks for digests
}

// hashRecord hashes a value's encoding.
func hashRecord[T any](h *hasher, seed uint64, v *T, fields func(*codec.Coder, *T)) uint64 {
	if h.off {
		return 0
	}
	h.c = codec.Writer(h.c.Written()[:0])
	fields(&h.c, v)
	return hash64(seed, h.c.Written())
}

// seed starts the hash of an object of a kind with a numeric key.
func seed(kind byte, key uint64) uint64 { return mix(uint64(kind)^mix3, key^mix1) }

func (s *State) hashJob(j *cluster.Job) uint64 {
	return hashRecord(&s.hashes, seed(hashJobBody, uint64(j.ID)), j, command.JobFields)
}

func (s *State) hashTail(seq uint64, j *cluster.Job) uint64 {
	return hashRecord(&s.hashes, seed(hashTailBody, seq), j, command.JobFields)
}

// hashSpecOf is the part of a job's hash that its specification makes.
func (s *State) hashSpecOf(j *cluster.Job) uint64 {
	if h := &s.hashes; h.spec != j.Spec {
		h.spec, h.known = j.Spec, hashRecord(h, seed(hashSpec, 0), j.Spec, command.SpecFields)
	}
	return mix(s.hashes.known^mix3, seed(hashSpec, uint64(j.ID)))
}

func (s *State) hashNode(n *cluster.Node) uint64 {
	return hashRecord(&s.hashes, seed(hashNodes, 0), n, command.NodeFields)
}

func (s *State) hashArray(id cluster.JobID, a array) uint64 {
	return hashRecord(&s.hashes, seed(hashArrays, uint64(id)), &a, arrayFields)
}

func (s *State) hashSignals(id cluster.JobID, list []Signal) uint64 {
	if len(list) == 0 {
		return 0
	}
	return hashRecord(&s.hashes, seed(hashSignals, uint64(id)), &list, signalsFields)
}

func (s *State) hashRequest(number uint64, r request) uint64 {
	return hashRecord(&s.hashes, seed(hashRequests, number), &r, requestRecord)
}

func (s *State) hashBlob(d cluster.Digest, u blobUse) uint64 {
	return hash64(seed(hashBlobs, uint64(u.idle)), d[:])
}

func (s *State) hashToken(d cluster.Digest, t token) uint64 {
	key := hash64(seed(hashTokens, 0), d[:])
	return hashRecord(&s.hashes, key, &t, tokenFields)
}

// hashUpload covers the parts by the sum that grows with them.
func (s *State) hashUpload(d cluster.Digest, u upload) uint64 {
	key := hash64(seed(hashUploads, u.sum), d[:])
	return mix(key^uint64(u.at), mix(uint64(u.size)^mix1, uint64(u.got)^mix2))
}

func (s *State) hashPolicy() uint64 {
	return hashRecord(&s.hashes, seed(hashMeta, 1), s.policy, command.PolicyFields)
}

func (s *State) hashFabric() uint64 {
	return hashRecord(&s.hashes, seed(hashMeta, 2), s.fabric, fabricFields)
}

// Digest is a fingerprint of all that a snapshot holds: equal states have equal
// digests, states that differ have different ones but for one chance in 2^64. O(1).
func (s *State) Digest() uint64 {
	m := s.metaOf()
	credits := uint64(0)
	if s.credits != nil {
		credits = mix(s.credits.Digest()^mix2, mix3)
	}
	return credits ^ s.digest ^ s.hashes.policy ^ s.hashes.fabric ^ hashRecord(&s.hashes, seed(hashMeta, 0), &m, metaFields)
}

// recount is the incremental part of the digest from scratch. O(state).
func (s *State) recount() uint64 {
	d := s.recountSharing() ^ s.recountMembers() ^ s.hashHistory() ^ s.hashRotation()
	for _, j := range s.pending.All() {
		d ^= s.hashJob(j) ^ s.hashSpecOf(j)
	}
	for _, j := range s.holding.All() {
		d ^= s.hashJob(j) ^ s.hashSpecOf(j)
	}
	for seq, j := range s.tail.All() {
		d ^= s.hashTail(seq, j) ^ s.hashSpecOf(j)
	}
	for _, n := range s.nodes.All() {
		d ^= s.hashNode(n)
	}
	for id, a := range s.arrays.All() {
		d ^= s.hashArray(id, a)
	}
	for id, list := range s.signals.All() {
		d ^= s.hashSignals(id, list)
	}
	for number, r := range s.requests.All() {
		d ^= s.hashRequest(number, r)
	}
	for digest, u := range s.blobs.All() {
		d ^= s.hashBlob(digest, u)
	}
	for hash, t := range s.tokens.All() {
		d ^= s.hashToken(hash, t)
	}
	for digest, u := range s.uploads.All() {
		d ^= s.hashUpload(digest, u)
	}
	for id, u := range s.unproven.All() {
		d ^= s.hashUnproven(id, u)
	}
	for payer, causes := range s.waits.All() {
		d ^= s.hashWait(payer, causes)
	}
	for c, x := range s.circles.All() {
		d ^= s.hashCircle(c, x)
	}
	for k, c := range s.fleet.levels.All() {
		d ^= s.hashLevel(k, c)
	}
	for _, h := range s.holders.All() {
		d ^= s.hashHolder(h)
	}
	return d
}
