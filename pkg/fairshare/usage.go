package fairshare

import (
	"math"
	"math/bits"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// UsageAt returns how many units of a usage count at an instant. What was used decays by half every
// half-life, and so does what its rate has added since; with a half-life of 0 nothing decays.
// Before u.At it is u.Value. It saturates at the largest int64. O(1).
func UsageAt(u cluster.Usage, now cluster.Instant, halfLife time.Duration) int64 {
	u = Rebase(u, now, halfLife)
	if u.Part >= 1<<63 && u.Value < math.MaxInt64 {
		u.Value++
	}
	return u.Value
}

// Rebase returns the same usage with its value at now. To change Rate, rebase first. Its error is
// less than 2^-50 of the value and one nanosecond's worth of the rate. O(1).
func Rebase(u cluster.Usage, now cluster.Instant, halfLife time.Duration) cluster.Usage {
	dt := now.Sub(u.At)
	if dt <= 0 {
		return u
	}
	f := fadingOver(dt, halfLife)
	value, part := f.left(uint64(max(u.Value, 0)), u.Part)
	var added, more uint64
	if u.Rate > 0 {
		added, more = earned(uint64(u.Rate), f.credited(dt, halfLife))
	}
	part, overflow := bits.Add64(part, more, 0)
	value, over := bits.Add64(value, added, overflow)
	if over != 0 || value > math.MaxInt64 {
		value, part = math.MaxInt64, 0
	}
	return cluster.Usage{Value: int64(value), Part: part, Rate: u.Rate, At: now}
}

// decayFactor is 2^-x for x at least 0: whole halvings, and the rest as a fraction with 64 binary
// places, where 0 means 1.
type decayFactor struct {
	whole uint
	rest  uint64
}

// fadingOver returns the fading over a time; without a positive half-life nothing decays.
func fadingOver(dt, halfLife time.Duration) decayFactor {
	if halfLife <= 0 {
		return decayFactor{}
	}
	x, _ := bits.Div64(uint64(dt%halfLife), 0, uint64(halfLife))
	return decayFactor{whole: uint(min(dt/halfLife, 1000)), rest: power(x)}
}

// power returns 2^-(x/2^64) with 64 binary places; 0 means 1. Its error is below 2^-58.
func power(x uint64) uint64 {
	if x == 0 {
		return 0
	}
	p, one := uint64(0), true
	for x != 0 {
		i := bits.LeadingZeros64(x)
		x &^= 1 << (63 - i)
		if one {
			p, one = halves[i], false
			continue
		}
		hi, lo := bits.Mul64(p, halves[i])
		p = hi + lo>>63
	}
	return p
}

// left returns a number with 64 places before the point and 64 after, faded.
func (f decayFactor) left(value, part uint64) (uint64, uint64) {
	if f.rest != 0 {
		high, low := bits.Mul64(value, f.rest)
		middle, _ := bits.Mul64(part, f.rest)
		var overflow uint64
		part, overflow = bits.Add64(low, middle, 0)
		value = high + overflow
	}
	switch {
	case f.whole == 0:
	case f.whole < 64:
		part = part>>f.whole | value<<(64-f.whole)
		value >>= f.whole
	default:
		value, part = 0, 0
	}
	return value, part
}

// credited returns how long the rate would have had to last, without any decay, to add what it adds
// in dt with it: the integral of the fading, halfLife/ln 2 × (1 − 2^-x).
func (f decayFactor) credited(dt, halfLife time.Duration) time.Duration {
	if halfLife <= 0 {
		return dt
	}
	whole, kept := f.left(1, 0)
	gone := -kept // 1 − 2^-x
	mean, low := bits.Mul64(uint64(halfLife), invLn2)
	mean = mean<<1 | low>>63
	lasted, low := bits.Mul64(mean, gone)
	if whole == 0 && kept == 0 { // all has decayed
		lasted, low = mean, 0
	}
	return min(dt, time.Duration(lasted+low>>63))
}

// earned returns rate × time, with its fraction of a unit.
func earned(rate uint64, lasted time.Duration) (value, part uint64) {
	high, low := bits.Mul64(rate, uint64(lasted))
	if high >= uint64(time.Second) {
		return math.MaxInt64, 0
	}
	value, rest := bits.Div64(high, low, uint64(time.Second))
	part, _ = bits.Div64(rest, 0, uint64(time.Second))
	return min(value, math.MaxInt64), part
}
