// Package credits implements credit accounting of jobs: what a job sets aside before it is queued
// (its lien), what an attempt is charged and refunded, who changes credits, and in which order
// the jobs that wait for credits get some.
//
// It decides from its own tables, the log index, the log's clock, the policy, the accounts and
// the partition index. It never changes a job, a node or an account: it returns the outcome
// for jobs, and the state stores it. It never reads a clock.
package credits

import (
	"cmp"
	"fmt"
	"iter"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/cow"
	"github.com/greylag/greylag/internal/state/accounts"
	"github.com/greylag/greylag/internal/state/admission"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// Credits is the ledger, the provisional bills and the funding queue. It has one writer; any
// goroutine may read a clone.
type Credits struct {
	ledger *accounting.Ledger
	bills  table.Table[accounting.LienID, *ProvisionalBill]
	fundingQueue

	// Indexes.
	soft   cow.Map[accounting.PayerID, none]    // payers with a soft budget
	narrow cow.Map[cluster.JobID, *cluster.Job] // pending jobs that are paid for in some of their partitions, as passes see them

	decoder accounting.Decoder // of the ledger, while a snapshot is read
	faults  []error            // what must never happen; Check returns it
}

// none is the value of a set's entries.
type none = struct{}

// Env is what decisions about credits depend on besides the tables.
type Env struct {
	Index      uint64          // of the log entry
	Now        cluster.Instant // the log's clock
	Policy     *cluster.Policy
	Accounts   *accounts.Accounts
	Partitions *admission.Index // of the present policy and nodes, where a job sets credits aside
}

// New returns empty tables.
func New(h *table.Hasher) Credits {
	return Credits{
		ledger:       accounting.New(),
		bills:        table.New(&billSchema, h),
		fundingQueue: newFundingQueue(h),
		soft:         cow.New[accounting.PayerID, none](cmp.Compare[accounting.PayerID]),
		narrow:       cow.New[cluster.JobID, *cluster.Job](cmp.Compare[cluster.JobID]),
	}
}

// Clone returns tables that later writes to x do not change. O(1).
func (x *Credits) Clone(h *table.Hasher) Credits {
	return Credits{
		ledger: x.ledger.Clone(), bills: x.bills.Clone(h), fundingQueue: x.fundingQueue.clone(h),
		soft: x.soft.Clone(), narrow: x.narrow.Clone(),
	}
}

// Digest returns the digest of the tables. h hashes that of the ledger. O(1).
func (x *Credits) Digest(h *table.Hasher) uint64 {
	d := x.bills.Digest() ^ x.waits.Digest() ^ x.roundRobins.Digest()
	if h != nil {
		sum := x.ledger.Digest()
		codec.Uint(h.Begin(table.Credits), &sum)
		d ^= h.Sum()
	}
	return d
}

// Encode writes the tables into a snapshot, the ledger in a frame for each chunk.
func (x *Credits) Encode(w *table.Writer) error {
	w.Begin(table.Credits)
	err := x.ledger.Encode(func(chunk []byte) error {
		codec.Bytes(w.Coder(), &chunk)
		return w.Flush()
	})
	x.bills.Encode(w)
	x.waits.Encode(w)
	x.roundRobins.Encode(w)
	return err
}

// Readers returns what reads the tables from a snapshot. Restored must be called after them.
func (x *Credits) Readers() table.Readers {
	return table.Readers{
		table.Credits: x.readLedger, table.ProvisionalBills: x.readBill, table.Waits: x.readWait, table.RoundRobins: x.readRoundRobin,
	}
}

func (x *Credits) readLedger(c *codec.Coder) {
	var chunk []byte
	codec.Bytes(c, &chunk)
	if c.Failed() {
		return
	}
	if err := x.decoder.Add(chunk); err != nil {
		c.Fail("credits: %w", err)
	}
}

// Restored completes the indexes after all records of a snapshot were read. It fails c if the
// ledger or the funding queue is not whole. O(payers + pending jobs).
func (x *Credits) Restored(c *codec.Coder, p *cluster.Policy, pending iter.Seq2[cluster.JobID, *cluster.Job]) {
	l, err := x.decoder.Ledger()
	if err != nil {
		c.Fail("credits: %w", err)
		return
	}
	x.ledger, x.decoder = l, accounting.Decoder{}
	for id := range l.Payers() {
		x.indexSoftBudget(id)
	}
	for k := range x.unfunded.All() {
		if !x.waits.Has(k.payer) {
			c.Fail("a job waits for credits, and its payer is not queued")
			return
		}
	}
	x.NarrowAll(p, pending)
}

// Follow updates what depends on a job after it changed from old, which is nil for a new job. What
// was set aside for a job that ended without having started is released.
func (x *Credits) Follow(e *Env, old, j *cluster.Job) {
	x.indexUnfunded(old, j, e.Index)
	if old != nil && old.State == cluster.Pending && j.State.Final() {
		x.Withdraw(e.Now, old)
	}
	x.indexNarrow(e.Policy, old, j)
}

// Ledger returns the ledger. Only Credits may write to accounts in it. O(1).
func (x *Credits) Ledger() *accounting.Ledger { return x.ledger }

// fault notes what must never happen, for Check.
func (x *Credits) fault(format string, args ...any) {
	if len(x.faults) < 16 {
		x.faults = append(x.faults, fmt.Errorf(format, args...))
	}
}

// clock returns the ledger's time: it orders several commands of one instant.
func (x *Credits) clock(now cluster.Instant) cluster.Instant { return max(now, x.ledger.Now()) }

// logStamp returns the stamp of what the log does once: the entries that submit, start and end a job
// place, start and settle its lien.
func logStamp(now cluster.Instant) accounting.Stamp {
	return accounting.Stamp{At: now, Key: "job", Natural: true}
}
