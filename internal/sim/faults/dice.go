package faults

import (
	"math"
	"math/rand/v2"
	"time"
)

// Kind is what is drawn for. Each has its own numbers.
type Kind uint64

// The kinds.
const (
	Nodes Kind = iota + 1
	GPUs
	Restarts
	Leaders
	Clocks
	Admins
	Users    // of one job
	Attempts // of one attempt
	Reports
	Requests
)

// Streams draws.
type Streams struct {
	seed  uint64
	kinds map[Kind]*rand.Rand
}

// NewDice draws the same for the same seed.
func NewDice(seed uint64) *Streams { return &Streams{seed: seed, kinds: map[Kind]*rand.Rand{}} }

// Of is what draws for a kind, one after the other.
func (d *Streams) Of(k Kind) *rand.Rand {
	r := d.kinds[k]
	if r == nil {
		r = rand.New(rand.NewPCG(d.seed, uint64(k)))
		d.kinds[k] = r
	}
	return r
}

// For is what draws for one of a kind, the same whatever was drawn before: for an attempt
// of a job, so that what becomes of it does not depend on the policy.
func (d *Streams) For(k Kind, one, of uint64) *rand.Rand {
	const odd1, odd2 = 0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9
	return rand.New(rand.NewPCG(d.seed^one*odd1, uint64(k)^of*odd2))
}

// Next is how long it takes until the next of what happens to each of n with a mean time
// between; ok is false when it never does.
func Next(r *rand.Rand, mean time.Duration, n int) (wait time.Duration, ok bool) {
	if mean <= 0 || n <= 0 {
		return 0, false
	}
	return Within(r, mean/time.Duration(n)), true
}

// Within is a time with an exponential distribution: at least a second, at most twenty
// times the mean.
func Within(r *rand.Rand, mean time.Duration) time.Duration {
	x := -math.Log(1 - r.Float64())
	return max(time.Second, time.Duration(min(x, 20)*float64(mean)).Round(time.Millisecond))
}

// Yes is true for a part of all times.
func Yes(r *rand.Rand, part float64) bool { return part > 0 && r.Float64() < part }
