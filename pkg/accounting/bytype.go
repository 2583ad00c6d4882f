package accounting

import (
	"math/bits"

	"github.com/greylag/greylag/pkg/cluster"
)

// TypeAmount is the part of an amount for GPUs of one type.
type TypeAmount struct {
	GPUType string // of a MIG instance its profile
	Amount  Credits
}

// ByType divides the amount of a charge or refund among the GPU types of its bill; the parts sum to
// the amount. Periodic charges pay for the bill's segments in order; other charges pay for all of
// it in proportion. It returns nil where the entry has no bill, or the bill is zero. O(lines of the
// bill).
func (e *Entry) ByType() []TypeAmount {
	if e.Bill == nil {
		return nil
	}
	due := e.Bill.Due()
	if due <= 0 {
		return nil
	}
	var all []TypeAmount
	add := func(lines []Line, from, to Credits) { // the part between two points of them
		whole, at := Credits(0), Credits(0)
		for _, x := range lines {
			whole += x.Cost
		}
		for _, x := range lines {
			was := at
			at += x.Cost
			part := floor(to, at, whole) - floor(to, was, whole) - (floor(from, at, whole) - floor(from, was, whole))
			all = withPart(all, cluster.TypeOfPriced(x.Type), part)
		}
	}
	to := due - e.Bill.Left
	from := to - e.Amount
	if e.Kind == Refunded || e.Bill.Kind != Counted || from < 0 || to > due {
		add(e.Bill.Lines(), 0, e.Amount)
		return all
	}
	for i := range e.Bill.Segments {
		one := Bill{Segments: e.Bill.Segments[i : i+1]}
		cost := one.Due()
		if x, y := min(from, cost), min(to, cost); y > x {
			add(one.Lines(), x, y)
		}
		from, to = max(0, from-cost), max(0, to-cost)
	}
	return all
}

// floor returns c × part / whole, rounded down; part is at most whole.
func floor(c, part, whole Credits) Credits {
	hi, lo := bits.Mul64(uint64(c), uint64(part))
	q, _ := bits.Div64(hi, lo, uint64(whole))
	return Credits(q)
}

func withPart(all []TypeAmount, gpuType string, part Credits) []TypeAmount {
	for i := range all {
		if all[i].GPUType == gpuType {
			all[i].Amount += part
			return all
		}
	}
	if part == 0 {
		return all
	}
	return append(all, TypeAmount{gpuType, part})
}
