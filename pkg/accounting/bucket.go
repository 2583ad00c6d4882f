package accounting

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/cluster"
)

// BucketID numbers buckets from 1 in the order of their grants.
type BucketID uint64

// BucketClass is the origin of a bucket's credits, in spending order.
type BucketClass uint8

// The classes.
const (
	Promo BucketClass = iota + 1
	GrantClass
	RefundClass
	Purchase
)

// BucketScope limits what a bucket may pay for. Empty lists allow everything.
type BucketScope struct {
	GPUTypes   []string // must contain every type that the job accepts
	Partitions []string
	QOS        []string
	Permille   int64   // largest part of one lien; 0 for all of it
	PerJob     Credits // largest amount in one lien; 0 for no bound
}

// Grant is the request to create a bucket.
type Grant struct {
	Owner          PayerPath // the owner's path, leaf first; in a bucket only the owner
	Amount         Credits
	Effective      cluster.Instant // 0: now
	Expires        cluster.Instant // exclusive; 0: never
	Priority       int32           // lower values are spent first
	Class          BucketClass
	Cutoff         bool // credits held by liens expire with it; else liens keep them
	Scope          BucketScope
	Code           string // of a promotion; "" for none
	MaxRedemptions int64  // most grants of the code
}

// Bucket is a grant and its balances: Amount = Avail + Held + Spent + Expired + Void.
type Bucket struct {
	ID BucketID
	Grant
	Avail, Held, Spent, Expired, Void Credits
	Voided                            bool

	waits  bool    // not effective yet
	swept  bool    // its expiry was booked
	listed bool    // position in spending order
	usable Credits // the usable part of Avail, when last indexed
	terms  uint64  // hash of Grant
	epoch  uint64  // of the ledger, when it was stored
	hashed uint64  // in the digest
}

// valid reports whether new liens may use the bucket: from Effective until before Expires, even if
// the expiry was not booked yet.
func (b *Bucket) valid(now cluster.Instant) bool {
	return !b.Voided && b.Effective <= now && !b.HasExpired(now)
}

// HasExpired reports whether the bucket has expired, booked or not.
func (b *Bucket) HasExpired(now cluster.Instant) bool { return b.Expires != 0 && now >= b.Expires }

// spendKey is the spending order among the buckets of one owner.
type spendKey struct {
	owner     PayerID
	priority  int32
	expires   cluster.Instant // Never for those without expiry
	class     BucketClass
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
	if c := compareNodes(a.owner, b.owner); c != 0 {
		return c
	}
	return compareTurn(&a, &b)
}

// compareTurn compares buckets in spending order, ignoring owners except to break ties.
func compareTurn(a, b *spendKey) int {
	switch {
	case a.priority != b.priority:
		return cmp.Compare(a.priority, b.priority)
	case a.expires != b.expires:
		return cmp.Compare(a.expires, b.expires)
	case a.class != b.class:
		return cmp.Compare(a.class, b.class)
	case a.effective != b.effective:
		return cmp.Compare(a.effective, b.effective)
	}
	return cmp.Compare(a.id, b.id)
}

// Bucket finds a bucket. O(log n).
func (l *Ledger) Bucket(id BucketID) (Bucket, bool) {
	b, found := l.buckets.Get(id)
	if !found {
		return Bucket{}, false
	}
	return *b, true
}

// Grant creates a bucket. A bucket without scope first repays the debts of its owner and its
// descendants.
func (l *Ledger) Grant(s Stamp, g Grant) (Receipt, error) {
	return l.once(s, printOf(l, s, opGrant, &g, grantFields), func() (Receipt, error) {
		if err := l.grantable(&g); err != nil {
			return Receipt{}, err
		}
		if g.Code != "" {
			n, _ := l.codes.Get(g.Code)
			if n >= g.MaxRedemptions {
				return Receipt{}, fmt.Errorf("%w: %s", ErrExhausted, g.Code)
			}
			l.putCode(g.Code, n+1)
		}
		if g.Effective == 0 {
			g.Effective = l.now
		}
		l.open(g.Owner)
		from := External
		if g.Class != Purchase {
			from = Promotion
		}
		b := l.mint(g)
		l.about.node = g.Owner[0]
		l.bookBy(Granted, BookAccount{Kind: from}, inBucket(b.ID), g.Amount, Justification{Terms: &b.Grant})
		l.total += g.Amount
		l.repay(b)
		l.noteBucket(b)
		return Receipt{Bucket: b.ID}, nil
	})
}

