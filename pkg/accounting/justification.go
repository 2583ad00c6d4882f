package accounting

import (
	"math"
	"slices"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/cluster"
)

// Justification is why an entry was allowed, so that a reader of the journal can check it: the
// terms of a new bucket, what a bucket pays for, and what a charge is for. Fields that do not
// concern the entry are nil.
type Justification struct {
	Terms *Grant
	For   *Purpose
	Bill  *Bill
}

// Purpose is what a bucket holds or pays credits for.
type Purpose struct {
	Chain      PayerPath // the payer and its ancestors
	Partitions []string
	QOS        string
	Rates      []Rate          // of the lien's quote
	Floating   bool            // they bind no charge
	On         []string        // types of the GPUs that it runs on, or ran
	Amount     Credits         // of the lien: the base of share limits
	Since      cluster.Instant // when the lien was placed; 0 for other purposes
}

// BillKind is the reason of a charge or refund.
type BillKind uint8

// The kinds of bills.
const (
	Counted   BillKind = iota // according to the segments
	Corrected                 // manual, in addition to them
	Returned                  // refunded, whatever they come to
)

// Bill is the cost of an attempt at the time of an entry.
type Bill struct {
	Kind     BillKind
	Final    bool // no other bill of the kind Counted follows
	Segments []BillSegment
	Left     Credits // of what is charged at once: by the entries that follow
}

// BillSegment is a part of a bill: a segment, or the part of one at the same prices.
type BillSegment struct {
	Since  cluster.Instant
	Millis int64 // GPU-milliseconds of all of its GPUs
	Shares []Priced
}

// Due returns the cost of the segments. O(segments).
func (b *Bill) Due() (sum Credits) {
	for i := range b.Segments {
		c := b.Segments[i].cost()
		if sum > math.MaxInt64-c {
			return math.MaxInt64
		}
		sum += c
	}
	return sum
}

// cost returns the cost of one bill segment. O(types).
func (x *BillSegment) cost() (sum Credits) {
	for i := range x.Shares {
		c := Cost(x.Shares[i].Price, x.millis(i))
		if sum > math.MaxInt64-c {
			return math.MaxInt64
		}
		sum += c
	}
	return sum
}

// millis returns the GPU-milliseconds of one of its types. They are divided evenly among its GPUs,
// and the cost of each type is rounded down separately.
func (x *BillSegment) millis(i int) int64 {
	if len(x.Shares) == 1 {
		return x.Millis
	}
	all := int64(0)
	for _, p := range x.Shares {
		all += p.Count
	}
	return millis(x.Shares[i].Count, x.Millis/max(all, 1))
}

// Line is GPUs of one type in a bill segment.
type Line struct {
	Priced
	Since  cluster.Instant
	Millis int64 // of these GPUs
	Cost   Credits
}

// Lines returns a bill by type, the oldest segment first; the lines sum to Due.
func (b *Bill) Lines() (all []Line) {
	for i := range b.Segments {
		x := &b.Segments[i]
		for k := range x.Shares {
			ms := x.millis(k)
			all = append(all, Line{x.Shares[k], x.Since, ms, Cost(x.Shares[k].Price, ms)})
		}
	}
	return all
}

func justificationFields(c *codec.Coder, x *Justification) {
	codec.Optional(c, &x.Terms, termsRecord)
	codec.Optional(c, &x.For, purposeRecord)
	codec.Optional(c, &x.Bill, billRecord)
}

func termsRecord(c *codec.Coder, x *Grant)     { codec.Record(c, x, grantFields) }
func purposeRecord(c *codec.Coder, x *Purpose) { codec.Record(c, x, purposeFields) }
func billRecord(c *codec.Coder, x *Bill)       { codec.Record(c, x, billFields) }

func purposeFields(c *codec.Coder, x *Purpose) {
	chainFields(c, &x.Chain)
	codec.List(c, &x.Partitions, codec.String)
	codec.String(c, &x.QOS)
	codec.List(c, &x.Rates, rate)
	codec.Bool(c, &x.Floating)
	codec.List(c, &x.On, codec.String)
	codec.Int(c, &x.Amount)
	codec.Int(c, &x.Since)
}

func billFields(c *codec.Coder, x *Bill) {
	codec.Uint(c, &x.Kind)
	codec.Bool(c, &x.Final)
	codec.List(c, &x.Segments, billed)
	codec.Int(c, &x.Left)
}

func billed(c *codec.Coder, x *BillSegment) {
	codec.Int(c, &x.Since)
	codec.Int(c, &x.Millis)
	codec.List(c, &x.Shares, priced)
}

// purpose returns the purpose of a lien for its buckets.
func (l *Ledger) purpose(n *Lien) *Purpose {
	x := &Purpose{Chain: l.above(n.payer()), Partitions: n.places(), QOS: n.QOS, Rates: n.Rates, Floating: n.Floating, Amount: n.Amount, Since: n.Since}
	for i := range n.Segments {
		for _, p := range n.Segments[i].Shares() {
			if !slices.Contains(x.On, p.Type) {
				x.On = append(x.On, p.Type)
			}
		}
	}
	return x
}

// billOf returns the current bill of a lien; the caller sets what is left.
func (l *Ledger) billOf(n *Lien) Bill {
	b := Bill{Kind: l.about.bill, Final: l.about.final}
	for i := range n.Segments {
		g := &n.Segments[i]
		b.Segments = slices.AppendSeq(b.Segments, g.stretches(g.Base+g.Count))
	}
	return b
}

// leaves returns a bill with that much left.
func (b Bill) leaves(left Credits) *Bill {
	b.Left = left
	return &b
}
