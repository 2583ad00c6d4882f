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

// Segment is a period of an attempt on the same GPUs.
type Segment struct {
	GPUType string // for several types (Mix) the first
	GPUs    int64  // all of them
	Price   Credits
	Since   cluster.Instant
	Base    int64 // GPU-milliseconds of earlier epochs
	Count   int64 // the counter of this epoch
	Epoch   uint64
	Sample  uint64          // number of the newest sample
	Seen    cluster.Instant // its arrival
	Excess  int64           // GPU-milliseconds that were reported and rejected
	Ended   bool            // another segment followed
	Mix     []Priced        // GPUs by type, if there are several types
	Past    []Past          // of a floating lien: earlier prices, oldest first
}

// GPUs is a number of GPUs of a type.
type GPUs struct {
	Type  string
	Count int64
}

// Priced is GPUs with their price per hour.
type Priced struct {
	GPUs
	Price Credits
}

// Shares returns the current cost of a segment's GPUs by type.
func (g *Segment) Shares() []Priced {
	if len(g.Mix) > 0 {
		return g.Mix
	}
	return []Priced{{GPUs{g.GPUType, g.GPUs}, g.Price}}
}

// Cost returns the cost of GPU-milliseconds of a segment at its current prices. They are divided
// evenly among its GPUs, and the cost of each type is rounded down separately. O(types).
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

// Ran returns the cost of a segment of that duration at its current prices.
func (g *Segment) Ran(d time.Duration) Credits { return g.Cost(millis(g.GPUs, d.Milliseconds())) }

// Bounds of an attempt.
const (
	maxGPUs     = 1 << 32
	maxSegments = cluster.MaxResizes + 1
)

// Due returns the cost of the counters: each segment's at each of its prices, rounded down
// separately.
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

// StartBilling starts an attempt on GPUs, or moves it to others: the previous segment ends. GPUs of
// each type cost that type's price in the lien's quote, or their share of its price. A type that was
// not quoted costs as much as the requested one, and so does a type without a price under a floating
// lien.
func (l *Ledger) StartBilling(s Stamp, id LienID, on ...GPUs) (Receipt, error) {
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

// dispatchable refuses GPUs that no attempt can run on.
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

// priceFor returns the price of a GPU of a type for a lien that starts to run on it now.
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

// Metered is the result of a batch of samples.
type Metered struct {
	Counted   int
	Stale     int // repeated or overtaken ones, and those of liens that are not open
	Regressed int // a counter that went back within an epoch: nothing is changed
	Excess    int // counters clamped to the elapsed time
}

// Meter takes a batch of samples. It needs no key: a sample covers everything up to now, so
// repeats, gaps and reordering change nothing. It moves no money: Roll and Settle charge what is
// due. O(samples × log n).
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

// most returns the largest possible counter of a segment: the GPUs for its duration, plus a slack
// since clocks differ. It bounds the sum and not each sample, which would gain the slack every
// time.
func (n *Lien) most(segment int, now cluster.Instant) int64 {
	g, end := &n.Segments[segment], now
	if segment+1 < len(n.Segments) {
		end = n.Segments[segment+1].Since
	}
	lasted := end.Sub(g.Since) + slack
	return millis(g.GPUs, (lasted + time.Millisecond - 1).Milliseconds())
}

// count advances the counter up to the bound of most and returns the excess. A counter never goes
// back.
func (g *Segment) count(to, most int64) (excess int64) {
	believed := max(g.Count, min(to, most-g.Base))
	g.Count = believed
	return to - believed
}
