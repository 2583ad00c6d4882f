package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/schedule/plan"
	"github.com/greylag/greylag/pkg/backfill"
)

// reservedFor returns which reservations alone keep the jobs of a class from starting now, or when their own
// reservation begins. Without them the jobs fit into what no job has, or into an empty cluster. "" when no
// reservation does. O(hosts).
func reservedFor(p *plan.Pass, c *plan.Class, fits bool) string {
	res, profile := p.Resources(), p.Bookings().Profile
	reserved := res.ReservedNodes()
	if len(reserved) == 0 {
		return ""
	}
	from := p.Snap.Now
	if x, known := p.Snap.Policy.Scheduling.Reservation(c.Spec.Reservation); known {
		from = max(from, x.Start)
	}
	end := from.Add(res.HoldTime(c.Spec))
	var which []string
	var nodes []string
	maintenance := true                              // and nothing else
	open := make([]backfill.Amount, profile.Hosts()) // of an empty cluster, without what is reserved
	free, _ := p.Unallocated()
	left := slices.Clone(free)
	filter := res.Filter(&c.Spec.Request)
	for h := range open {
		open[h] = profile.All(h)
	}
	if from > p.Snap.Now { // what running jobs have may be free by then
		left = slices.Clone(open)
	}
	for _, name := range reserved {
		h, others, ok := res.HostOf(c.Spec, name)
		for _, other := range others {
			if !ok || other.Start >= end || other.End <= from {
				continue
			}
			open[h], left[h] = backfill.Amount{}, backfill.Amount{}
			if c.MayUse(h) && filter.Suits(res.Nodes[name]) {
				which, nodes = append(which, other.Name), append(nodes, name)
				maintenance = maintenance && other.Maintenance()
			}
		}
	}
	if len(which) == 0 || p.Bookings().FitsIn(c, left, nil) || !fits && p.Bookings().FitsIn(c, open, nil) {
		return ""
	}
	slices.Sort(which)
	slices.Sort(nodes)
	which, nodes = slices.Compact(which), slices.Compact(nodes)
	word, kept := "reservation", "nodes %s are"
	switch {
	case maintenance:
		word = "maintenance"
	case len(which) > 1:
		word = "reservations"
	}
	if len(nodes) == 1 {
		kept = "node %s is"
	}
	return fmt.Sprintf("%s; "+kept+" kept by %s %s before it could end", c.Needs(), hostlist.Compress(nodes), word, strings.Join(which, ", "))
}
