package schedule

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// keptFrom says which reservations keep the jobs of a class from starting now, or when their
// own reservation begins, when nothing else does: they would fit into what no job has, or
// into an empty cluster, were it not for nodes that are reserved before they could end. ""
// when there are none. O(hosts).
func (p *Planner) keptFrom(r *pass, c *requestClass) string {
	if len(p.ground.twins) == 0 {
		return ""
	}
	from := r.snap.Now
	if x, known := r.snap.Policy.Scheduling.Reservation(c.spec.Reservation); known {
		from = max(from, x.Start)
	}
	end := from.Add(p.ground.holdTime(c.spec))
	var which []string
	var nodes []string
	repair := true                                     // nothing else
	open := make([]backfill.Amount, p.profile.Hosts()) // of an empty cluster, without what is reserved
	left := slices.Clone(r.freeNow(p))
	filter := p.ground.filter(&c.spec.Request)
	for h := range open {
		open[h] = p.profile.All(h)
	}
	if from > r.snap.Now { // when what jobs have now may be free
		left = slices.Clone(open)
	}
	for name := range p.ground.twins {
		h, others, ok := p.ground.hostOf(c.spec, name)
		for _, t := range others {
			if !ok || t.reservation.Start >= end || t.reservation.End <= from {
				continue
			}
			open[h], left[h] = backfill.Amount{}, backfill.Amount{}
			if c.may(h) && filter.Suits(p.ground.nodes[name]) {
				which, nodes = append(which, t.reservation.Name), append(nodes, name)
				repair = repair && t.reservation.Maintenance()
			}
		}
	}
	if len(which) == 0 || p.fitsIn(c, left, nil) || !c.fits && p.fitsIn(c, open, nil) {
		return ""
	}
	slices.Sort(which)
	slices.Sort(nodes)
	which, nodes = slices.Compact(which), slices.Compact(nodes)
	word, kept := "reservation", "nodes %s are"
	switch {
	case repair:
		word = "maintenance"
	case len(which) > 1:
		word = "reservations"
	}
	if len(nodes) == 1 {
		kept = "node %s is"
	}
	return fmt.Sprintf("%s; "+kept+" kept by %s %s before it could end", c.needs(), hostlist.Compress(nodes), word, strings.Join(which, ", "))
}

// may reports whether a host is in one of the partitions in which the class may run.
func (c *requestClass) may(h int) bool {
	return slices.ContainsFunc(c.options, func(o option) bool { return o.part.usable.Has(h) })
}

// inReservation is those nodes of a list that the job's reservation has, or all when it
// names none.
func (p *Planner) inReservation(r *pass, spec *cluster.JobSpec, nodes []*cluster.Node) []*cluster.Node {
	if spec.Reservation == "" {
		return nodes
	}
	x, known := r.snap.Policy.Scheduling.Reservation(spec.Reservation)
	if !known {
		return nil
	}
	member := cluster.ParseNodeNames(x.Nodes)
	return slices.DeleteFunc(slices.Clone(nodes), func(n *cluster.Node) bool { return !member.Has(n.Name) })
}

// impossible is why no job of a class could start even if nothing ran, for each of its
// partitions. The reason is that of the first with nodes that may come back.
func (p *Planner) impossible(r *pass, c *requestClass, need topology.Need) verdict {
	var found verdict
	var all []string
	for _, name := range partitions(c.spec) {
		if _, refuses := p.ground.refusalBy(c.spec, name); refuses {
			continue // it is named in c.refused
		}
		v := p.impossibleIn(r, c, need, p.ground.parts[name])
		why := strings.TrimPrefix(v.detail, c.needs()+"; ")
		if !strings.Contains(why, strconv.Quote(name)) {
			why = fmt.Sprintf("in partition %q %s", name, why)
		}
		all = append(all, why)
		if found.reason == cluster.ReasonNone || found.reason != cluster.ReasonReqNodeNotAvail && v.reason == cluster.ReasonReqNodeNotAvail {
			found = v
		}
	}
	switch len(all) {
	case 0:
		found, _ = p.barredByPartitions(c.spec)
		return found
	case 1:
	default:
		found.detail = c.needs() + "; " + strings.Join(all, "; ")
	}
	found.detail += c.refused
	return found
}

// impossibleIn is why no job of a class could start in one partition even if nothing ran:
// because of nodes that may not be used now, of its reservation, or of what there is at all.
func (p *Planner) impossibleIn(r *pass, c *requestClass, need topology.Need, part *part) verdict {
	need.Most = part.MaxNodes
	var open []*cluster.Node
	for name, h := range p.ground.places {
		if part.usable.Has(h) {
			open = append(open, p.ground.nodes[name])
		}
	}
	request := c.spec.Request
	fits := func(lists ...[]*cluster.Node) (ok bool, used []string) {
		filter := p.ground.filter(&request)
		var all []topology.Free
		for i, list := range lists {
			for _, n := range list {
				if !filter.Suits(n) {
					continue
				}
				host := topology.NewHost(n)
				if h, ok := p.ground.places[n.Name]; ok {
					host = p.ground.hosts[h]
				}
				all = append(all, topology.AllOf(host))
				if i > 0 {
					used = append(used, n.Name)
				}
			}
		}
		_, ok = topology.Place(all, &need)
		return ok, used
	}
	if ok, closed := fits(p.inReservation(r, c.spec, open), p.inReservation(r, c.spec, part.closed)); ok && len(closed) > 0 {
		return verdict{cluster.ReasonReqNodeNotAvail, c.needs() + "; that takes nodes that are not available: " + hostlist.Compress(closed)}
	}
	if c.spec.Reservation != "" {
		if ok, _ := fits(open, part.closed); ok {
			return verdict{cluster.ReasonReservation, c.needs() + fmt.Sprintf("; the nodes of reservation %q in partition %q can never give that", c.spec.Reservation, part.Name)}
		}
	}
	for _, cap := range []struct {
		set  bool
		drop func()
		says string
	}{
		{request.MaxPrice > 0, func() { request.MaxPrice = 0 }, "every node that could give that costs more than --max-price"},
		{len(request.Regions) > 0, func() { request.Regions = nil }, "no node of " + strings.Join(request.Regions, ", ") + " could give that"},
	} {
		if !cap.set {
			continue
		}
		cap.drop()
		if ok, _ := fits(p.inReservation(r, c.spec, open), p.inReservation(r, c.spec, part.closed)); ok {
			return verdict{cluster.ReasonReqNodeNotAvail, c.needs() + "; " + cap.says}
		}
	}
	if over := c.bounded(); over != "" {
		return verdict{cluster.ReasonBadConstraints, c.needs() + over}
	}
	return verdict{cluster.ReasonBadConstraints, c.needs() + fmt.Sprintf("; the nodes of partition %q that it may use can never give that", part.Name)}
}
