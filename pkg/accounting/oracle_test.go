package accounting

import (
	"fmt"
	"slices"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// The oracle reimplements the ledger in the simplest way: it keeps a list of every movement of
// money and adds it up for each question. It shares only the command types and the sentinels with
// the engine.

type movement struct {
	from, to string // source, avail, held, revenue, gone, debt
	bucket   BucketID
	lien     LienID
	part     int
	node     PayerID
	amount   int64
	at       cluster.Instant
	about    cluster.Instant // of a refund: the time it is about; 0: the time it was made
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
	cutShort bool            // a bucket that cut off was not replaced
	asked    cluster.Instant // the time up to which its floating prices are known
	adjusted int64
}

// oraclePart is a lien's amount from one bucket. Its number does not change when others go.
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
	parent PayerID
	budget Budget
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
	node                   PayerID
	need, available, limit int64
}

type oracle struct {
	now       cluster.Instant
	movements []movement
	buckets   []*oracleBucket
	liens     map[LienID]*oracleLien
	nodes     map[PayerID]*oracleNode
	keys      map[string]oracleKey
	codes     map[string]int64
	prices    []priceSet
	closed    cluster.Instant
	periods   map[string]bool
	repaid    int64 // by the current command
	lost      int64 // likewise
}

type priceSet struct {
	Rate
	from cluster.Instant
}

func newOracle() *oracle {
	return &oracle{
		liens: map[LienID]*oracleLien{}, nodes: map[PayerID]*oracleNode{}, keys: map[string]oracleKey{},
		codes: map[string]int64{}, periods: map[string]bool{},
	}
}

// total adds up the movements into a place less those out of it.
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

// inPart returns the balance of one part of a lien at a place. Revenue is net of refunds.
func (o *oracle) inPart(id LienID, part int, place string) int64 {
	return o.total(place, func(m *movement) bool { return m.lien == id && m.part == part })
}

// inLien returns the balance of a lien at a place.
func (o *oracle) inLien(id LienID, place string) int64 {
	return o.total(place, func(m *movement) bool { return m.lien == id })
}

// refunded returns the refunds of a part, or of a lien when part is negative.
func (o *oracle) refunded(id LienID, part int) (sum int64) {
	for _, m := range o.movements {
		if m.lien == id && (part < 0 || m.part == part) && m.from == "revenue" {
			sum += m.amount
		}
	}
	return sum
}

// below reports whether an account is another one or its descendant.
func (o *oracle) below(id, top PayerID) bool {
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

// sums returns an account's held, spent, owed and own debt.
func (o *oracle) sums(id PayerID) (held, spent, debt, owes int64) {
	here := func(m *movement) bool { return o.below(m.node, id) }
	held = o.total("held", here)
	owes = -o.total("debt", func(m *movement) bool { return m.node == id })
	debt = -o.total("debt", here)
	// What was charged and is not owed was paid, now or since.
	spent = o.total("revenue", here) - debt
	return held, spent, debt, owes
}

// used returns what counts against an account's budget.
func (o *oracle) used(id PayerID) int64 {
	held, spent, debt, _ := o.sums(id)
	n := o.nodes[id]
	if n == nil || n.budget.Window == Ever {
		return held + spent + debt
	}
	var period int64
	begin := startOf(n.budget.Window, o.now)
	lately := map[LienID]int64{} // spent by an attempt since then, and not refunded
	for _, m := range o.movements {
		switch {
		case m.at < begin || !o.below(m.node, id):
		case m.to == "debt" && m.from == "avail":
			period += m.amount
		case m.to == "revenue" && m.from != "debt":
			lately[m.lien] += m.amount
		case m.from == "revenue" && m.to == "avail" && (m.about == 0 || m.about >= begin):
			lately[m.lien] = max(0, lately[m.lien]-m.amount)
		}
	}
	for _, spent := range lately {
		period += spent
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

// arrive moves credits from a lien into a bucket: on to expired, void or debts where it applies.
func (o *oracle) arrive(b *oracleBucket, amount int64) {
	switch {
	case b.voided, b.Expires != 0 && o.now >= b.Expires:
		o.move(movement{from: "avail", to: "gone", bucket: b.id, amount: amount})
		o.lost += amount
	default:
		o.repay(b)
	}
}

// repay pays the debts of a bucket's owner and its descendants from the bucket.
func (o *oracle) repay(b *oracleBucket) {
	s := b.Scope
	if !o.valid(b) || len(s.GPUTypes)+len(s.Partitions)+len(s.QOS) > 0 || s.Permille != 0 || s.PerJob != 0 {
		return
	}
	var names []PayerID
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
