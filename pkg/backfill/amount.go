package backfill

import "github.com/greylag/greylag/pkg/cluster"

// MaxPools is how many pools of GPUs one host may have, and maxLane how many GPUs
// one pool; what a host has beyond that is never planned on.
const (
	MaxPools = 8
	maxLane  = 127
)

// Lanes counts the GPUs of each pool of a host: eight numbers of seven bits, so that
// two hosts' worth of pools are compared in one operation.
type Lanes uint64

// tops is the unused eighth bit of every lane.
const tops Lanes = 0x8080808080808080

// Lane is n GPUs of a pool and none of the others; n is cut to what a lane can hold.
func Lane(pool int, n int32) Lanes { return Lanes(min(max(n, 0), maxLane)) << (8 * pool) }

// Of is the count of one pool.
func (l Lanes) Of(pool int) int32 { return int32(l >> (8 * pool) & maxLane) }

// Covers reports whether every lane is at least that of need.
func (l Lanes) Covers(need Lanes) bool { return ((l|tops)-need)&tops == tops }

// Both is the lower number of each lane.
func (l Lanes) Both(o Lanes) Lanes {
	more := ((l | tops) - o) & tops // set where l is at least o
	mask := more - more>>7
	return o&mask | l&^mask
}

// Sum adds the lanes that are set in mask (each set lane is maxLane).
func (l Lanes) Sum(mask Lanes) int32 {
	sum := int32(0)
	for l &= mask; l != 0; l >>= 8 {
		sum += int32(l & maxLane)
	}
	return sum
}

// Slots are how a host is kept to one job: every job takes one, an exclusive job all.
const (
	Slots = 1 << 20
	// Blocked is more slots than any host has: what takes them lets nothing else in.
	Blocked = 1 << 25
)

// Amount is a quantity of everything that a host has. It may be less than nothing,
// but for GPUs: a host that is promised to nobody can be owed by several.
type Amount struct {
	GPUs   Lanes
	CPUs   int32
	Slots  int32
	Memory cluster.Bytes
}

// Covers reports whether there is at least as much of everything.
func (a *Amount) Covers(need *Amount) bool {
	return a.CPUs >= need.CPUs && a.Slots >= need.Slots && a.Memory >= need.Memory && a.GPUs.Covers(need.GPUs)
}

func (a *Amount) less(n *Amount) {
	a.GPUs -= n.GPUs
	a.CPUs -= n.CPUs
	a.Slots -= n.Slots
	a.Memory -= n.Memory
}

func (a *Amount) more(n *Amount) {
	a.GPUs += n.GPUs
	a.CPUs += n.CPUs
	a.Slots += n.Slots
	a.Memory += n.Memory
}

// both lowers a to what is in both.
func (a *Amount) both(o *Amount) {
	a.GPUs = a.GPUs.Both(o.GPUs)
	a.CPUs, a.Slots, a.Memory = min(a.CPUs, o.CPUs), min(a.Slots, o.Slots), min(a.Memory, o.Memory)
}

// Take lowers a by n; GPUs of which there are fewer are all taken.
func (a *Amount) Take(n *Amount) {
	gpus := a.GPUs - a.GPUs.Both(n.GPUs)
	a.less(n)
	a.GPUs = gpus
}

// Give raises a by n.
func (a *Amount) Give(n *Amount) { a.more(n) }

// inOnePool reports whether all GPUs of an amount are of one pool.
func (a *Amount) inOnePool() bool {
	for i := range MaxPools {
		if n := a.GPUs.Of(i); n > 0 {
			return a.GPUs == Lane(i, n)
		}
	}
	return true
}
