package accounting

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// The oracle does what the ledger does in the plainest way: it keeps a list of every
// movement of money and adds it up each time that it wants to know anything. It shares
// no code with the engine but for the types of commands and the sentinels.

type movement struct {
	from, to string // source, avail, held, revenue, gone, debt
	bucket   BucketID
	lien     LienID
	part     int
	node     NodeID
	amount   int64
	at       cluster.Instant
	ended    cluster.Instant // of a refund: when the attempt had ended
}

type oracleBucket struct {
	Grant
	id             BucketID
	waits, expired bool
	voided         bool
}

type oracleLien struct {
	Claim
	state    LienState
	ended    cluster.Instant
	parts    []oraclePart
	numbered int // parts so far
	segments []Segment
	adjusted int64
}

// oraclePart is what a lien has of one bucket. Its number stays when others go.
type oraclePart struct {
	bucket BucketID
	number int
}

func (n *oracleLien) add(id BucketID) int {
	n.numbered++
	n.parts = append(n.parts, oraclePart{id, n.numbered})
	return n.numbered
}

type oracleNode struct {
	parent NodeID
	budget Budget
	since  int // movements before it do not count for the window
}

type oracleKey struct {
	payload string
	at      cluster.Instant
	receipt Receipt
	why     *want
}

// want is a refusal.
type want struct {
	why                    error
	node                   NodeID
	need, available, limit int64
}

type oracle struct {
	now       cluster.Instant
	movements []movement
	buckets   []*oracleBucket
	liens     map[LienID]*oracleLien
	nodes     map[NodeID]*oracleNode
	keys      map[string]oracleKey
	codes     map[string]int64
	prices    []priceSet
	closed    cluster.Instant
	periods   map[string]bool
	repaid    int64 // by the command under way
}

type priceSet struct {
	Rate
	from cluster.Instant
}

func newOracle() *oracle {
	return &oracle{
		liens: map[LienID]*oracleLien{}, nodes: map[NodeID]*oracleNode{}, keys: map[string]oracleKey{},
		codes: map[string]int64{}, periods: map[string]bool{},
	}
}

// total adds up what went to a place less what left it, of the movements that count.
func (o *oracle) total(place string, counts func(*movement) bool) (sum int64) {
	for i := range o.movements {
		m := &o.movements[i]
		if !counts(m) {
			continue
		}
		if m.to == place {
			sum += m.amount
		}
		if m.from == place {
			sum -= m.amount
		}
	}
	return sum
}

func (o *oracle) inBucket(id BucketID, place string) int64 {
	return o.total(place, func(m *movement) bool { return m.bucket == id })
}

// inPart is what one part of a lien has at a place. Revenue is net of refunds.
func (o *oracle) inPart(id LienID, part int, place string) int64 {
	return o.total(place, func(m *movement) bool { return m.lien == id && m.part == part })
}

// inLien is what a lien has at a place.
func (o *oracle) inLien(id LienID, place string) int64 {
	return o.total(place, func(m *movement) bool { return m.lien == id })
}

// refunded is what came back of a part, or of a lien when part is negative.
func (o *oracle) refunded(id LienID, part int) (sum int64) {
	for _, m := range o.movements {
		if m.lien == id && (part < 0 || m.part == part) && m.from == "revenue" {
			sum += m.amount
		}
	}
	return sum
}

// below reports whether an account is another one or below it.
func (o *oracle) below(id, top NodeID) bool {
	for id != "" {
		if id == top {
			return true
		}
		n, found := o.nodes[id]
		if !found {
			return false
		}
		id = n.parent
	}
	return false
}

// sums are an account's held, spent, owed and own debt.
func (o *oracle) sums(id NodeID) (held, spent, debt, owes int64) {
	here := func(m *movement) bool { return o.below(m.node, id) }
	held = o.total("held", here)
	owes = -o.total("debt", func(m *movement) bool { return m.node == id })
	debt = -o.total("debt", here)
	// What was charged and is not owed was paid, now or since.
	spent = o.total("revenue", here) - debt
	return held, spent, debt, owes
}

// used is what counts against an account's budget.
func (o *oracle) used(id NodeID) int64 {
	held, spent, debt, _ := o.sums(id)
	n := o.nodes[id]
	if n == nil || n.budget.Window == Ever {
		return held + spent + debt
	}
	var period int64
	begin := startOf(n.budget.Window, o.now)
	for _, m := range o.movements[n.since:] {
		if m.at < begin || !o.below(m.node, id) {
			continue
		}
		var paid int64
		switch {
		case m.to == "revenue" && m.from != "debt", m.to == "debt" && m.from == "avail":
			paid = m.amount
		case m.from == "revenue" && m.to != "debt" && (m.ended == 0 || m.ended >= begin):
			paid = -m.amount
		}
		period = max(0, period+paid)
	}
	return held + period + debt
}

