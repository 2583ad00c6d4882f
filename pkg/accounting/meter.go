package accounting

import (
	"fmt"
	"math"
	"time"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/cluster"
)

// slack is how much longer than its segment a counter may have run.
const slack = 5 * time.Second

// Segment is a stretch of an attempt on the same GPUs at the same prices.
type Segment struct {
	GPUType string // of those of Mix the first
	GPUs    int64  // all of them
	Price   Credits
	Since   cluster.Instant
	Base    int64 // GPU-milliseconds of the epochs before
	Count   int64 // the counter of this epoch
	Epoch   uint64
	Sample  uint64          // number of the newest sample
	Seen    cluster.Instant // when it came
	Excess  int64           // GPU-milliseconds that were claimed and not believed
	Ended   bool            // another segment followed
	Mix     []Priced        // GPUs of several types; of one type none
	Past    []Past          // of a floating lien: what they cost before, oldest first
}

// GPUs is a number of GPUs of a type.
type GPUs struct {
	Type  string
	Count int64
}

// Priced is GPUs at the price of one for an hour.
type Priced struct {
	GPUs
	Price Credits
}

// Shares is what a segment's GPUs cost now, type by type.
func (g *Segment) Shares() []Priced {
	if len(g.Mix) > 0 {
		return g.Mix
	}
	return []Priced{{GPUs{g.GPUType, g.GPUs}, g.Price}}
}

// Cost is what GPU-milliseconds of a segment cost at its present prices. They are spread
// evenly over its GPUs, and what those of each type cost is rounded down by itself. O(types).
func (g *Segment) Cost(gpuMS int64) Credits {
	if len(g.Mix) == 0 {
		return Cost(g.Price, gpuMS)
	}
	var sum Credits
	for _, x := range g.Mix {
		c := Cost(x.Price, millis(x.Count, max(gpuMS, 0)/g.GPUs))
		if sum > math.MaxInt64-c {
			return math.MaxInt64
		}
		sum += c
	}
	return sum
}

// Ran is what a segment costs for so long at its present prices.
func (g *Segment) Ran(d time.Duration) Credits { return g.Cost(millis(g.GPUs, d.Milliseconds())) }

// Bounds of an attempt.
const (
	maxGPUs     = 1 << 32
	maxSegments = 1000
)

// Due is what the counters come to: each segment's at each of its prices, rounded down by
// itself.
func (n *Lien) Due() Credits {
	var due Credits
	for i := range n.Segments {
		c := n.Segments[i].sum(n.Segments[i].Base + n.Segments[i].Count)
		if due > math.MaxInt64-c {
			return math.MaxInt64
		}
		due += c
	}
	return due
}

// Dispatch starts an attempt on GPUs, or moves it to others: the segment before ends.
// Those of each type cost the lower of that type's price and the wanted type's in the
// lien's quote; a type that was not quoted costs what was wanted, and so does one without
// a price where the lien is floating and pays the prices of its time.
func (l *Ledger) Dispatch(s Stamp, id LienID, on ...GPUs) (Receipt, error) {
	type payload struct {
		LienID
		on []GPUs
	}
	p := printOf(l, s, opDispatch, &payload{id, on}, func(c *codec.Coder, x *payload) {
		lienID(c, &x.LienID)
		for i := range x.on {
			gpusFields(c, &x.on[i])
		}
	})
	return l.once(s, p, func() (Receipt, error) {
		if err := dispatchable(on); err != nil {
			return Receipt{}, err
		}
		n, err := l.openLien(id)
		if err != nil {
			return Receipt{}, err
		}
		if len(n.Segments) == maxSegments {
			return Receipt{}, fmt.Errorf("%w: %s was moved %d times", ErrInvalid, id, maxSegments)
		}
		g := Segment{GPUType: on[0].Type, Since: l.now, Seen: l.now}
		for _, x := range on {
			price, err := l.priceFor(&n, x.Type)
			if err != nil {
				return Receipt{}, err
			}
			g.GPUs += x.Count
			g.Mix = append(g.Mix, Priced{x, price})
		}
		if g.Price = g.Mix[0].Price; len(on) == 1 {
			g.Mix = nil
		}
		if last := len(n.Segments) - 1; last >= 0 {
			n.Segments[last].Ended = true
		}
		n.Segments = append(n.Segments, g)
		l.putLien(&n)
		return Receipt{Lien: id}, nil
	})
}

