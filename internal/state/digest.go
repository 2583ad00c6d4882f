package state

import (
	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/cluster"
)

// DigestVersion identifies how digests are computed, and what Apply computes from a log. It is
// raised with every change of either: another encoding of a table (TestDigestVersion) or another
// rule (TestRules). During an upgrade, replicas of two versions do not compare their digests.
const DigestVersion = 1

// jobHasher hashes jobs. An active job has several hashes, so that a change costs what it changes: of
// its specification, of its allocation, of each task, and of the rest.
type jobHasher struct {
	*table.Hasher
	last     *cluster.JobSpec // with a known hash
	lastHash uint64
}

func (h *jobHasher) job(j *cluster.Job) uint64 {
	if h.Hasher == nil {
		return 0
	}
	c := h.Begin(table.Jobs)
	codec.Uint(c, &j.ID)
	command.JobFieldsWithoutPlacement(c, j)
	return h.Sum()
}

// placement returns the hash of a job's allocation, tasks and steps; 0 if it has none. O(nodes + steps).
func (h *jobHasher) placement(j *cluster.Job) (d uint64) {
	if h.Hasher == nil || j == nil || j.Alloc == nil {
		return 0
	}
	c := h.Begin(table.JobAllocations)
	codec.Uint(c, &j.ID)
	command.AllocationFields(c, j.Alloc)
	d = h.Sum()
	for rank, t := range j.Tasks.All() {
		d ^= h.task(j.ID, int32(rank), t)
	}
	for id, step := range j.Steps {
		d ^= h.step(j.ID, id, step)
	}
	return d
}

// placementChange returns the difference of the hashes of the placements of two values of a job. O(tasks
// and steps that changed), or O(nodes) if the allocation is another. An attempt never loses a step.
func (h *jobHasher) placementChange(old, j *cluster.Job) (d uint64) {
	if h.Hasher == nil {
		return 0
	}
	if old == nil || old.Alloc != j.Alloc || j.Alloc == nil {
		return h.placement(old) ^ h.placement(j)
	}
	for rank := range j.Tasks.Changed(old.Tasks) {
		if before, now := old.Tasks.At(rank), j.Tasks.At(rank); *before != *now {
			d ^= h.task(j.ID, int32(rank), before) ^ h.task(j.ID, int32(rank), now)
		}
	}
	for id, step := range j.Steps {
		if id >= len(old.Steps) {
			d ^= h.step(j.ID, id, step)
		} else if before := old.Steps[id]; before != step {
			d ^= h.step(j.ID, id, before) ^ h.step(j.ID, id, step)
		}
	}
	return d
}

func (h *jobHasher) task(id cluster.JobID, rank int32, t *cluster.Task) uint64 {
	c := h.Begin(table.JobTasks)
	codec.Uint(c, &id)
	codec.Int(c, &rank)
	command.TaskFields(c, t)
	return h.Sum()
}

func (h *jobHasher) step(id cluster.JobID, n int, step *cluster.Step) uint64 {
	c := h.Begin(table.JobSteps)
	codec.Uint(c, &id)
	number := uint32(n)
	codec.Uint(c, &number)
	command.StepFields(c, step)
	return h.Sum()
}

func (h *jobHasher) tail(seq uint64, j *cluster.Job) uint64 {
	if h.Hasher == nil {
		return 0
	}
	c := h.Begin(table.Tail)
	codec.Uint(c, &seq)
	command.JobFields(c, j)
	return h.Sum()
}

// spec returns the part of a job's hash that covers its specification.
func (h *jobHasher) spec(j *cluster.Job) uint64 {
	if h.Hasher == nil {
		return 0
	}
	if h.last != j.Spec {
		h.last, h.lastHash = j.Spec, table.Hash(h.Hasher, table.Specs, j.Spec, command.SpecFields)
	}
	c := h.Begin(table.JobSpecs)
	codec.Uint(c, &j.ID)
	codec.Uint(c, &h.lastHash)
	return h.Sum()
}

// jobsDigest computes the digest of all jobs. O(jobs).
func (x *jobTables) jobsDigest() (d uint64) {
	for _, j := range x.pending.All() {
		d ^= x.hashes.job(j) ^ x.hashes.spec(j)
	}
	for _, j := range x.holding.All() {
		d ^= x.hashes.job(j) ^ x.hashes.placement(j) ^ x.hashes.spec(j)
	}
	for seq, j := range x.tail.All() {
		d ^= x.hashes.tail(seq, j) ^ x.hashes.spec(j)
	}
	return d
}

// Digest returns a fingerprint of all that a snapshot holds: equal states have equal digests.
// Different states have equal digests with probability 2^-64. O(1).
func (s *State) Digest() uint64 {
	m := s.metaOf()
	d := table.Hash(s.hasher, table.Meta, &m, metaFields) ^ s.policyHash ^ s.fabricHash
	d ^= s.jobTables.digest ^ s.arrays.Digest() ^ s.signals.Digest() ^ s.nodes.Digest() ^ s.fleet.levels.Digest()
	d ^= s.requests.Digest() ^ s.blobs.Digest() ^ s.hosts.Digest() ^ s.crontab.Digest() ^ s.secrets.Digest()
	d ^= s.accounts.Digest() ^ s.credits.Digest(s.hasher) ^ s.totals.Digest() ^ s.leases.Digest()
	if s.history != (History{}) {
		d ^= table.Hash(s.hasher, table.History, &s.history, historyFields)
	}
	return d
}

func (s *State) hashPolicy() uint64 {
	return table.Hash(s.hasher, table.Policy, s.policy, command.PolicyFields)
}

func (s *State) hashFabric() uint64 {
	return table.Hash(s.hasher, table.Topology, s.fabric, fabricFields)
}
