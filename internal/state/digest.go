package state

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// The digest is the XOR of one hash for each object, so that a change costs two
// hashes whatever the size of the state. Each hash is XXH64 of the object's kind, its
// key and its encoding, so that equal objects do not cancel out. It tells replicas
// apart that differ by accident; it is no proof against someone who constructs states.
//
// A job has two: one of what changes, one of its specification, which is larger
// and stays when the job ends.

// DigestVersion tells how digests are made, and what Apply makes of a log. It is raised with
// every change of either: another encoding of what a digest covers (TestDigestVersion tells),
// another rule (TestRules tells). Replicas of two versions, in the middle of an upgrade, then
// do not compare their digests.
const DigestVersion = 1

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
	hashOneSpec
	hashCredits
)

// hasher is memory that hashing reuses.
type hasher struct {
	c      codec.Coder      // kept, since a new one each time would be garbage
	policy uint64           // hash of the policy in force
	fabric uint64           // and of the topology
	spec   *cluster.JobSpec // whose hash is known
	known  uint64
	off    bool // nobody asks for digests
}

// of begins the hash of an object: its kind, and its key of numbers.
func (h *hasher) of(kind byte, key ...uint64) *hasher {
	b := append(h.c.Written()[:0], kind)
	for _, x := range key {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	h.c = codec.Writer(b)
	return h
}

// named begins the hash of an object whose key has a name, too.
func (h *hasher) named(kind byte, name string, key ...uint64) *hasher {
	codec.String(&h.of(kind, key...).c, &name)
	return h
}

// sum is the hash of what was begun.
func (h *hasher) sum() uint64 {
	if h.off {
		return 0
	}
	return xxhash.Sum64(h.c.Written())
}

// hashRecord is the hash of what was begun and a value's encoding.
func hashRecord[T any](h *hasher, v *T, fields func(*codec.Coder, *T)) uint64 {
	if h.off {
		return 0
	}
	fields(&h.c, v)
	return h.sum()
}

func (s *State) hashJob(j *cluster.Job) uint64 {
	return hashRecord(s.hashes.of(hashJobBody, uint64(j.ID)), j, command.JobFields)
}

func (s *State) hashTail(seq uint64, j *cluster.Job) uint64 {
	return hashRecord(s.hashes.of(hashTailBody, seq), j, command.JobFields)
}

// hashSpecOf is the part of a job's hash that its specification makes.
func (s *State) hashSpecOf(j *cluster.Job) uint64 {
	if h := &s.hashes; h.spec != j.Spec {
		h.spec, h.known = j.Spec, hashRecord(h.of(hashSpec), j.Spec, command.SpecFields)
	}
	return s.hashes.of(hashOneSpec, uint64(j.ID), s.hashes.known).sum()
}

func (s *State) hashNode(n *cluster.Node) uint64 {
	return hashRecord(s.hashes.of(hashNodes), n, command.NodeFields)
}

func (s *State) hashArray(id cluster.JobID, a array) uint64 {
	return hashRecord(s.hashes.of(hashArrays, uint64(id)), &a, arrayFields)
}

func (s *State) hashSignals(id cluster.JobID, list []Signal) uint64 {
	if len(list) == 0 {
		return 0
	}
	return hashRecord(s.hashes.of(hashSignals, uint64(id)), &list, signalsFields)
}

func (s *State) hashRequest(number uint64, r request) uint64 {
	return hashRecord(s.hashes.of(hashRequests, number), &r, requestRecord)
}

func (s *State) hashBlob(d cluster.Digest, u blobUse) uint64 {
	return s.hashes.named(hashBlobs, string(d[:]), uint64(u.idle)).sum()
}

func (s *State) hashToken(d cluster.Digest, t token) uint64 {
	return hashRecord(s.hashes.named(hashTokens, string(d[:])), &t, tokenFields)
}

// hashUpload covers the parts by the sum that grows with them.
func (s *State) hashUpload(d cluster.Digest, u upload) uint64 {
	return s.hashes.named(hashUploads, string(d[:]), uint64(u.size), uint64(u.at), uint64(u.got), u.sum).sum()
}

func (s *State) hashPolicy() uint64 {
	return hashRecord(s.hashes.of(hashMeta, 1), s.policy, command.PolicyFields)
}

func (s *State) hashFabric() uint64 {
	return hashRecord(s.hashes.of(hashMeta, 2), s.fabric, fabricFields)
}

// Digest is a fingerprint of all that a snapshot holds: equal states have equal
// digests, states that differ have different ones but for one chance in 2^64. O(1).
func (s *State) Digest() uint64 {
	m := s.metaOf()
	return s.hashes.of(hashCredits, s.credits.Digest()).sum() ^ s.digest ^ s.hashes.policy ^ s.hashes.fabric ^ hashRecord(s.hashes.of(hashMeta, 0), &m, metaFields)
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
