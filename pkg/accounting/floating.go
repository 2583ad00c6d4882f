package accounting

import (
	"iter"
	"math"
	"slices"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// Past is the cost of a segment's GPUs until an instant.
type Past struct {
	Until  cluster.Instant
	Shares []Priced
}

// follow sets the last segment of a floating lien, the caller's own, to the current prices, and
// keeps the earlier ones. Prices are only ever set for future times, so it does not matter when and
// how often it is called. A segment has at most as many past prices as a lien may have segments.
// O(log n), if no price changed.
func (l *Ledger) follow(n *Lien) { l.followTo(n, l.now) }

// followTo sets the prices of an instant, for a future one those known now.
func (l *Ledger) followTo(n *Lien, until cluster.Instant) {
	last := len(n.Segments) - 1
	if !n.Floating || last < 0 {
		return
	}
	g := &n.Segments[last]
	since := g.Since
	if past := len(g.Past); past > 0 {
		since = g.Past[past-1].Until
	}
	wanted := n.Rates[0].GPUType
	all := l.changes(since, until, append(typesIn(g.Shares()), wanted)...)
	if len(all) == 0 {
		return
	}
	was := g.Shares()
	g.Past = slices.Grow(slices.Clip(g.Past), len(all)) // shared with other copies
	for _, at := range all {
		if (len(g.Past)+1)*len(was) > maxSegments {
			break
		}
		is := slices.Clone(was)
		for i := range is {
			if price, err := l.floating(is[i].Type, wanted, at); err == nil {
				is[i].Price = price
			}
		}
		if !slices.Equal(is, was) {
			g.Past, was = append(g.Past, Past{at, was}), is
		}
	}
	if g.Price = was[0].Price; len(g.Mix) > 0 {
		g.Mix = was
	}
}

// changes returns when prices of types started to apply, after an instant and until another.
func (l *Ledger) changes(since, until cluster.Instant, types ...string) (at []cluster.Instant) {
	for _, gpuType := range pricedBy(types) {
		for k := range l.prices.From(priceKey{gpuType, -until}) {
			if k.gpuType != gpuType || -k.before <= since {
				break
			}
			at = append(at, -k.before)
		}
	}
	slices.Sort(at)
	return slices.Compact(at)
}

func typesIn(shares []Priced) (types []string) {
	for _, x := range shares {
		types = append(types, x.Type)
	}
	return types
}

// stretches divides the GPU-milliseconds of a segment among the prices of their time, to the
// nearest millisecond at each price change. None at all are at the first of these prices, like the
// first one that is counted later.
func (g *Segment) stretches(gpuMS int64) iter.Seq[BillSegment] {
	return func(yield func(BillSegment) bool) {
		since, done := g.Since, int64(0)
		for _, p := range g.Past {
			most := millis(g.GPUs, p.Until.Sub(g.Since).Round(time.Millisecond).Milliseconds())
			until := min(gpuMS, most)
			if x := until - done; x > 0 || gpuMS == 0 && most > 0 {
				if !yield(BillSegment{since, x, p.Shares}) || gpuMS == 0 {
					return
				}
				done = until
			}
			since = p.Until
		}
		if gpuMS > done || done == 0 {
			yield(BillSegment{since, gpuMS - done, g.Shares()})
		}
	}
}

// sum returns the cost of GPU-milliseconds of a segment at the prices of their time.
func (g *Segment) sum(gpuMS int64) (sum Credits) {
	if len(g.Past) == 0 {
		return g.Cost(gpuMS)
	}
	for x := range g.stretches(gpuMS) {
		c := x.cost()
		if sum > math.MaxInt64-c {
			return math.MaxInt64
		}
		sum += c
	}
	return sum
}

// Latest returns the end of the metered time since an instant, at most for the given duration: how long
// it was, and what was charged for it at the prices of its time. O(segments).
func (n *Lien) Latest(since cluster.Instant, most time.Duration) (lasted time.Duration, cost Credits) {
	for i := len(n.Segments) - 1; i >= 0 && lasted < most; i-- {
		g := &n.Segments[i]
		all := g.Base + g.Count
		before := min(all, Millis(g.GPUs, max(0, since.Sub(g.Since))))
		part := min(all-before, millis(g.GPUs, (most-lasted).Milliseconds()))
		lasted += time.Duration(part/g.GPUs) * time.Millisecond
		cost += g.sum(all) - g.sum(all-part)
	}
	return lasted, cost
}