func startOf(w Window, at cluster.Instant) cluster.Instant {
	t := time.Unix(0, int64(at)).UTC()
	day := t.Day()
	if w == Monthly {
		day = 1
	}
	return cluster.Instant(time.Date(t.Year(), t.Month(), day, 0, 0, 0, 0, time.UTC).UnixNano())
}

func (o *oracle) move(m movement) {
	if m.amount == 0 {
		return
	}
	if m.amount < 0 {
		panic(fmt.Sprintf("the oracle moves %+v", m))
	}
	m.at = o.now
	o.movements = append(o.movements, m)
}

func (o *oracle) bucket(id BucketID) *oracleBucket { return o.buckets[id-1] }

func (o *oracle) valid(b *oracleBucket) bool {
	return !b.voided && b.Effective <= o.now && (b.Expires == 0 || o.now < b.Expires)
}

// arrive is credits that come into a bucket from a lien: they go where they belong.
func (o *oracle) arrive(b *oracleBucket, amount int64) {
	switch {
	case b.voided, b.Expires != 0 && o.now >= b.Expires:
		o.move(movement{from: "avail", to: "gone", bucket: b.id, amount: amount})
	default:
		o.repay(b)
	}
}

// repay pays the debts at and below a bucket's owner from what it has.
func (o *oracle) repay(b *oracleBucket) {
	s := b.Scope
	if !o.valid(b) || len(s.GPUTypes)+len(s.Partitions)+len(s.QOS) > 0 || s.Permille != 0 || s.PerJob != 0 {
		return
	}
	var names []NodeID
	for id := range o.nodes {
		if o.below(id, b.Owner[0]) {
			names = append(names, id)
		}
	}
	slices.Sort(names)
	for _, id := range names {
		_, _, _, owes := o.sums(id)
		x := min(owes, o.inBucket(b.id, "avail"))
		o.move(movement{from: "avail", to: "debt", bucket: b.id, node: id, amount: x})
		o.repaid += x
	}
}

// choose finds buckets for an amount in the order of spending.
func (o *oracle) choose(n *oracleLien, amount int64) (ids []BucketID, sums []int64, got int64) {
	type candidate struct {
		b     *oracleBucket
		depth int
	}
	var all []candidate
	for _, b := range o.buckets {
		if depth := slices.Index(n.Chain, b.Owner[0]); depth >= 0 && o.valid(b) {
			all = append(all, candidate{b, depth})
		}
	}
	last := func(at cluster.Instant) cluster.Instant {
		if at == 0 {
			return cluster.Never
		}
		return at
	}
	slices.SortFunc(all, func(x, y candidate) int {
		return cmp.Or(int(x.b.Priority-y.b.Priority), cmp.Compare(last(x.b.Expires), last(y.b.Expires)),
			int(x.b.Class)-int(y.b.Class), cmp.Compare(x.b.Effective, y.b.Effective),
			x.depth-y.depth, cmp.Compare(x.b.id, y.b.id))
	})
	for _, c := range all {
		if x := min(o.payable(c.b, n), amount-got); x > 0 {
			ids, sums, got = append(ids, c.b.id), append(sums, x), got+x
		}
	}
	return ids, sums, got
}

// payable is how much of a bucket a lien may take still.
func (o *oracle) payable(b *oracleBucket, n *oracleLien) int64 {
	s := b.Scope
	if len(s.Partitions) > 0 && !slices.Contains(s.Partitions, n.Partition) || len(s.QOS) > 0 && !slices.Contains(s.QOS, n.QOS) {
		return 0
	}
	for _, r := range n.Rates {
		if len(s.GPUTypes) > 0 && !slices.Contains(s.GPUTypes, r.GPUType) {
			return 0
		}
	}
	most := o.inBucket(b.id, "avail")
	var put int64
	for _, p := range n.parts {
		if p.bucket == b.id {
			put += o.inPart(n.ID, p.number, "held") + o.inPart(n.ID, p.number, "revenue")
		}
	}
	if s.PerJob > 0 {
		most = min(most, int64(s.PerJob)-put)
	}
	if s.Permille > 0 {
		share := new(big.Int).Mul(big.NewInt(int64(n.Amount)), big.NewInt(s.Permille))
		most = min(most, share.Quo(share, big.NewInt(1000)).Int64()-put)
	}
	return max(0, most)
}