// dispatchable refuses what no attempt can run on.
func dispatchable(on []GPUs) error {
	if len(on) == 0 || len(on) > maxList {
		return fmt.Errorf("%w: GPUs of 1 to %d types", ErrInvalid, maxList)
	}
	all := int64(0)
	for i, x := range on {
		if x.Count < 1 || x.Count > maxGPUs || len(x.Type) > maxText || i > 0 && x.Type <= on[i-1].Type {
			return fmt.Errorf("%w: %d GPUs of type %.32q", ErrInvalid, x.Count, x.Type)
		}
		if all += x.Count; all > maxGPUs {
			return fmt.Errorf("%w: %d GPUs", ErrInvalid, all)
		}
	}
	return nil
}

// priceFor is what a GPU of a type costs a lien that begins to run on it now.
func (l *Ledger) priceFor(n *Lien, gpuType string) (Credits, error) {
	if n.Floating {
		return l.floating(gpuType, n.Rates[0].GPUType, l.now)
	}
	return quoted(n.Rates, gpuType), nil
}

// Sample is a node's counter of GPU-milliseconds, which only grows within an epoch.
type Sample struct {
	Lien    LienID
	Segment int
	Epoch   uint64 // of the agent: a restart begins another
	Number  uint64 // within the epoch, from 1
	Count   int64
}

// Metered is what became of a batch of samples.
type Metered struct {
	Counted   int
	Stale     int // repeated or overtaken ones, and those of liens that are not open
	Regressed int // a counter that went back without another epoch: nothing is changed
	Excess    int // counters cut to what time allows
}

// Meter takes a batch of samples. It needs no key: a sample says everything up to now,
// so that repeats, gaps and other orders change nothing. It moves no money: what is
// due is charged by Roll and Settle. O(samples × log n).
func (l *Ledger) Meter(at cluster.Instant, samples []Sample) Metered {
	l.Advance(at)
	var m Metered
	for i := range samples {
		l.meter(&samples[i], &m)
	}
	return m
}

func (l *Ledger) meter(x *Sample, m *Metered) {
	n, found := l.liens.Get(x.Lien)
	if !found || n.State != Open || x.Segment < 0 || x.Segment >= len(n.Segments) {
		m.Stale++
		return
	}
	g := n.Segments[x.Segment]
	switch {
	case x.Epoch < g.Epoch || x.Epoch == g.Epoch && x.Number <= g.Sample:
		m.Stale++
		return
	case x.Count < 0 || x.Epoch == g.Epoch && x.Count < g.Count:
		m.Regressed++
		return
	case x.Epoch > g.Epoch:
		g.Base, g.Count, g.Epoch = g.Base+g.Count, 0, x.Epoch
	}
	g.Excess = g.count(x.Count, n.most(x.Segment, l.now))
	if g.Excess > 0 {
		m.Excess++
	}
	g.Sample, g.Seen = x.Number, l.now
	c := *n
	c.Segments = append([]Segment(nil), n.Segments...)
	c.Segments[x.Segment] = g
	l.follow(&c)
	l.putLien(&c)
	m.Counted++
}

// most is what the counters of a segment can have come to: the GPUs for as long as it
// lasted, and a little more since clocks differ. It bounds the sum and not each sample,
// or a little more would be gained with every one.
func (n *Lien) most(segment int, now cluster.Instant) int64 {
	g, end := &n.Segments[segment], now
	if segment+1 < len(n.Segments) {
		end = n.Segments[segment+1].Since
	}
	lasted := end.Sub(g.Since) + slack
	return millis(g.GPUs, (lasted + time.Millisecond - 1).Milliseconds())
}

// count sets the counter as far as most allows; what is beyond is the answer. A counter
// never goes back.
func (g *Segment) count(to, most int64) (excess int64) {
	believed := max(g.Count, min(to, most-g.Base))
	g.Count = believed
	return to - believed
}
