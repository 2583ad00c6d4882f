package accounting

import (
	"cmp"
	"slices"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// sweepAtOnce bounds the number of bucket expiries that one command books.
const sweepAtOnce = 1000

// dueKey orders buckets by their next start or expiry; prices, which have no number, by their
// start.
type dueKey struct {
	at cluster.Instant
	id BucketID
}

func compareDue(a, b dueKey) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id)) }

// partKey is a lien that holds credits of a bucket with cut-off.
type partKey struct {
	bucket BucketID
	lien   LienID
}

func comparePartKeys(a, b partKey) int {
	return cmp.Or(cmp.Compare(a.bucket, b.bucket), CompareLiens(a.lien, b.lien))
}

// NextDue returns when a bucket next starts or expires or a price starts, [cluster.Never] when none
// does. It may be in the past. O(log n).
func (l *Ledger) NextDue() cluster.Instant {
	if k, _, found := l.due.First(); found {
		return k.at
	}
	return cluster.Never
}

// sweep processes bucket events that are due, oldest first: buckets that start repay debts of their
// owners, and expiries are booked as effective at their time. No bucket is used after its expiry
// even if the sweep lags. Liens keep what they hold, except from buckets with cut-off.
func (l *Ledger) sweep() {
	for range sweepAtOnce {
		k, _, found := l.due.First()
		if !found || k.at > l.now {
			return
		}
		l.due.Delete(k)
		if k.id == 0 {
			l.free(Freed{})
			continue
		}
		b := l.ownBucket(k.id)
		l.about = about{effective: k.at, node: b.Owner[0]}
		if k.at != b.Expires {
			b.waits = false
			l.repay(b)
			l.noteBucket(b)
			continue
		}
		x := b.Avail
		b.Avail, b.Expired, b.swept = 0, b.Expired+x, true
		l.book(Expired, inBucket(b.ID), BookAccount{Kind: Breakage}, x)
		l.noteBucket(b)
		if b.Cutoff {
			l.cutOff(b.ID, k.at)
		}
	}
}

// cutOff expires the part of a bucket that liens hold and had not consumed at its expiry, measured
// by the log's time: counters lag, and the final bill is the interval in the log. The consumed part
// stays held. The rest is replaced from the next buckets as far as possible; a lien that gets less
// is cut short. O(liens on the bucket × their parts).
func (l *Ledger) cutOff(id BucketID, expired cluster.Instant) {
	var liens []LienID
	for k := range l.onParts.From(partKey{bucket: id}) {
		if k.bucket != id {
			break
		}
		liens = append(liens, k.lien)
	}
	for _, lien := range liens {
		was, _ := l.liens.Get(lien)
		n := was.copied()
		l.about.of(&n)
		x := l.drop(&n, id, l.unpaid(&n, expired))
		// The amount is already counted in the budgets, so none is checked again.
		from, got := l.sources(&n, l.above(n.payer()), x)
		l.hold(&n, from, got)
		n.Amount -= x - got
		n.CutShort = n.CutShort || got < x
		l.putLien(&n)
	}
}

// unpaid returns the uncharged amount of an open lien's segments at an instant; 0 if its attempt is
// not running. O(segments + log n).
func (l *Ledger) unpaid(n *Lien, at cluster.Instant) Credits {
	if len(n.Segments) == 0 {
		return 0
	}
	x := l.outlook(n, at)
	_, spent, _ := n.sum()
	lasted := max(0, at.Sub(x.Segments[len(x.Segments)-1].Since)) + time.Millisecond - 1
	return max(0, x.cost(lasted.Milliseconds())-(spent-n.Adjusted))
}

// unmark removes the index entry of a lien that holds nothing from a bucket any more.
func (l *Ledger) unmark(n *Lien, b *Bucket) {
	if b.Cutoff && !slices.ContainsFunc(n.Parts, func(p Part) bool { return p.Bucket == b.ID && p.Held > 0 }) {
		l.onParts.Delete(partKey{b.ID, n.ID})
	}
}

// drop releases what a lien holds of one bucket beyond the due amount, which the parts pay in their
// order.
func (l *Ledger) drop(n *Lien, id BucketID, due Credits) (dropped Credits) {
	b := l.ownBucket(id)
	for i := range n.Parts {
		p := &n.Parts[i]
		keep := min(p.Held, due)
		due -= keep
		if p.Bucket == id {
			dropped += p.Held - keep
			p.Held = keep
		}
	}
	n.Parts = slices.DeleteFunc(n.Parts, func(p Part) bool { return p.Bucket == id && p.Held+p.Spent == 0 })
	b.Held -= dropped
	l.unmark(n, b)
	l.book(Released, heldFrom(id), inBucket(id), dropped)
	l.giveBack(b, dropped)
	l.noteBucket(b)
	l.post(n.payer(), change{held: -dropped})
	return dropped
}
