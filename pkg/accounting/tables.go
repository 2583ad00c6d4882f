package accounting

import (
	"cmp"
	"strings"

	"github.com/greylag/greylag/internal/cow"
	"github.com/greylag/greylag/pkg/cluster"
)

type none = struct{}

// tables hold values that are replaced once a clone may share them. Until then accounts and buckets
// are changed in place. Liens never are, since callers keep pointers to them.
type tables struct {
	nodes   cow.Map[PayerID, *Payer]
	buckets cow.Map[BucketID, *Bucket]
	liens   cow.Map[LienID, *Lien]
	prices  cow.Map[priceKey, Credits]
	codes   cow.Map[string, int64]  // redemptions of promotion codes
	keys    cow.Map[string, string] // encoded outcomes
	closes  cow.Map[string, Closing]

	// Indexes.
	spend   cow.Map[spendKey, none] // buckets with credits available
	due     cow.Map[dueKey, none]   // buckets by their next start or expiry
	onParts cow.Map[partKey, none]  // liens that hold from buckets with cut-off
	debtors cow.Map[PayerID, none]
	ended   cow.Map[endedKey, none] // liens that ended
	aging   cow.Map[agingKey, none] // keys by time of use
}

// endedKey orders ended liens by their end, the provisional ones first.
type endedKey struct {
	final bool
	at    cluster.Instant
	lien  LienID
}

func compareEnded(a, b endedKey) int {
	if a.final != b.final {
		if b.final {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.at, b.at), CompareLiens(a.lien, b.lien))
}

func compareAging(a, b agingKey) int {
	return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.key, b.key))
}

func compareNodes(a, b PayerID) int { return strings.Compare(string(a), string(b)) }

func newTables() tables {
	return tables{
		nodes:   cow.New[PayerID, *Payer](compareNodes),
		buckets: cow.New[BucketID, *Bucket](cmp.Compare[BucketID]),
		liens:   cow.New[LienID, *Lien](CompareLiens),
		prices:  cow.New[priceKey, Credits](comparePrices),
		codes:   cow.New[string, int64](strings.Compare),
		keys:    cow.New[string, string](strings.Compare),
		closes:  cow.New[string, Closing](strings.Compare),
		spend:   cow.New[spendKey, none](compareSpend),
		due:     cow.New[dueKey, none](compareDue),
		onParts: cow.New[partKey, none](comparePartKeys),
		debtors: cow.New[PayerID, none](compareNodes),
		ended:   cow.New[endedKey, none](compareEnded),
		aging:   cow.New[agingKey, none](compareAging),
	}
}

// clone returns a copy of the tables. O(1).
func (t *tables) clone() tables {
	return tables{
		nodes: t.nodes.Clone(), buckets: t.buckets.Clone(), liens: t.liens.Clone(),
		prices: t.prices.Clone(), codes: t.codes.Clone(), keys: t.keys.Clone(), closes: t.closes.Clone(),
		spend: t.spend.Clone(), due: t.due.Clone(), onParts: t.onParts.Clone(),
		debtors: t.debtors.Clone(), ended: t.ended.Clone(), aging: t.aging.Clone(),
	}
}

// ownNode returns an existing account, to be changed and stored. It is copied first if a clone may
// share it.
func (l *Ledger) ownNode(id PayerID) *Payer {
	n, _ := l.nodes.Get(id)
	if n.epoch != l.epoch {
		c := *n
		n = &c
		l.putNode(id, n)
	}
	return n
}

// ownBucket returns an existing bucket, likewise.
func (l *Ledger) ownBucket(id BucketID) *Bucket {
	b, _ := l.buckets.Get(id)
	if b.epoch != l.epoch {
		c := *b
		b = &c
		l.putBucket(b)
	}
	return b
}

// The following functions keep the digest and the indexes in step with a record. The record to
// store is new or a copy of the one it replaces, including its hash.

func (l *Ledger) putNode(id PayerID, n *Payer) {
	n.epoch = l.epoch
	l.nodes.Set(id, n)
	l.noteNode(id, n)
}

func (l *Ledger) noteNode(id PayerID, n *Payer) {
	l.digest -= n.hashed
	n.hashed = n.hash(id)
	l.digest += n.hashed
}

func (l *Ledger) putBucket(b *Bucket) {
	b.epoch = l.epoch
	l.buckets.Set(b.ID, b)
	l.noteBucket(b)
}

// noteBucket also keeps the spending order, and records funds that became available.
func (l *Ledger) noteBucket(b *Bucket) {
	was := b.usable
	if b.usable = b.Avail; b.waits {
		b.usable = 0
	}
	if b.usable > was {
		l.free(Freed{b.Owner[0], true})
	}
	l.digest -= b.hashed
	b.hashed = b.hash()
	l.digest += b.hashed
	if there := b.Avail > 0; there != b.listed {
		b.listed = there
		if there {
			l.spend.Set(b.spendKey(), none{})
		} else {
			l.spend.Delete(b.spendKey())
		}
	}
}

func (l *Ledger) putLien(n *Lien) {
	l.digest -= n.hashed
	n.hashed = n.hash()
	l.digest += n.hashed
	l.liens.Set(n.ID, n)
}

func (l *Ledger) putPrice(k priceKey, price Credits) {
	if was, found := l.prices.Get(k); found {
		l.digest -= hashPrice(k, was)
	}
	l.digest += hashPrice(k, price)
	l.prices.Set(k, price)
}

func (l *Ledger) putCode(code string, redeemed int64) {
	if was, found := l.codes.Get(code); found {
		l.digest -= hashCode(code, was)
	}
	l.digest += hashCode(code, redeemed)
	l.codes.Set(code, redeemed)
}

func (l *Ledger) putClosing(c Closing) {
	l.digest += c.hash()
	l.closes.Set(c.Name, c)
}
