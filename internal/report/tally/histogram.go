package tally

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"
)

// Histogram counts durations so that histograms can be added and their quantiles are
// exact up to 32 s and at most 1/16 too low beyond. The zero value is empty.
type Histogram struct {
	counts []count // ascending by bin
}

type count struct {
	bin uint16
	n   int64
}

// sub is the binary logarithm of how many bins each doubling has.
const sub = 4

// binOf returns the bin of a number of seconds.
func binOf(seconds uint64) uint16 {
	if seconds < 2<<sub {
		return uint16(seconds)
	}
	shift := bits.Len64(seconds) - 1 - sub
	return uint16(shift<<sub) + uint16(seconds>>shift)
}

// least is the smallest number of seconds in a bin.
func least(bin uint16) uint64 {
	if bin < 2<<sub {
		return uint64(bin)
	}
	shift := bin>>sub - 1
	return uint64(bin-shift<<sub) << shift
}

// LastBin is the highest bin that there is.
const LastBin = (64-sub)<<sub + 1<<sub

// Count counts a duration; one below zero is zero.
func (h *Histogram) Count(d time.Duration) { h.add(binOf(uint64(max(d, 0)/time.Second)), 1) }

func (h *Histogram) add(bin uint16, n int64) {
	i, found := slices.BinarySearchFunc(h.counts, bin, func(c count, b uint16) int { return cmp.Compare(c.bin, b) })
	if !found {
		h.counts = slices.Insert(h.counts, i, count{bin: bin})
	}
	h.counts[i].n += n
}

// Add adds another histogram.
func (h *Histogram) Add(o *Histogram) {
	for _, c := range o.counts {
		h.add(c.bin, c.n)
	}
}

// Len is how many durations were counted.
func (h *Histogram) Len() (n int64) {
	for _, c := range h.counts {
		n += c.n
	}
	return n
}

// Quantile returns the duration that p percent of all do not exceed, rounded down to
// its bin; 0 when nothing was counted.
func (h *Histogram) Quantile(percent int64) time.Duration {
	rank := (h.Len()*percent + 99) / 100
	for _, c := range h.counts {
		if rank -= c.n; rank <= 0 {
			return time.Duration(min(least(c.bin), math.MaxInt64/uint64(time.Second))) * time.Second
		}
	}
	return 0
}

// Bins yields each bin's number and count, ascending.
func (h *Histogram) Bins(yield func(bin uint16, n int64) bool) {
	for _, c := range h.counts {
		if !yield(c.bin, c.n) {
			return
		}
	}
}

// Put counts n durations of a bin, as Bins tells them.
func (h *Histogram) Put(bin uint16, n int64) { h.add(bin, n) }
