package accounting

import (
	"iter"
	"math/bits"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// Millis returns the GPU-milliseconds of GPUs over a duration, saturating. O(1).
func Millis(gpus int64, d time.Duration) int64 { return millis(max(gpus, 0), d.Milliseconds()) }

// Share returns c × num / den, rounded up and limited to MaxAmount; num and den are at least 1.
// O(1).
func Share(c Credits, num, den int64) Credits {
	hi, lo := bits.Mul64(uint64(max(c, 0)), uint64(max(num, 0)))
	lo, overflow := bits.Add64(lo, uint64(den)-1, 0)
	if hi += overflow; hi >= uint64(den) {
		return MaxAmount
	}
	q, _ := bits.Div64(hi, lo, uint64(den))
	return Credits(min(q, uint64(MaxAmount)))
}

// Paid returns what a lien has spent net of refunds.
func (n *Lien) Paid() Credits {
	_, spent, refunded := n.sum()
	return spent - refunded
}

// Holds returns what a lien still holds.
func (n *Lien) Holds() Credits {
	held, _, _ := n.sum()
	return held
}

// OpenLiens yields the open liens by ID. The caller must not change them. O(liens).
func (l *Ledger) OpenLiens() iter.Seq[*Lien] {
	return func(yield func(*Lien) bool) {
		for _, n := range l.liens.All() {
			if n.State == Open && !yield(n) {
				return
			}
		}
	}
}

// Buckets yields the buckets, the oldest first. The caller must not change them.
func (l *Ledger) Buckets() iter.Seq[*Bucket] {
	return func(yield func(*Bucket) bool) {
		for _, b := range l.buckets.All() {
			if !yield(b) {
				return
			}
		}
	}
}

// Payers yields the accounts by name. The caller must not change them.
func (l *Ledger) Payers() iter.Seq2[PayerID, *Payer] { return l.PayersFrom("") }

// PayersFrom yields the accounts by name, from one on. The caller must not change them. O(log n) to
// the first.
func (l *Ledger) PayersFrom(first PayerID) iter.Seq2[PayerID, *Payer] {
	return func(yield func(PayerID, *Payer) bool) {
		for id, n := range l.nodes.From(first) {
			if !yield(id, n) {
				return
			}
		}
	}
}

// Prices yields every price that was ever set: by type, the newest first.
func (l *Ledger) Prices() iter.Seq[PriceFrom] {
	return func(yield func(PriceFrom) bool) {
		for k, p := range l.prices.All() {
			if !yield(PriceFrom{Rate{k.gpuType, p}, -k.before}) {
				return
			}
		}
	}
}

// PriceFrom is a price and the instant at which it starts.
type PriceFrom struct {
	Rate
	From cluster.Instant
}

// LastLien returns the ID of the lien of a job's last attempt. O(attempts + log n).
func (l *Ledger) LastLien(job cluster.JobID) (last LienID, found bool) {
	for id := range l.liens.From(LienID{Job: job}) {
		if id.Job != job {
			break
		}
		last, found = id, true
	}
	return last, found
}

// Liens yields all remembered liens by ID. The caller must not change them.
func (l *Ledger) Liens() iter.Seq[*Lien] {
	return func(yield func(*Lien) bool) {
		for _, n := range l.liens.All() {
			if !yield(n) {
				return
			}
		}
	}
}

// BucketsOf yields an account's own buckets that have credits available, in spending order. The
// caller must not change them.
func (l *Ledger) BucketsOf(owner PayerID) iter.Seq[*Bucket] {
	return func(yield func(*Bucket) bool) {
		for k := range l.spend.From(spendKey{owner: owner, priority: -1 << 31}) {
			if k.owner != owner {
				return
			}
			if b, _ := l.buckets.Get(k.id); !yield(b) {
				return
			}
		}
	}
}

// Usable reports whether new liens may use a bucket: from Effective until before Expires.
func (b *Bucket) Usable(now cluster.Instant) bool { return b.valid(now) }
