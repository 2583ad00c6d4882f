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

// Segment is a stretch of an attempt on GPUs of one type at one price.
type Segment struct {
	GPUType string
	GPUs    int64
	Price   Credits
	Since   cluster.Instant
	Base    int64 // GPU-milliseconds of the epochs before
	Count   int64 // the counter of this epoch
	Epoch   uint64
	Sample  uint64          // number of the newest sample
	Seen    cluster.Instant // when it came
	Excess  int64           // GPU-milliseconds that were claimed and not believed
	Ended   bool            // another segment followed
}

// Bounds of an attempt.
const (
	maxGPUs     = 1 << 32
	maxSegments = 1000
)

// Due is what the counters come to: each segment's, rounded down by itself.
func (n *Lien) Due() Credits {
	var due Credits
	for i := range n.Segments {
		c := Cost(n.Segments[i].Price, n.Segments[i].Base+n.Segments[i].Count)
		if due > math.MaxInt64-c {
			return math.MaxInt64
		}
		due += c
	}
	return due
}

// Dispatch starts an attempt on GPUs, or moves it to others: the segment before ends.
// Its price is the lower of the type's and the wanted type's in the lien's quote; a
// type that was not quoted costs what was wanted. Floating liens pay the price of now.
func (l *Ledger) Dispatch(s Stamp, id LienID, gpuType string, gpus int64) (Receipt, error) {
	type payload struct {
		LienID
		gpuType string
		gpus    int64
	}
	p := printOf(l, s, opDispatch, &payload{id, gpuType, gpus}, func(c *codec.Coder, x *payload) {
		lienID(c, &x.LienID)
		codec.String(c, &x.gpuType)
		codec.Int(c, &x.gpus)
	})
	return l.once(s, p, func() (Receipt, error) {
		if gpus < 1 || gpus > maxGPUs || len(gpuType) > maxText {
			return Receipt{}, fmt.Errorf("%w: %d GPUs of type %.32q", ErrInvalid, gpus, gpuType)
		}
		n, err := l.openLien(id)
		if err != nil {
			return Receipt{}, err
		}
		if len(n.Segments) == maxSegments {
			return Receipt{}, fmt.Errorf("%w: %s was moved %d times", ErrInvalid, id, maxSegments)
		}
		price := n.Rates[0].Price
		for _, r := range n.Rates {
			if r.GPUType == gpuType {
				price = min(price, r.Price)
			}
		}
		if n.Floating {
			if price, err = l.Price(gpuType, l.now); err != nil {
				return Receipt{}, err
			}
		}
		if last := len(n.Segments) - 1; last >= 0 {
			n.Segments[last].Ended = true
		}
		n.Segments = append(n.Segments, Segment{GPUType: gpuType, GPUs: gpus, Price: price, Since: l.now, Seen: l.now})
		l.putLien(&n)
		return Receipt{Lien: id}, nil
	})
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

// FundedUntil is until when what a lien holds lasts at the price of its last segment;
// Never when nothing runs or it costs nothing.
func (n *Lien) FundedUntil(now cluster.Instant) cluster.Instant {
	if len(n.Segments) == 0 {
		return cluster.Never
	}
	g := &n.Segments[len(n.Segments)-1]
	held, _, _ := n.sum()
	left := held - n.Accrued()
	rate := Cost(g.Price, millis(g.GPUs, msPerHour)) // an hour's
	if rate == 0 {
		return cluster.Never
	}
	if left <= 0 {
		return now
	}
	ms := int64(Cost(left, int64(time.Hour/time.Millisecond)*msPerHour) / rate)
	if ms > math.MaxInt64/int64(time.Millisecond) {
		return cluster.Never
	}
	return max(now, g.Seen).Add(time.Duration(ms) * time.Millisecond)
}
