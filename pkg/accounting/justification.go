package accounting

import (
	"math"
	"slices"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/cluster"
)

// Justification are what an entry was allowed by, so that who reads the journal can judge it:
// the terms of a bucket that begins, for what a bucket pays, and what a charge is for. What
// does not concern an entry is nil.
type Justification struct {
	Terms *Grant
	For   *Cause
	Bill  *Bill
}

// Cause is what a bucket is set aside or pays for.
type Cause struct {
	Chain      PayerPath // who pays, and those above
	Partitions []string
	QOS        string
	Rates      []Rate          // of the lien's quote
	Floating   bool            // they bind nobody
	On         []string        // types of the GPUs that it runs on, or ran
	Amount     Credits         // of the lien: what shares of it are of
	Since      cluster.Instant // when the lien was placed; 0 for other causes
}

// BillKind is why something was charged or given back.
type BillKind uint8

// The kinds of bills.
const (
	Counted   BillKind = iota // as the segments say
	Corrected                 // by hand, beside them
	Returned                  // refunded, whatever they say
)

// Bill is what an attempt comes to, at the moment of an entry.
type Bill struct {
	Kind     BillKind
	Final    bool // no other bill of the kind Counted follows
	Segments []BillSegment
	Left     Credits // of what is charged at once: by the entries that follow
}

// BillSegment is a stretch of a bill: a segment, or as much of one as was at the same prices.
type BillSegment struct {
	Since  cluster.Instant
	Millis int64 // GPU-milliseconds of all of its GPUs
	Shares []Priced
}

// Due is what the segments come to. O(segments).
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

// cost is what a stretch of a bill comes to. O(types).
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

// millis is the GPU-milliseconds of one of its types: they are spread evenly over its
// GPUs, and what those of each type cost is rounded down by itself.
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

// Line is GPUs of one type in a stretch of a bill.
type Line struct {
	Priced
	Since  cluster.Instant
	Millis int64 // of these GPUs
	Cost   Credits
}

// Lines is a bill type by type, the oldest stretch first; they sum to Due.
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

func groundsFields(c *codec.Coder, x *Justification) {
	codec.Optional(c, &x.Terms, termsRecord)
	codec.Optional(c, &x.For, causeRecord)
	codec.Optional(c, &x.Bill, billRecord)
}

func termsRecord(c *codec.Coder, x *Grant) { codec.Record(c, x, grantFields) }
func causeRecord(c *codec.Coder, x *Cause) { codec.Record(c, x, causeFields) }
func billRecord(c *codec.Coder, x *Bill)   { codec.Record(c, x, billFields) }

func causeFields(c *codec.Coder, x *Cause) {
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

// cause is what buckets pay for a lien.
func (l *Ledger) cause(n *Lien) *Cause {
	x := &Cause{Chain: l.above(n.payer()), Partitions: n.places(), QOS: n.QOS, Rates: n.Rates, Floating: n.Floating, Amount: n.Amount, Since: n.Since}
	for i := range n.Segments {
		for _, p := range n.Segments[i].Shares() {
			if !slices.Contains(x.On, p.Type) {
				x.On = append(x.On, p.Type)
			}
		}
	}
	return x
}

// billOf is what a lien comes to now; the caller says what is left.
func (l *Ledger) billOf(n *Lien) Bill {
	b := Bill{Kind: l.about.bill, Final: l.about.final}
	for i := range n.Segments {
		g := &n.Segments[i]
		b.Segments = slices.AppendSeq(b.Segments, g.stretches(g.Base+g.Count))
	}
	return b
}

// leaves is a bill with so much left.
func (b Bill) leaves(left Credits) *Bill {
	b.Left = left
	return &b
}
