package backfill

import (
	"slices"

	"github.com/greylag/greylag/pkg/cluster"
)

// MaxPools is the number of pools of GPUs that a host may have, and maxLane the number of GPUs of a
// pool. What exceeds them is never planned.
const (
	MaxPools = 8
	maxLane  = 127
)

// Lanes counts the GPUs of each pool of a host: eight numbers of seven bits, so that one operation
// compares the pools of two hosts.
type Lanes uint64

// tops is the unused eighth bit of every lane.
const tops Lanes = 0x8080808080808080

// Lane returns n GPUs of a pool and none of the others; n is cut to what a lane can hold.
func Lane(pool int, n int32) Lanes { return Lanes(min(max(n, 0), maxLane)) << (8 * pool) }

// Of returns the count of one pool.
func (l Lanes) Of(pool int) int32 { return int32(l >> (8 * pool) & maxLane) }

// Covers reports whether each lane is at least that of need.
func (l Lanes) Covers(need Lanes) bool { return ((l|tops)-need)&tops == tops }

// Both returns the lower number of each lane.
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

// Slots make a host exclusive: each job takes one, and an exclusive job takes all.
const (
	Slots = 1 << 20
	// Blocked is more slots than a host has: it closes the host.
	Blocked = 1 << 25
)

// Gres counts the generic resources of a host, by their place in the host's list.
type Gres [cluster.MaxGres]int32

// Amount is a quantity of each resource of a host. All but GPUs may be negative: several overdue
// jobs can have more than the host has.
type Amount struct {
	GPUs   Lanes
	CPUs   int32
	Slots  int32
	Memory cluster.Bytes
	Gres   Gres
}

// Covers reports whether a has at least as much of everything as need.
func (a *Amount) Covers(need *Amount) bool {
	return a.CPUs >= need.CPUs && a.Slots >= need.Slots && a.Memory >= need.Memory && a.GPUs.Covers(need.GPUs) &&
		(need.Gres == Gres{} || a.Gres.covers(&need.Gres))
}

func (a *Amount) less(n *Amount) {
	a.GPUs -= n.GPUs
	a.CPUs -= n.CPUs
	a.Slots -= n.Slots
	a.Memory -= n.Memory
	if n.Gres != (Gres{}) {
		a.Gres.add(&n.Gres, -1)
	}
}

func (a *Amount) more(n *Amount) {
	a.GPUs += n.GPUs
	a.CPUs += n.CPUs
	a.Slots += n.Slots
	a.Memory += n.Memory
	if n.Gres != (Gres{}) {
		a.Gres.add(&n.Gres, 1)
	}
}

// both lowers a to what is in both.
func (a *Amount) both(o *Amount) {
	a.GPUs = a.GPUs.Both(o.GPUs)
	a.CPUs, a.Slots, a.Memory = min(a.CPUs, o.CPUs), min(a.Slots, o.Slots), min(a.Memory, o.Memory)
	for i := range a.Gres {
		a.Gres[i] = min(a.Gres[i], o.Gres[i])
	}
}

func (g *Gres) covers(need *Gres) bool {
	for i := range g {
		if g[i] < need[i] && need[i] > 0 {
			return false
		}
	}
	return true
}

func (g *Gres) add(n *Gres, sign int32) {
	for i := range g {
		g[i] += sign * n[i]
	}
}

// negative reports whether more of anything but GPUs is taken than there is.
func (a *Amount) negative() bool {
	return a.CPUs < 0 || a.Slots < 0 || a.Memory < 0 || min(a.Gres[0], a.Gres[1], a.Gres[2], a.Gres[3]) < 0
}

// GresOf returns counts by their place among the generic resources that a host has, whatever their
// types, without those that it does not have.
func GresOf(has, counts []cluster.Gres) (g Gres) {
	for i := range counts {
		if at := slices.IndexFunc(has, func(h cluster.Gres) bool { return h.Name == counts[i].Name }); at >= 0 && at < len(g) {
			g[at] = int32(counts[i].Count)
		}
	}
	return g
}

// Subtract lowers a by n; GPUs are never negative.
func (a *Amount) Subtract(n *Amount) {
	gpus := a.GPUs - a.GPUs.Both(n.GPUs)
	a.less(n)
	a.GPUs = gpus
}

// Add raises a by n.
func (a *Amount) Add(n *Amount) { a.more(n) }

// Limit lowers a to what is in both amounts.
func (a *Amount) Limit(o *Amount) { a.both(o) }

// inOnePool reports whether all GPUs of an amount are of one pool.
func (a *Amount) inOnePool() bool {
	for i := range MaxPools {
		if n := a.GPUs.Of(i); n > 0 {
			return a.GPUs == Lane(i, n)
		}
	}
	return true
}
