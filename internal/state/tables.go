package state

import (
	"bytes"
	"cmp"
	"strings"

	"github.com/greylag/greylag/internal/cow"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// none is the value of a set's entries.
type none = struct{}

// userJob and nodeJob order jobs by whom they belong to and where they run.
type userJob struct {
	user string
	id   cluster.JobID
}

type nodeJob struct {
	node string
	id   cluster.JobID
}

// dueJob orders jobs by when time will next change them.
type dueJob struct {
	at cluster.Instant
	id cluster.JobID
}

// idleBlob orders blobs by since when no job has named them.
type idleBlob struct {
	since  cluster.Instant
	digest cluster.Digest
}

// tables is everything that a snapshot holds, and the indexes that readers use.
// It is copied by value for each View, after cow.Map.Clone of each table.
type tables struct {
	index       uint64
	now         cluster.Instant
	clusterID   string
	policy      *cluster.Policy
	fabric      *fabric
	nextJob     cluster.JobID // the next id
	finished    uint64        // sequence number of the newest finished job
	nextRequest uint64
	audited     audited
	history     History
	rotation    Rotation

	// Each active job is in one of these two.
	pending cow.Map[cluster.JobID, *cluster.Job]
	holding cow.Map[cluster.JobID, *cluster.Job] // those with an allocation

	arrays   cow.Map[cluster.JobID, array]
	signals  cow.Map[cluster.JobID, []Signal]
	nodes    cow.Map[string, *cluster.Node]
	tail     cow.Map[uint64, *cluster.Job]
	requests cow.Map[uint64, request]
	blobs    cow.Map[cluster.Digest, blobUse]
	tokens   cow.Map[cluster.Digest, token]
	uploads  cow.Map[cluster.Digest, upload]
	holders  holderTable

	sharing
	credits  *accounting.Ledger
	unproven cow.Map[accounting.LienID, *provisionalBill]
	fundingQueue
	fleet fleet

	controllers cow.Map[string, Member] // by member id in the log

	// Indexes: rebuilt from the above when a snapshot is read.
	users  cow.Map[userJob, none]
	onNode cow.Map[nodeJob, none]
	uses   cow.Map[string, cluster.Use]
	due    cow.Map[dueJob, none]
	ended  cow.Map[cluster.JobID, uint64] // of jobs in the tail
	idle   cow.Map[idleBlob, none]
	rooms  *partitionIndex
	states [cluster.OutOfMemory + 1]int // active jobs by state
	soft   cow.Map[accounting.PayerID, none]
	narrow cow.Map[cluster.JobID, *cluster.Job] // pending jobs that are paid for in some of their partitions, as passes see them
}

func newTables() tables {
	policy := cluster.DefaultPolicy()
	return tables{
		policy:      &policy,
		fabric:      &fabric{},
		credits:     accounting.New(),
		nextJob:     1,
		nextRequest: 1,
		pending:     cow.New[cluster.JobID, *cluster.Job](cmp.Compare[cluster.JobID]),
		holding:     cow.New[cluster.JobID, *cluster.Job](cmp.Compare[cluster.JobID]),
		arrays:      cow.New[cluster.JobID, array](cmp.Compare[cluster.JobID]),
		signals:     cow.New[cluster.JobID, []Signal](cmp.Compare[cluster.JobID]),
		nodes:       cow.New[string, *cluster.Node](strings.Compare),
		tail:        cow.New[uint64, *cluster.Job](cmp.Compare[uint64]),
		requests:    cow.New[uint64, request](cmp.Compare[uint64]),
		blobs:       cow.New[cluster.Digest, blobUse](compareDigests),
		tokens:      cow.New[cluster.Digest, token](compareDigests),
		uploads:     cow.New[cluster.Digest, upload](compareDigests),
		holders:     newHolders(),
		sharing:     newSharing(),
		soft:        newSoft(),
		users: cow.New[userJob, none](func(a, b userJob) int {
			if c := strings.Compare(a.user, b.user); c != 0 {
				return c
			}
			return cmp.Compare(a.id, b.id)
		}),
		onNode: cow.New[nodeJob, none](func(a, b nodeJob) int {
			if c := strings.Compare(a.node, b.node); c != 0 {
				return c
			}
			return cmp.Compare(a.id, b.id)
		}),
		uses: cow.New[string, cluster.Use](strings.Compare),
		due: cow.New[dueJob, none](func(a, b dueJob) int {
			if c := cmp.Compare(a.at, b.at); c != 0 {
				return c
			}
			return cmp.Compare(a.id, b.id)
		}),
		ended:        cow.New[cluster.JobID, uint64](cmp.Compare[cluster.JobID]),
		fundingQueue: newTurns(),
		fleet:        newFleet(),
		narrow:       cow.New[cluster.JobID, *cluster.Job](cmp.Compare[cluster.JobID]),
		unproven:     cow.New[accounting.LienID, *provisionalBill](accounting.CompareLiens),
		idle: cow.New[idleBlob, none](func(a, b idleBlob) int {
			if c := cmp.Compare(a.since, b.since); c != 0 {
				return c
			}
			return compareDigests(a.digest, b.digest)
		}),
		controllers: newMembers(),
	}
}

func compareDigests(a, b cluster.Digest) int { return bytes.Compare(a[:], b[:]) }

// clone returns tables that later writes to t do not change. O(1).
func (t *tables) clone() tables {
	c := *t
	c.pending, c.holding = t.pending.Clone(), t.holding.Clone()
	c.arrays, c.signals = t.arrays.Clone(), t.signals.Clone()
	c.nodes, c.tail = t.nodes.Clone(), t.tail.Clone()
	c.requests, c.blobs, c.tokens = t.requests.Clone(), t.blobs.Clone(), t.tokens.Clone()
	c.uploads, c.sharing = t.uploads.Clone(), t.sharing.clone()
	c.users, c.onNode, c.uses = t.users.Clone(), t.onNode.Clone(), t.uses.Clone()
	c.due, c.ended, c.idle = t.due.Clone(), t.ended.Clone(), t.idle.Clone()
	c.fundingQueue, c.unproven = t.fundingQueue.clone(), t.unproven.Clone()
	c.soft, c.fleet = t.soft.Clone(), t.fleet.clone()
	c.narrow, c.controllers = t.narrow.Clone(), t.controllers.Clone()
	c.holders = t.holders.Clone()
	c.credits = t.credits.Clone()
	return c
}

// active finds a job that has not ended. O(log n).
func (t *tables) active(id cluster.JobID) (*cluster.Job, bool) {
	if j, found := t.pending.Get(id); found {
		return j, true
	}
	return t.holding.Get(id)
}

// job finds a job that is active or in the tail. O(log n).
func (t *tables) job(id cluster.JobID) (*cluster.Job, bool) {
	if j, found := t.active(id); found {
		return j, true
	}
	seq, found := t.ended.Get(id)
	if !found {
		return nil, false
	}
	return t.tail.Get(seq)
}

// live is how many jobs are active.
func (t *tables) live() int { return t.pending.Len() + t.holding.Len() }
