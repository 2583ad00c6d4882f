package accounting

import (
	"slices"

	"github.com/greylag/greylag/pkg/cluster"
)

// sweepAtOnce bounds how many buckets one command lets expire.
const sweepAtOnce = 1000

// expiryKey orders buckets by when they expire.
type expiryKey struct {
	at cluster.Instant
	id BucketID
}

// partKey is a lien that holds from a bucket that cuts off.
type partKey struct {
	bucket BucketID
	lien   LienID
}

// sweep books the expiry of buckets that are over, oldest first, as effective when they
// were: no bucket is used after its expiry even where the sweep is behind. What liens
// hold stays theirs, but for buckets that cut off.
func (l *Ledger) sweep() {
	for range sweepAtOnce {
		k, _, found := l.expiry.First()
		if !found || k.at > l.now {
			return
		}
		l.expiry.Delete(k)
		l.about = about{effective: k.at}
		was, _ := l.buckets.Get(k.id)
		b := *was
		x := b.Avail
		b.Avail, b.Expired = 0, b.Expired+x
		l.book(Expired, inBucket(b.ID), BookAccount{Kind: Breakage}, x)
		l.keep(&b)
		if b.Cutoff {
			l.cutOff(b.ID)
		}
	}
}

// cutOff lets expire what liens hold of a bucket beyond what is due, and holds the same
// from the next buckets as far as there are any: a shortage only means that the lien
// lasts less long.
func (l *Ledger) cutOff(id BucketID) {
	var liens []LienID
	for k := range l.onParts.From(partKey{bucket: id}) {
		if k.bucket != id {
			break
		}
		liens = append(liens, k.lien)
	}
	for _, lien := range liens {
		l.about.lien = lien
		was, _ := l.liens.Get(lien)
		n := was.copied()
		var r Receipt
		l.due(&n, &r)
		x := l.drop(&n, id)
		// Held for less already: no budget is asked again.
		from, got := l.sources(&n, x)
		l.hold(&n, from, got)
		n.Amount -= x - got
		l.onParts.Delete(partKey{id, lien})
		l.liens.Set(lien, &n)
	}
}

// drop releases what a lien holds of one bucket.
func (l *Ledger) drop(n *Lien, id BucketID) (dropped Credits) {
	was, _ := l.buckets.Get(id)
	b := *was
	for i := range n.Parts {
		if p := &n.Parts[i]; p.Bucket == id && p.Held > 0 {
			dropped += p.Held
			p.Held = 0
		}
	}
	n.Parts = slices.DeleteFunc(n.Parts, func(p Part) bool { return p.Bucket == id && p.Held+p.Spent == 0 })
	b.Held -= dropped
	l.book(Released, heldFrom(id), inBucket(id), dropped)
	l.giveBack(&b, dropped)
	l.keep(&b)
	l.post(n.Chain, change{held: -dropped})
	return dropped
}