// hold sets aside what was chosen.
func (o *oracle) hold(n *oracleLien, ids []BucketID, sums []int64) {
	for i, id := range ids {
		if len(n.parts) == 0 || n.parts[len(n.parts)-1].bucket != id {
			n.add(id)
		}
		o.move(movement{from: "avail", to: "held", bucket: id, lien: n.ID, part: n.parts[len(n.parts)-1].number, node: n.Chain[0], amount: sums[i]})
	}
}

// charge takes from what is held, then from other buckets, then on credit.
func (o *oracle) charge(n *oracleLien, amount int64, r *Receipt) {
	r.Charged += Credits(amount)
	for _, p := range n.parts {
		x := min(o.inPart(n.ID, p.number, "held"), amount)
		o.move(movement{from: "held", to: "revenue", bucket: p.bucket, lien: n.ID, part: p.number, node: n.Chain[0], amount: x})
		amount -= x
	}
	ids, sums, got := o.choose(n, amount)
	for i, id := range ids {
		o.move(movement{from: "avail", to: "revenue", bucket: id, lien: n.ID, part: n.add(id), node: n.Chain[0], amount: sums[i]})
	}
	if amount -= got; amount > 0 {
		o.move(movement{from: "debt", to: "revenue", lien: n.ID, part: n.add(0), node: n.Chain[0], amount: amount})
		r.Debt += Credits(amount)
	}
}

// release gives back what is held, the last part first.
func (o *oracle) release(n *oracleLien, amount int64) {
	for i := len(n.parts) - 1; i >= 0; i-- {
		p := n.parts[i]
		x := min(o.inPart(n.ID, p.number, "held"), amount)
		if x == 0 {
			continue
		}
		amount -= x
		o.move(movement{from: "held", to: "avail", bucket: p.bucket, lien: n.ID, part: p.number, node: n.Chain[0], amount: x})
		o.arrive(o.bucket(p.bucket), x)
	}
}

// giveBack refunds, the last part first.
func (o *oracle) giveBack(n *oracleLien, amount int64) (given int64) {
	for i := len(n.parts) - 1; i >= 0; i-- {
		p := n.parts[i]
		x := min(o.inPart(n.ID, p.number, "revenue"), amount-given)
		if x == 0 {
			continue
		}
		given += x
		back := movement{from: "revenue", to: "avail", bucket: p.bucket, lien: n.ID, part: p.number, node: n.Chain[0], amount: x, ended: n.ended}
		if p.bucket != 0 {
			o.move(back)
			o.arrive(o.bucket(p.bucket), x)
			continue
		}
		_, _, _, owes := o.sums(n.Chain[0])
		back.to, back.amount = "debt", min(x, owes)
		o.move(back)
		if x > owes {
			b := o.mint(Grant{Owner: n.Chain, Class: RefundClass, Amount: Credits(x - owes), Effective: o.now})
			back.to, back.amount = "new bucket", x-owes
			o.move(back)
			o.move(movement{from: "new bucket", to: "avail", bucket: b.id, amount: x - owes})
			o.repay(b)
		}
	}
	return given
}

func (o *oracle) mint(g Grant) *oracleBucket {
	g.Owner = slices.Clone(g.Owner)
	b := &oracleBucket{Grant: g, id: BucketID(len(o.buckets) + 1), waits: g.Effective > o.now}
	o.buckets = append(o.buckets, b)
	return b
}

// due is what the counters come to.
func (n *oracleLien) due() (sum int64) {
	for _, g := range n.segments {
		x := new(big.Int).Mul(big.NewInt(int64(g.Price)), big.NewInt(g.Base+g.Count))
		sum += x.Quo(x, big.NewInt(3_600_000)).Int64()
	}
	return sum
}

// lacks is what the counters say beyond what was charged for them.
func (o *oracle) lacks(n *oracleLien) int64 {
	return n.due() - (o.inLien(n.ID, "revenue") + o.refunded(n.ID, -1) - n.adjusted)
}

func (o *oracle) catchUp(n *oracleLien, r *Receipt) {
	if more := o.lacks(n); more > 0 {
		o.charge(n, more, r)
	} else if more < 0 {
		given := o.giveBack(n, min(-more, o.inLien(n.ID, "revenue")))
		r.Returned, n.adjusted = r.Returned+Credits(given), n.adjusted+given
	}
}