// mint returns a new bucket with all its credits available, to be booked and stored.
func (l *Ledger) mint(g Grant) *Bucket {
	g.Owner = PayerPath{g.Owner[0]}
	l.bucket++
	if g.Expires != 0 {
		l.due.Set(dueKey{g.Expires, l.bucket}, none{})
	}
	waits := g.Effective > l.now
	if waits {
		l.due.Set(dueKey{g.Effective, l.bucket}, none{})
	}
	b := &Bucket{ID: l.bucket, Grant: g, Avail: g.Amount, waits: waits}
	l.putBucket(b)
	return b
}

func (l *Ledger) grantable(g *Grant) error {
	switch {
	case !usable(g.Amount):
		return fmt.Errorf("%w: a grant of %s, want more than 0 and at most %s", ErrAmount, g.Amount, MaxAmount)
	case g.Amount > maxTotal-l.total:
		return fmt.Errorf("%w: all credits of a cluster together may be %s", ErrAmount, maxTotal)
	case g.Class < Promo || g.Class > Purchase:
		return fmt.Errorf("%w: class %d", ErrInvalid, g.Class)
	case g.Effective < 0 || g.Expires < 0 || g.Expires != 0 && (g.Expires <= g.Effective || g.Expires <= l.now):
		return fmt.Errorf("%w: the bucket expires before it can be used", ErrInvalid)
	case g.Code != "" && g.MaxRedemptions < 1 || len(g.Code) > maxText:
		return fmt.Errorf("%w: code %.32q may be redeemed %d times", ErrInvalid, g.Code, g.MaxRedemptions)
	}
	if err := g.Scope.possible(); err != nil {
		return err
	}
	if err := l.known(g.Owner); err != nil {
		return err
	}
	return l.checkLive(g.Owner[0])
}

func (s *BucketScope) possible() error {
	if s.Permille < 0 || s.Permille > 1000 || s.PerJob < 0 || s.PerJob > MaxAmount {
		return fmt.Errorf("%w: the most that a bucket may pay of one job", ErrAmount)
	}
	for _, list := range [][]string{s.GPUTypes, s.Partitions, s.QOS} {
		if len(list) > maxList || slices.ContainsFunc(list, func(x string) bool { return x == "" || len(x) > maxText }) {
			return fmt.Errorf("%w: a scope lists at most %d names of 1 to %d bytes", ErrInvalid, maxList, maxText)
		}
	}
	return nil
}

// maxLive bounds the buckets of one owner that have credits available, and so the cost of choosing
// among them.
const maxLive = 1000

func (l *Ledger) checkLive(owner PayerID) error {
	live := 0
	for k := range l.spend.From(firstOf(owner)) {
		if k.owner != owner {
			break
		}
		if live++; live == maxLive {
			return fmt.Errorf("%w: account %s has %d buckets with credits", ErrInvalid, owner, maxLive)
		}
	}
	return nil
}

// firstOf sorts at or before every key of an owner.
func firstOf(owner PayerID) spendKey {
	return spendKey{owner: owner, priority: math.MinInt32, expires: math.MinInt64}
}

// repay pays the debts of a bucket's owner and its descendants, by name, from what is available in
// the caller's copy of the bucket. O(debtors × depth).
func (l *Ledger) repay(b *Bucket) {
	if l.debtors.Len() == 0 || !b.valid(l.now) || b.scoped() {
		return
	}
	var owing []PayerID
	for debtor := range l.debtors.All() {
		if slices.Contains(l.above(debtor), b.Owner[0]) {
			owing = append(owing, debtor)
		}
	}
	was := l.about
	for _, debtor := range owing {
		n, _ := l.nodes.Get(debtor)
		x := min(b.Avail, n.Owes)
		if x == 0 {
			continue
		}
		b.Avail, b.Spent, was.repaid = b.Avail-x, b.Spent+x, was.repaid+x
		l.about = about{node: debtor, effective: was.effective, key: was.key, note: was.note}
		l.bookBy(Repaid, inBucket(b.ID), BookAccount{Kind: Owed, Node: debtor}, x, Justification{For: &Purpose{Chain: l.above(debtor)}})
		l.post(debtor, change{spent: x, debt: -x, day: x, month: x})
	}
	l.about = was
}

func (b *Bucket) scoped() bool {
	s := &b.Scope
	return len(s.GPUTypes)+len(s.Partitions)+len(s.QOS) > 0 || s.Permille > 0 || s.PerJob > 0
}

