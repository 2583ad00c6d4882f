package accounting

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/greylag/greylag/pkg/cluster"
)

// BucketID numbers buckets from 1 in the order they were granted.
type BucketID uint64

// Class is where the credits of a bucket came from. The order is that of spending.
type Class uint8

// The classes.
const (
	Promo Class = iota + 1
	GrantClass
	RefundClass
	Purchase
)

// Scope narrows what a bucket may pay. Empty lists allow everything.
type Scope struct {
	GPUTypes   []string // every type that the job accepts must be here
	Partitions []string
	QOS        []string
	Permille   int64   // most it may pay of one lien; 0 for all of it
	PerJob     Credits // most it may pay of one lien; 0 for no bound
}

// Grant is the making of a bucket.
type Grant struct {
	Owner     Chain // the owner first
	Class     Class
	Amount    Credits
	Effective cluster.Instant // 0: now
	Expires   cluster.Instant // exclusive; 0: never
	Priority  int32           // lower is spent first
	Scope     Scope
	Cutoff    bool   // what liens hold of it expires with it; else they keep it
	Code      string // of a promotion; "" for none
	Redeems   int64  // how many grants the code is good for
}

// Bucket is a grant and what became of it: Amount = Avail + Held + Spent + Expired + Void.
type Bucket struct {
	ID BucketID
	Grant
	Avail, Held, Spent, Expired, Void Credits
	Voided                            bool
}

// valid reports whether new liens may use the bucket: from Effective until before
// Expires. An expiry holds whether or not it was swept yet.
func (b *Bucket) valid(now cluster.Instant) bool {
	return !b.Voided && b.Effective <= now && !b.over(now)
}

func (b *Bucket) over(now cluster.Instant) bool { return b.Expires != 0 && now >= b.Expires }

// spendKey is the order of spending among the buckets of one owner.
type spendKey struct {
	owner     NodeID
	priority  int32
	expires   cluster.Instant // Never for those that do not
	class     Class
	effective cluster.Instant
	id        BucketID
}

func (b *Bucket) spendKey() spendKey {
	expires := b.Expires
	if expires == 0 {
		expires = cluster.Never
	}
	return spendKey{b.Owner[0], b.Priority, expires, b.Class, b.Effective, b.ID}
}

func compareSpend(a, b spendKey) int {
	return cmp.Or(cmp.Compare(a.owner, b.owner), cmp.Compare(a.priority, b.priority),
		cmp.Compare(a.expires, b.expires), cmp.Compare(a.class, b.class),
		cmp.Compare(a.effective, b.effective), cmp.Compare(a.id, b.id))
}

// Bucket finds a bucket. O(log n).
func (l *Ledger) Bucket(id BucketID) (Bucket, bool) {
	b, found := l.buckets.Get(id)
	if !found {
		return Bucket{}, false
	}
	return *b, true
}

// Grant makes a bucket. An unscoped one first pays what its owner and those below owe.
func (l *Ledger) Grant(s Stamp, g Grant) (Receipt, error) {
	return l.once(s, g, func() (Receipt, error) {
		if err := l.grantable(&g); err != nil {
			return Receipt{}, err
		}
		if g.Code != "" {
			n, _ := l.codes.Get(g.Code)
			if n >= g.Redeems {
				return Receipt{}, fmt.Errorf("%w: %s", ErrExhausted, g.Code)
			}
			l.codes.Set(g.Code, n+1)
		}
		if g.Effective == 0 {
			g.Effective = l.now
		}
		g.Owner = slices.Clone(g.Owner)
		l.open(g.Owner)
		l.bucket++
		b := Bucket{ID: l.bucket, Grant: g, Avail: g.Amount}
		from := External
		if g.Class != Purchase {
			from = Promotion
		}
		l.book(Granted, BookAccount{Kind: from}, inBucket(b.ID), g.Amount)
		if b.Expires != 0 {
			l.expiry.Set(expiryKey{b.Expires, b.ID}, none{})
		}
		l.keep(&b)
		return Receipt{Bucket: b.ID, Repaid: l.repay(b.ID)}, nil
	})
}

func (l *Ledger) grantable(g *Grant) error {
	switch {
	case !usable(g.Amount):
		return fmt.Errorf("%w: a grant of %s, want more than 0 and at most %s", ErrAmount, g.Amount, MaxAmount)
	case g.Scope.Permille < 0 || g.Scope.Permille > 1000 || g.Scope.PerJob < 0 || g.Scope.PerJob > MaxAmount:
		return fmt.Errorf("%w: the most that a bucket may pay of one job", ErrAmount)
	case g.Class < Promo || g.Class > Purchase:
		return fmt.Errorf("%w: class %d", ErrInvalid, g.Class)
	case g.Expires != 0 && (g.Expires <= g.Effective || g.Expires <= l.now):
		return fmt.Errorf("%w: the bucket expires before it can be used", ErrInvalid)
	case g.Code != "" && g.Redeems < 1:
		return fmt.Errorf("%w: code %s may be redeemed %d times", ErrInvalid, g.Code, g.Redeems)
	}
	return l.known(g.Owner)
}

