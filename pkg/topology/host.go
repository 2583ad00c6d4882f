package topology

import (
	"cmp"
	"slices"
	"strings"

	"github.com/greylag/greylag/pkg/cluster"
)

// Host is what one node has, in the form that placing needs. It never changes.
type Host struct {
	Name   string
	CPUs   int32
	Memory cluster.Bytes
	Size   cluster.NodeSize
	Gres   []cluster.Gres
	GPUs   GPUSet  // the healthy ones
	whole  GPUSet  // those that are no MIG instances
	kinds  []group // by type
	links  []group // by NVLink domain; only GPUs that are in one
	Pools  []Pool  // the healthy ones again, by type, memory and NVLink domain
}

// Pool is interchangeable GPUs of a host: of one type and memory, in one NVLink domain.
type Pool struct {
	Kind   string
	Memory cluster.Bytes // of each GPU
	Domain string        // "" when they are in none
	GPUs   GPUSet
}

// pooled adds a GPU to its pool.
func pooled(pools []Pool, g *cluster.GPU) []Pool {
	for i := range pools {
		if p := &pools[i]; p.Kind == g.Type && p.Memory == g.Memory && p.Domain == g.Domain {
			p.GPUs = p.GPUs.With(g.Index)
			return pools
		}
	}
	return append(pools, Pool{g.Type, g.Memory, g.Domain, GPUSet{}.With(g.Index)})
}

// group is GPUs with one property in common.
type group struct {
	name string
	gpus GPUSet
}

// NewHost describes a node. GPUs that are not healthy are left out.
func NewHost(n *cluster.Node) *Host {
	h := &Host{Name: n.Name, CPUs: n.CPUs, Memory: n.Memory, Size: n.Size(), Gres: n.Gres}
	for i := range n.GPUs {
		g := &n.GPUs[i]
		if g.Fault != "" {
			continue
		}
		h.GPUs = h.GPUs.With(g.Index)
		if !cluster.IsMIGProfile(g.Type) {
			h.whole = h.whole.With(g.Index)
		}
		h.kinds = grouped(h.kinds, g.Type, g.Index)
		h.Pools = pooled(h.Pools, g)
		if g.Domain != "" {
			h.links = grouped(h.links, g.Domain, g.Index)
		}
	}
	byName := func(a, b group) int { return strings.Compare(a.name, b.name) }
	slices.SortFunc(h.kinds, byName)
	slices.SortFunc(h.links, byName)
	slices.SortFunc(h.Pools, func(a, b Pool) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), cmp.Compare(a.Memory, b.Memory), strings.Compare(a.Domain, b.Domain))
	})
	return h
}

func grouped(groups []group, name string, index int32) []group {
	for i := range groups {
		if groups[i].name == name {
			groups[i].gpus = groups[i].gpus.With(index)
			return groups
		}
	}
	return append(groups, group{name, GPUSet{}.With(index)})
}

// OfType returns the host's healthy GPUs of a type; "" means any whole GPU.
func (h *Host) OfType(kind string) GPUSet {
	if kind == "" {
		return h.whole
	}
	for _, g := range h.kinds {
		if g.name == kind {
			return g.gpus
		}
	}
	return GPUSet{}
}

// Free is what of a host may be used, now or during some interval.
type Free struct {
	Host   *Host
	GPUs   GPUSet
	CPUs   int32
	Memory cluster.Bytes
	Idle   bool // no job uses the host
}

// AllOf returns a host on which nothing is allocated.
func AllOf(h *Host) Free {
	return Free{Host: h, GPUs: h.GPUs, CPUs: h.CPUs, Memory: h.Memory, Idle: true}
}

// Less returns what is left of f when a job takes this much of it.
func (f Free) Less(gpus GPUSet, cpus int32, memory cluster.Bytes) Free {
	f.GPUs, f.CPUs, f.Memory, f.Idle = f.GPUs.Minus(gpus), f.CPUs-cpus, f.Memory-memory, false
	return f
}

// Both returns what is free in f and in o, which are one host at different times.
func (f Free) Both(o Free) Free {
	f.GPUs = f.GPUs.And(o.GPUs)
	f.CPUs, f.Memory = min(f.CPUs, o.CPUs), min(f.Memory, o.Memory)
	f.Idle = f.Idle && o.Idle
	return f
}
