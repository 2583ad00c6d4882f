package backfill

import (
	"slices"
	"sort"

	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// Profile is what is free on each host from now on.
//
// Invariant: the steps of a host are ascending in from; the first begins at now;
// each lasts until the next begins and the last for ever.
type Profile struct {
	now    cluster.Instant
	rows   []row
	byName map[string]int
	effort int

	free  []topology.Free // room used again by every search
	turns []turn
}

// row is one host's free resources over time.
type row []step

type step struct {
	from cluster.Instant
	free topology.Free
}

// New is the profile of hosts that are all free from now on. The hosts are taken
// in order of name, whatever order they come in. effort bounds how many steps
// Earliest may look at in all, so that one pass over a long queue ends in time.
func New(now cluster.Instant, hosts []*topology.Host, effort int) *Profile {
	hosts = slices.Clone(hosts)
	sort.Slice(hosts, func(i, j int) bool { return hosts[i].Name < hosts[j].Name })
	p := &Profile{now: now, effort: effort, byName: make(map[string]int, len(hosts))}
	for i, h := range hosts {
		p.rows = append(p.rows, row{{now, topology.AllOf(h)}})
		p.byName[h.Name] = i
	}
	return p
}

// Hosts counts the hosts; they are known by their place in the order of names.
func (p *Profile) Hosts() int { return len(p.rows) }

// Host is the host at a place.
func (p *Profile) Host(i int) *topology.Host { return p.rows[i][0].free.Host }

// Place finds a host by name.
func (p *Profile) Place(name string) (int, bool) {
	i, ok := p.byName[name]
	return i, ok
}

// Now is what is free at this moment on a host, whatever is taken later.
func (p *Profile) Now(i int) topology.Free { return p.rows[i][0].free }

// Exhausted reports whether Earliest has used up its effort.
func (p *Profile) Exhausted() bool { return p.effort <= 0 }

// Take gives an allocation away from one instant until another; what lies before
// now is cut off. Nodes that the profile does not know are passed over. O(steps)
// for each node.
func (p *Profile) Take(from, to cluster.Instant, nodes []cluster.NodeAllocation) {
	from = max(from, p.now)
	if to <= from || from == cluster.Never {
		return
	}
	for i := range nodes {
		a := &nodes[i]
		host, ok := p.byName[a.Node]
		if !ok {
			continue
		}
		r := &p.rows[host]
		first, gpus := r.cut(from), topology.SetOf(a.GPUs)
		last := len(*r)
		if to != cluster.Never {
			last = r.cut(to)
		}
		for s := first; s < last; s++ {
			(*r)[s].free = (*r)[s].free.Less(gpus, a.CPUs, a.Memory)
		}
	}
}

// cut makes a step begin at an instant, not before the row does, and returns its place.
func (r *row) cut(at cluster.Instant) int {
	i := sort.Search(len(*r), func(i int) bool { return (*r)[i].from >= at })
	if i < len(*r) && (*r)[i].from == at {
		return i
	}
	*r = slices.Insert(*r, i, step{at, (*r)[i-1].free})
	return i
}

// window is what of a row stays free from an instant on for as long as a job lasts.
func (r row) window(from, to cluster.Instant) topology.Free {
	i := sort.Search(len(r), func(i int) bool { return r[i].from > from }) - 1
	free := r[i].free
	for i++; i < len(r) && r[i].from < to; i++ {
		free = free.Both(r[i].free)
	}
	return free
}
