package accounting

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/greylag/greylag/internal/cow"
	"github.com/greylag/greylag/pkg/cluster"
)

// keyRetention is how long the outcome of a key is remembered.
const keyRetention = 32 * 24 * time.Hour

// maxKey bounds a key, in bytes.
const maxKey = 128

// Ledger is all credits of a cluster. It has one writer at a time; a clone may be read
// by others meanwhile.
type Ledger struct {
	now     cluster.Instant
	seq     uint64
	head    Hash
	closed  cluster.Instant // everything before it is in closed periods
	bucket  BucketID        // the newest
	entries []Entry         // of the commands since Drain
	about   about
	tables
}

type none = struct{}

// tables hold values that are replaced and never written to.
type tables struct {
	nodes   cow.Map[NodeID, *Node]
	buckets cow.Map[BucketID, *Bucket]
	liens   cow.Map[LienID, *Lien]
	prices  cow.Map[priceKey, Credits]
	codes   cow.Map[string, int64] // redemptions of promotion codes
	keys    cow.Map[string, outcome]
	closes  cow.Map[string, Closing]

	// Indexes.
	spend   cow.Map[spendKey, none]  // buckets with something available
	expiry  cow.Map[expiryKey, none] // buckets whose expiry is not swept yet
	onParts cow.Map[partKey, none]   // liens that hold from buckets that cut off
	debtors cow.Map[NodeID, none]
	aging   cow.Map[agingKey, none] // keys by when they were used
}

// outcome is what a key led to.
type outcome struct {
	payload Hash
	receipt Receipt
	err     error
	at      cluster.Instant
}

type agingKey struct {
	at  cluster.Instant
	key string
}

// New is a ledger without anything.
func New() *Ledger {
	return &Ledger{tables: tables{
		nodes:   cow.New[NodeID, *Node](cmp.Compare[NodeID]),
		buckets: cow.New[BucketID, *Bucket](cmp.Compare[BucketID]),
		liens:   cow.New[LienID, *Lien](compareLiens),
		prices:  cow.New[priceKey, Credits](comparePrices),
		codes:   cow.New[string, int64](cmp.Compare[string]),
		keys:    cow.New[string, outcome](cmp.Compare[string]),
		closes:  cow.New[string, Closing](cmp.Compare[string]),
		spend:   cow.New[spendKey, none](compareSpend),
		expiry: cow.New[expiryKey, none](func(a, b expiryKey) int {
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id))
		}),
		onParts: cow.New[partKey, none](func(a, b partKey) int {
			return cmp.Or(cmp.Compare(a.bucket, b.bucket), compareLiens(a.lien, b.lien))
		}),
		debtors: cow.New[NodeID, none](cmp.Compare[NodeID]),
		aging: cow.New[agingKey, none](func(a, b agingKey) int {
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.key, b.key))
		}),
	}}
}

// Clone is the ledger as it is now; neither sees what is done to the other. O(1), but
// for entries that were not drained.
func (l *Ledger) Clone() *Ledger {
	c := *l
	c.entries = append([]Entry(nil), l.entries...)
	c.nodes, c.buckets, c.liens = l.nodes.Clone(), l.buckets.Clone(), l.liens.Clone()
	c.prices, c.codes, c.keys = l.prices.Clone(), l.codes.Clone(), l.keys.Clone()
	c.closes, c.spend, c.expiry = l.closes.Clone(), l.spend.Clone(), l.expiry.Clone()
	c.onParts, c.debtors, c.aging = l.onParts.Clone(), l.debtors.Clone(), l.aging.Clone()
	return &c
}

// Drain hands out the entries since the last call, oldest first.
func (l *Ledger) Drain() []Entry {
	e := l.entries
	l.entries = nil
	return e
}

// Head is the sequence number and the hash of the newest entry.
func (l *Ledger) Head() (uint64, Hash) { return l.seq, l.head }

// Now is the instant of the newest command.
func (l *Ledger) Now() cluster.Instant { return l.now }

// Stamp is what every command carries.
type Stamp struct {
	At  cluster.Instant // the leader's; the ledger's time never goes back
	Key string          // the same key again changes nothing
}

// Receipt is what a command did. Which fields are set depends on the command.
type Receipt struct {
	Again    bool // the key was used before; this is its first receipt
	Bucket   BucketID
	Lien     LienID
	Held     Credits // set aside
	Charged  Credits // moved to revenue
	Released Credits
	Returned Credits // refunded
	Debt     Credits // made by this command
	Repaid   Credits // debt netted by this command
	Warnings []Warning
}

// Warning is a soft budget that is exceeded.
type Warning struct {
	Node  NodeID
	Used  Credits // held, spent and owed, with what was just set aside
	Limit Credits
}

// once does a command unless its key was used before. Refusals that depend on the
// ledger are remembered like successes.
func (l *Ledger) once(s Stamp, payload any, do func() (Receipt, error)) (Receipt, error) {
	if s.Key == "" || len(s.Key) > maxKey {
		return Receipt{}, fmt.Errorf("%w: a key has 1 to %d bytes", ErrInvalid, maxKey)
	}
	print := Hash(sha256.Sum256(fmt.Appendf(nil, "%#v", payload)))
	if was, known := l.keys.Get(s.Key); known {
		if was.payload != print {
			return Receipt{}, fmt.Errorf("%w: %s", ErrKey, s.Key)
		}
		was.receipt.Again = true
		return was.receipt, was.err
	}
	l.advance(s)
	r, err := do()
	l.about = about{}
	if err != nil && fresh(err) {
		return Receipt{}, err
	}
	l.keys.Set(s.Key, outcome{print, r, err, l.now})
	l.aging.Set(agingKey{l.now, s.Key}, none{})
	return r, err
}

// advance moves time on, never back, and lets expire what is due.
func (l *Ledger) advance(s Stamp) {
	l.now = max(l.now+1, s.At)
	l.sweep()
	l.about = about{key: s.Key}
	for range sweepAtOnce {
		old, _, found := l.aging.First()
		if !found || l.now.Sub(old.at) <= keyRetention {
			return
		}
		l.aging.Delete(old)
		l.keys.Delete(old.key)
	}
}

// Advance moves time on without a command: what is due expires, at most 1,000 buckets.
func (l *Ledger) Advance(at cluster.Instant) {
	l.advance(Stamp{At: at})
	l.about = about{}
}

// Closing is a closed period: the chain's head when it was closed.
type Closing struct {
	Name string
	End  cluster.Instant // exclusive
	Seq  uint64
	Head Hash
}

// ClosePeriod closes everything before end. Facts that come later are booked when
// they come, marked late. A period ends after the one before, and not in the future.
func (l *Ledger) ClosePeriod(s Stamp, name string, end cluster.Instant) (Closing, error) {
	if name == "" {
		return Closing{}, fmt.Errorf("%w: a period needs a name", ErrInvalid)
	}
	_, err := l.once(s, Closing{Name: name, End: end}, func() (Receipt, error) {
		if end <= l.closed || end > l.now || l.closes.Has(name) {
			return Receipt{}, fmt.Errorf("%w: %s", ErrPeriod, name)
		}
		l.closed = end
		l.closes.Set(name, Closing{name, end, l.seq, l.head})
		return Receipt{}, nil
	})
	c, _ := l.closes.Get(name)
	return c, err
}
