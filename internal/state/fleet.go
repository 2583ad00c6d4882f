package state

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/cow"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/cluster"
)

// Capacity is the amount of a resource on the nodes, and the part that no job can use: down is on
// nodes that are DOWN and GPUs that do not work, drained on nodes that are drained or report
// themselves unfit.
type Capacity struct{ Total, Down, Drained int64 }

func (c Capacity) plus(o Capacity, sign int64) Capacity {
	return Capacity{c.Total + sign*o.Total, c.Down + sign*o.Down, c.Drained + sign*o.Drained}
}

func capacityFields(c *codec.Coder, x *Capacity) {
	codec.Int(c, &x.Total)
	codec.Int(c, &x.Down)
	codec.Int(c, &x.Drained)
}

// level is the instant from which the capacity of a resource has a value.
type level struct {
	at       cluster.Instant
	resource string // cpu, or gpu: and a type
}

func compareLevels(a, b level) int {
	return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.resource, b.resource))
}

func levelFields(c *codec.Coder, x *level) {
	codec.Int(c, &x.at)
	codec.String(c, &x.resource)
}

// fleet is the capacity of all nodes over time, for reports: each change of it. Sums by half
// hour, as the archive keeps of jobs, were rejected: capacity seldom changes, and levels are
// exact for any interval.
type fleet struct {
	levels  table.Table[level, Capacity]
	present cow.Map[string, Capacity] // index: the present capacity of each resource
}

var levelSchema = table.Schema[level, Capacity]{ // never written
	Kind: table.Fleet, Compare: compareLevels, Key: levelFields, Fields: capacityFields,
}

func newFleet(h *table.Hasher) fleet {
	return fleet{table.New(&levelSchema, h), cow.New[string, Capacity](strings.Compare)}
}

func (f *fleet) clone(h *table.Hasher) fleet { return fleet{f.levels.Clone(h), f.present.Clone()} }

// part is the share of one node in a resource.
type part struct {
	resource string
	Capacity
}

// partsOf returns the resources of a node. A nil node has none.
func partsOf(n *cluster.Node, u cluster.NodeUse) []part {
	if n == nil {
		return nil
	}
	out := n.Drain || n.Fault != ""
	cpus := part{cluster.ResourceCPU, Capacity{Total: int64(n.CPUs)}}
	switch free := int64(max(n.CPUs-u.CPUs, 0)); {
	case n.Liveness == cluster.Dead:
		cpus.Down = int64(n.CPUs)
	case out && !u.Whole:
		cpus.Drained = free
	}
	parts := []part{cpus}
	for i, g := range n.GPUs {
		name := cluster.ResourceGPU + ":" + g.Type
		at, known := slices.BinarySearchFunc(parts, name, func(p part, name string) int { return strings.Compare(p.resource, name) })
		if !known {
			parts = slices.Insert(parts, at, part{resource: name})
		}
		used := u.Whole || i < len(u.GPUs) && u.GPUs[i]
		parts[at].Total++
		switch {
		case n.Liveness == cluster.Dead, g.Fault != "" && !used:
			parts[at].Down++
		case out && !used:
			parts[at].Drained++
		}
	}
	return parts
}

// sound reports whether a node can use all of its resources.
func sound(n *cluster.Node) bool {
	return n.Liveness != cluster.Dead && !n.Drain && n.Fault == "" && !slices.ContainsFunc(n.GPUs, func(g cluster.GPU) bool { return g.Fault != "" })
}

// change records that a node with some parts has others now. At most that many levels are kept.
func (f *fleet) change(now cluster.Instant, before, after []part, most int) {
	if slices.Equal(before, after) {
		return
	}
	for _, p := range before {
		if !slices.Contains(after, p) {
			f.grow(now, p.resource, Capacity{}.plus(p.Capacity, -1))
		}
	}
	for _, p := range after {
		if !slices.Contains(before, p) {
			f.grow(now, p.resource, p.Capacity)
		}
	}
	for first, _, _ := f.levels.First(); f.levels.Len() > most && first.at < now; first, _, _ = f.levels.First() {
		f.dropFirst()
	}
}

