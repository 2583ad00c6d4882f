package accounting

import (
	"iter"
	"math"
	"slices"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// Past is what the GPUs of a segment cost until an instant.
type Past struct {
	Until  cluster.Instant
	Shares []Priced
}

// follow gives the last segment of a floating lien, the caller's own, the prices of now,
// and keeps those that held until then. Prices are only ever set for times to come, so
// that it does not matter how often, and when, a lien is asked. A segment has at most as
// many past prices as a lien may have segments. O(log n), where no price changed.
func (l *Ledger) follow(n *Lien) { l.followTo(n, l.now) }

// followTo gives it the prices of an instant: of one to come, those that are set by now.
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
	g.Past = slices.Grow(slices.Clip(g.Past), len(all)) // others have it too
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

// changes is when prices of types began to hold, after an instant and until another.
func (l *Ledger) changes(since, until cluster.Instant, types ...string) (at []cluster.Instant) {
	for _, gpuType := range types {
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

// stretches are GPU-milliseconds of a segment at the prices of their time: as many as there
// were until a price changed, to the nearest millisecond, at that price, and so on.
func (g *Segment) stretches(gpuMS int64) iter.Seq[BillSegment] {
	return func(yield func(BillSegment) bool) {
		since, done := g.Since, int64(0)
		for _, p := range g.Past {
			until := min(gpuMS, millis(g.GPUs, p.Until.Sub(g.Since).Round(time.Millisecond).Milliseconds()))
			if x := until - done; x > 0 {
				if !yield(BillSegment{since, x, p.Shares}) {
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

// sum is what GPU-milliseconds of a segment cost at the prices of their time.
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

// Latest is what was counted last, at most for so long: for how long it was, and exactly
// what it was charged, at the prices of its time. O(segments).
func (n *Lien) Latest(most time.Duration) (lasted time.Duration, cost Credits) {
	for i := len(n.Segments) - 1; i >= 0 && lasted < most; i-- {
		g := &n.Segments[i]
		all := g.Base + g.Count
		part := min(all, millis(g.GPUs, (most-lasted).Milliseconds()))
		lasted += time.Duration(part/g.GPUs) * time.Millisecond
		cost += g.sum(all) - g.sum(all-part)
	}
	return lasted, cost
}
