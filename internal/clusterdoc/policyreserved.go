package clusterdoc

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/config/strict"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/pkg/cluster"
)

// booking is an ordinary reservation with its nodes.
type booking struct {
	*reservation
	place int // in the file
	nodes []string
	all   bool
}

// apart reports nodes that are in two reservations at the same time, since each would promise them
// to others. A maintenance window may overlap any, since no job runs in it. Each reservation is
// reported with one earlier reservation at most. O(nodes of each).
func (p *policy) apart(c *strict.Checker) {
	var last, everywhere *booking // the ones that end last: of all reservations, and of those of all nodes
	on := map[string]*booking{}   // the same, by node
	for _, b := range p.bookings() {
		clash := everywhere
		if b.all {
			clash = last
		}
		for _, node := range b.nodes {
			if x := on[node]; x != nil && (clash == nil || x.End > clash.End) {
				clash = x
			}
			on[node] = later(on[node], b)
		}
		if clash != nil && clash.End > b.Start {
			b.fault(c, clash)
		}
		if last = later(last, b); b.all {
			everywhere = later(everywhere, b)
		}
	}
}

// bookings returns the valid ordinary reservations, in order of their starts.
func (p *policy) bookings() []*booking {
	var list []*booking
	for i := range p.Reservations {
		r := &p.Reservations[i]
		if len(r.Users)+len(r.Accounts) == 0 || r.Start == 0 || r.End <= r.Start {
			continue
		}
		b := &booking{reservation: r, place: i}
		for _, expr := range r.Nodes {
			names, _ := hostlist.Expand(expr) // the fault is reported elsewhere
			b.nodes, b.all = append(b.nodes, names...), b.all || expr == "ALL"
		}
		if slices.Sort(b.nodes); b.all {
			b.nodes = nil
		}
		b.nodes = slices.Compact(b.nodes)
		list = append(list, b)
	}
	slices.SortStableFunc(list, func(a, b *booking) int { return cmp.Compare(a.Start, b.Start) })
	return list
}

// later returns the one that ends last; a may be nil.
func later(a, b *booking) *booking {
	if a == nil || b.End > a.End {
		return b
	}
	return a
}

// fault reports what two reservations share, at the one that stands lower in the file.
func (b *booking) fault(c *strict.Checker, o *booking) {
	if o.place > b.place {
		b, o = o, b
	}
	shared := "every node"
	switch {
	case b.all && !o.all:
		shared = hostlist.Compress(o.nodes)
	case o.all && !b.all:
		shared = hostlist.Compress(b.nodes)
	case !b.all:
		shared = hostlist.Compress(slices.DeleteFunc(slices.Clone(b.nodes), func(n string) bool {
			_, in := slices.BinarySearch(o.nodes, n)
			return !in
		}))
	}
	c.Fault(fmt.Sprintf("reservation[%d].nodes", b.place), "reservation %q has %s from %s to %s, and so has reservation %q: give one of them other nodes or another time",
		b.Name, shared, stamp(max(b.Start, o.Start)), stamp(min(b.End, o.End)), o.Name)
}

func stamp(m moment) string { return cluster.Instant(m).Time().UTC().Format(time.RFC3339) }