func (f *fleet) grow(now cluster.Instant, resource string, by Capacity) {
	old, _ := f.present.Get(resource)
	sum := old.plus(by, 1)
	f.present.Set(resource, sum)
	f.levels.Set(level{now, resource}, sum)
}

// dropFirst removes the first instant; the levels begin at the second one.
func (f *fleet) dropFirst() {
	first, _, _ := f.levels.First()
	var old []part
	next := first.at
	for k, c := range f.levels.All() {
		if next = k.at; next > first.at {
			break
		}
		old = append(old, part{k.resource, c})
	}
	for _, p := range old {
		f.levels.Delete(level{first.at, p.resource})
		if k := (level{next, p.resource}); next > first.at && !f.levels.Has(k) {
			f.levels.Set(k, p.Capacity)
		}
	}
}

// CapacityTime is the capacity of a resource over a period: milliseconds times the resource.
type CapacityTime struct {
	Period   int
	Resource string
	Capacity
}

// CapacityTimes sums up the capacity of the nodes, by period and resource, for the periods between
// consecutive bounds and until an instant. Nothing is known before since: the registration of the
// first node, or later if levels were dropped. O(levels × log periods + periods × resources).
func (v *View) CapacityTimes(bounds []cluster.Instant, until cluster.Instant) (all []CapacityTime, since cluster.Instant) {
	const ms = cluster.Instant(time.Millisecond)
	sums := make(map[string][]Capacity)
	last := make(map[string]level)
	held := make(map[string]Capacity)
	add := func(resource string, to cluster.Instant) {
		if sums[resource] == nil {
			sums[resource] = make([]Capacity, len(bounds)-1)
		}
		first := max(sort.Search(len(bounds), func(i int) bool { return bounds[i] > last[resource].at })-1, 0)
		for i := first; i < len(bounds)-1 && bounds[i] < to; i++ {
			from, end := max(bounds[i], last[resource].at), min(bounds[i+1], to)
			if from < end {
				x, c := int64(end/ms-from/ms), held[resource]
				sums[resource][i] = sums[resource][i].plus(Capacity{c.Total * x, c.Down * x, c.Drained * x}, 1)
			}
		}
	}
	for k, c := range v.fleet.levels.All() {
		if since == 0 {
			since = k.at
		}
		add(k.resource, min(k.at, until))
		last[k.resource], held[k.resource] = k, c
	}
	for resource := range last {
		add(resource, until)
	}
	for resource, list := range sums {
		for i, c := range list {
			if c != (Capacity{}) {
				all = append(all, CapacityTime{i, resource, c})
			}
		}
	}
	slices.SortFunc(all, func(a, b CapacityTime) int {
		return cmp.Or(cmp.Compare(a.Period, b.Period), strings.Compare(a.Resource, b.Resource))
	})
	return all, since
}

func (f *fleet) read(c *codec.Coder) {
	if k, _ := f.levels.Decode(c); k.resource == "" || k.at <= 0 {
		c.Fail("a level of the fleet's %q is not well formed", k.resource)
	}
}

// presentFleet computes the capacity of all nodes. O(nodes).
func (x *nodeTables) presentFleet() cow.Map[string, Capacity] {
	all := cow.New[string, Capacity](strings.Compare)
	for name := range x.nodes.All() {
		for _, p := range x.partsOf(name) {
			sum, _ := all.Get(p.resource)
			all.Set(p.resource, sum.plus(p.Capacity, 1))
		}
	}
	return all
}

// checkFleet compares the capacity with the nodes.
func (x *nodeTables) checkFleet(fault func(string, ...any)) {
	want := x.presentFleet()
	last := make(map[string]Capacity)
	for k, c := range x.fleet.levels.All() {
		last[k.resource] = c
	}
	for resource, got := range x.fleet.present.All() {
		is, _ := want.Get(resource)
		if got != is || last[resource] != is {
			fault("capacity of %s: %+v, the last level is %+v, want %+v", resource, got, last[resource], is)
		}
	}
	for resource := range want.All() {
		if !x.fleet.present.Has(resource) {
			fault("the capacity of %s is missing", resource)
		}
	}
}