// Void ends a bucket: available credits are withdrawn now, held ones when their liens release them.
// Spent credits stay spent.
func (l *Ledger) Void(s Stamp, id BucketID) (Receipt, error) {
	return l.once(s, printOf(l, s, opVoid, &id, codec.Uint), func() (Receipt, error) {
		if !l.buckets.Has(id) {
			return Receipt{}, fmt.Errorf("%w: %d", ErrNoBucket, id)
		}
		b := l.ownBucket(id)
		b.Voided = true
		taken := b.Avail
		l.about.node = b.Owner[0]
		b.Avail, b.Void = 0, b.Void+taken
		l.book(Taken, inBucket(id), BookAccount{Kind: Voided}, taken)
		l.noteBucket(b)
		return Receipt{Bucket: id, Released: taken}, nil
	})
}

// pays returns how much more a bucket may put into a lien.
func (b *Bucket) pays(n *Lien) Credits {
	s := &b.Scope
	if !s.covers(n) {
		return 0
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

// covers reports whether a scope includes everything that a lien may be, and is, spent for.
func (s *BucketScope) covers(n *Lien) bool {
	if len(s.GPUTypes)+len(s.Partitions)+len(s.QOS) == 0 {
		return true
	}
	for _, place := range n.places() {
		if !within(s.Partitions, place) {
			return false
		}
	}
	for _, r := range n.Rates {
		if !s.includes(r.GPUType) {
			return false
		}
	}
	for i := range n.Segments {
		for _, x := range n.Segments[i].Shares() {
			if !s.includes(x.Type) {
				return false
			}
		}
	}
	return within(s.QOS, n.QOS)
}

// PaysFor reports whether all that a lien holds may be spent for GPUs of a type.
func (l *Ledger) PaysFor(n *Lien, gpuType string) bool {
	for _, p := range n.Parts {
		if b, found := l.buckets.Get(p.Bucket); found && p.Held > 0 && !b.Scope.includes(gpuType) {
			return false
		}
	}
	return true
}

// includes reports whether the scope includes GPUs that are charged under a name.
func (s *BucketScope) includes(priced string) bool {
	return len(s.GPUTypes) == 0 || within(s.GPUTypes, cluster.TypeOfPriced(priced))
}

func within(allowed []string, what string) bool {
	return len(allowed) == 0 || slices.Contains(allowed, what)
}

// source is an amount from a bucket.
type source struct {
	bucket BucketID
	amount Credits
}

// sources chooses buckets of a path for an amount in spending order; where all else is equal, a
// user's before the project's and those before the organisation's. got is their sum, at most the
// amount. O(buckets used × depth).
func (l *Ledger) sources(n *Lien, chain PayerPath, amount Credits) (chosen []source, got Credits) {
	type candidate struct {
		spendKey
		depth int
		pays  Credits
	}
	var space [8]candidate
	all := space[:0]
	for depth, owner := range chain {
		sum := Credits(0)
		for k := range l.spend.From(firstOf(owner)) {
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
	if len(all) > 1 {
		slices.SortFunc(all, func(a, b candidate) int {
			return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.expires, b.expires),
				cmp.Compare(a.class, b.class), cmp.Compare(a.effective, b.effective),
				cmp.Compare(a.depth, b.depth), cmp.Compare(a.id, b.id))
		})
	}
	for _, c := range all {
		if x := min(c.pays, amount-got); x > 0 {
			chosen, got = append(chosen, source{c.id, x}), got+x
		}
	}
	return chosen, got
}

func inBucket(id BucketID) BookAccount { return BookAccount{Kind: InBucket, Bucket: id} }
func heldFrom(id BucketID) BookAccount { return BookAccount{Kind: HeldFrom, Bucket: id} }

// giveBack returns credits to a bucket, or books them as expired or void when the bucket is over,
// or repays debts of its owner.
func (l *Ledger) giveBack(b *Bucket, x Credits) {
	switch {
	case b.Voided:
		b.Void, l.about.lost = b.Void+x, l.about.lost+x
		l.book(Taken, inBucket(b.ID), BookAccount{Kind: Voided}, x)
	case b.HasExpired(l.now):
		b.Expired, l.about.lost = b.Expired+x, l.about.lost+x
		l.book(Expired, inBucket(b.ID), BookAccount{Kind: Breakage}, x)
	default:
		b.Avail += x
		l.repay(b)
	}
}
