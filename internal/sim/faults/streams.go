package faults

import (
	"math"
	"math/rand/v2"
	"time"
)

// Stream is a stream of random numbers. Each has its own numbers.
type Stream uint64

// The streams.
const (
	Nodes Stream = iota + 1
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

// Streams holds the streams of one seed.
type Streams struct {
	seed    uint64
	streams map[Stream]*rand.Rand
}

// NewStreams returns streams that are the same for the same seed.
func NewStreams(seed uint64) *Streams { return &Streams{seed: seed, streams: map[Stream]*rand.Rand{}} }

// Of returns a stream, which continues with each draw.
func (d *Streams) Of(k Stream) *rand.Rand {
	r := d.streams[k]
	if r == nil {
		r = rand.New(rand.NewPCG(d.seed, uint64(k)))
		d.streams[k] = r
	}
	return r
}

// For returns the random numbers of one element of a stream, whatever was drawn before. So the
// outcome of an attempt of a job does not depend on the policy.
func (d *Streams) For(k Stream, one, of uint64) *rand.Rand {
	const odd1, odd2 = 0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9
	return rand.New(rand.NewPCG(d.seed^one*odd1, uint64(k)^of*odd2))
}

// Next returns the time to the next event of n elements with a mean time between events of each; ok
// is false without a mean.
func Next(r *rand.Rand, mean time.Duration, n int) (wait time.Duration, ok bool) {
	if mean <= 0 || n <= 0 {
		return 0, false
	}
	return Within(r, mean/time.Duration(n)), true
}

// Within returns a time with an exponential distribution: at least a second, at most twenty times
// the mean.
func Within(r *rand.Rand, mean time.Duration) time.Duration {
	x := -math.Log(1 - r.Float64())
	return max(time.Second, time.Duration(min(x, 20)*float64(mean)).Round(time.Millisecond))
}

// Yes returns true with a probability.
func Yes(r *rand.Rand, part float64) bool { return part > 0 && r.Float64() < part }