// keep stores a bucket that was written, and keeps the order of spending with it.
func (l *Ledger) keep(b *Bucket) {
	l.buckets.Set(b.ID, b)
	if b.Avail > 0 {
		l.spend.Set(b.spendKey(), none{})
	} else {
		l.spend.Delete(b.spendKey())
	}
}

// repay nets what the owner of a bucket and those below it owe, by name.
func (l *Ledger) repay(id BucketID) (paid Credits) {
	was, _ := l.buckets.Get(id)
	if !was.valid(l.now) || was.scoped() {
		return 0
	}
	b := *was
	var owing []NodeID
	for debtor := range l.debtors.All() {
		if slices.Contains(l.above(debtor), b.Owner[0]) {
			owing = append(owing, debtor)
		}
	}
	for _, debtor := range owing {
		n, _ := l.nodes.Get(debtor)
		x := min(b.Avail, n.Owes)
		if x == 0 {
			continue
		}
		b.Avail, b.Spent, paid = b.Avail-x, b.Spent+x, paid+x
		l.book(Repaid, inBucket(id), BookAccount{Kind: Owed, Node: debtor}, x)
		l.post(l.above(debtor), change{spent: x, debt: -x})
	}
	l.keep(&b)
	return paid
}

func (b *Bucket) scoped() bool {
	s := &b.Scope
	return len(s.GPUTypes)+len(s.Partitions)+len(s.QOS) > 0 || s.Permille > 0 || s.PerJob > 0
}

// Void ends a bucket: what is available is taken back now, what liens hold when they
// release it. What was spent stays.
func (l *Ledger) Void(s Stamp, id BucketID) (Receipt, error) {
	return l.once(s, id, func() (Receipt, error) {
		was, found := l.buckets.Get(id)
		if !found {
			return Receipt{}, fmt.Errorf("%w: %d", ErrNoBucket, id)
		}
		b := *was
		b.Voided = true
		taken := b.Avail
		b.Avail, b.Void = 0, b.Void+taken
		l.book(Taken, inBucket(id), BookAccount{Kind: Voided}, taken)
		l.keep(&b)
		return Receipt{Bucket: id, Released: taken}, nil
	})
}

// pays reports how much a bucket may put into a lien at most, besides what it did.
func (b *Bucket) pays(n *Lien) Credits {
	s := &b.Scope
	if !within(s.Partitions, n.Partition) || !within(s.QOS, n.QOS) {
		return 0
	}
	for _, r := range n.Rates {
		if !within(s.GPUTypes, r.GPUType) {
			return 0
		}
	}
	most := b.Avail
	if s.PerJob == 0 && s.Permille == 0 {
		return most
	}
	put := Credits(0)
	for _, p := range n.Parts {
		if p.Bucket == b.ID {
			put += p.Held + p.Spent - p.Refunded
		}
	}
	if s.PerJob > 0 {
		most = min(most, s.PerJob-put)
	}
	if s.Permille > 0 {
		most = min(most, permille(n.Amount, s.Permille)-put)
	}
	return max(0, most)
}

func within(allowed []string, what string) bool {
	return len(allowed) == 0 || slices.Contains(allowed, what)
}

// source is a bucket and how much of it.
type source struct {
	bucket BucketID
	amount Credits
}

// sources chooses buckets for an amount in the order of spending, a user's own before
// the project's and those before the organisation's where all else is equal. got is
// how much they come to, at most the amount. O(buckets used × depth).
func (l *Ledger) sources(n *Lien, amount Credits) (chosen []source, got Credits) {
	type candidate struct {
		spendKey
		depth int
		pays  Credits
	}
	var all []candidate
	for depth, owner := range n.Chain {
		sum := Credits(0)
		for k := range l.spend.From(spendKey{owner: owner, priority: -1 << 31}) {
			if k.owner != owner || sum >= amount {
				break
			}
			b, _ := l.buckets.Get(k.id)
			if !b.valid(l.now) {
				continue
			}
			if pays := b.pays(n); pays > 0 {
				all = append(all, candidate{k, depth, pays})
				sum += pays
			}
		}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.expires, b.expires),
			cmp.Compare(a.class, b.class), cmp.Compare(a.effective, b.effective),
			cmp.Compare(a.depth, b.depth), cmp.Compare(a.id, b.id))
	})
	for _, c := range all {
		if x := min(c.pays, amount-got); x > 0 {
			chosen, got = append(chosen, source{c.id, x}), got+x
		}
	}
	return chosen, got
}

func inBucket(id BucketID) BookAccount { return BookAccount{Kind: InBucket, Bucket: id} }
func heldFrom(id BucketID) BookAccount { return BookAccount{Kind: HeldFrom, Bucket: id} }

// giveBack puts credits into a bucket's available ones, and on to where they belong
// when the bucket is over or was voided.
func (l *Ledger) giveBack(b *Bucket, x Credits) {
	switch {
	case b.Voided:
		b.Void += x
		l.book(Taken, inBucket(b.ID), BookAccount{Kind: Voided}, x)
	case b.over(l.now):
		b.Expired += x
		l.book(Expired, inBucket(b.ID), BookAccount{Kind: Breakage}, x)
	default:
		b.Avail += x
	}
}
