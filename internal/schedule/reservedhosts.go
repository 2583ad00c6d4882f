package schedule

import (
	"cmp"
	"slices"

	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
)

// A node that is reserved is two hosts or more: its own place, for jobs that name no
// reservation, and a twin for the members of each that has it. At no instant is more than
// one of them open, so that nothing is planned twice.

// reservedHost stands for a node within a reservation: what its members may use.
type reservedHost struct {
	host        int // nobody's under maintenance
	reservation *cluster.Reservation
}

// noHost is the host of those who have none: a host that is closed for ever would cost the
// index all that it knows of time.
const noHost = -1

// reservationsOf is the reservations of a snapshot, those first that have their nodes
// before others: a maintenance window may lie over any, and a state may hold ordinary ones
// that overlap, since a policy of before was not refused for it.
func reservationsOf(snap *cluster.Snapshot) []*cluster.Reservation {
	list := make([]*cluster.Reservation, len(snap.Policy.Scheduling.Reservations))
	for i := range list {
		list[i] = &snap.Policy.Scheduling.Reservations[i]
	}
	slices.SortFunc(list, (*cluster.Reservation).Before)
	return list
}

// reserve adds a twin of each node of a reservation that is not over.
func (g *resources) reserve(x *cluster.Reservation, now cluster.Instant) {
	if x.End <= now {
		return
	}
	member := cluster.ParseNodeNames(x.Nodes)
	for h := range len(g.places) {
		name := g.hosts[h].Name
		if !member.Has(name) {
			continue
		}
		if x.Maintenance() {
			g.twins[name] = append(g.twins[name], reservedHost{noHost, x})
			continue
		}
		g.twins[name] = append(g.twins[name], reservedHost{len(g.hosts), x})
		g.hosts = append(g.hosts, g.hosts[h])
		for level := range g.levels {
			g.levels[level] = append(g.levels[level], g.levels[level][h])
		}
	}
}

// block makes nodes unusable to others while they are reserved, and their twins to
// members while they are not, or another reservation has them.
func (g *resources) block(p *backfill.Profile) {
	for name, twins := range g.twins {
		var taken intervals
		for _, t := range twins {
			own := interval{t.reservation.Start, t.reservation.End}
			if t.host != noHost {
				p.Only(t.host, own.from, own.to)
				for _, s := range taken.over(own) {
					intervals{{max(s.from, own.from), min(s.to, own.to)}}.wall(p, t.host)
				}
			}
			taken = taken.with(own)
		}
		taken.wall(p, g.places[name])
	}
}

// hostOf is the host at which a job finds a node, and the reservations that may have the
// node in its way; false when its own reservation has no such node.
func (g *resources) hostOf(spec *cluster.JobSpec, node string) (host int, others []reservedHost, ok bool) {
	twins := g.twins[node]
	if spec.Reservation == "" {
		host, ok = g.places[node]
		return host, twins, ok
	}
	for i, t := range twins {
		if t.reservation.Name == spec.Reservation {
			return t.host, twins[:i], t.host != noHost
		}
	}
	return 0, nil, false
}

// openings asks again what is planned on nodes of which a reservation or maintenance began or
// ended since the last pass: no job does then, and a start that is planned there for later may
// have lost what it waited behind.
func (s *incrementalPass) openings() {
	now, last := s.r.snap.Now, s.last
	if turning(last.Policy.Scheduling.Reservations, last.Now) > now {
		return
	}
	for name, twins := range s.ground.twins {
		if !slices.ContainsFunc(twins, func(t reservedHost) bool { return turn(t.reservation, last.Now) <= now }) {
			continue
		}
		s.hosts[s.ground.places[name]] = true
		for _, t := range twins {
			if t.host != noHost {
				s.hosts[t.host] = true
			}
		}
	}
}

// turning is when the first of some reservations begins or ends after an instant.
func turning(all []cluster.Reservation, after cluster.Instant) cluster.Instant {
	at := cluster.Never
	for i := range all {
		at = min(at, turn(&all[i], after))
	}
	return at
}

// turn is when a reservation begins or ends after an instant; never when it did.
func turn(x *cluster.Reservation, after cluster.Instant) cluster.Instant {
	switch {
	case x.Start > after:
		return x.Start
	case x.End > after:
		return x.End
	}
	return cluster.Never
}

// interval is from one instant until before another.
type interval struct{ from, to cluster.Instant }

// intervals are in order and do not touch.
type intervals []interval

// with adds one. O(log intervals), and what it joins.
func (l intervals) with(s interval) intervals {
	i, _ := slices.BinarySearchFunc(l, s.from, func(x interval, from cluster.Instant) int { return cmp.Compare(x.to, from) })
	j := i
	for ; j < len(l) && l[j].from <= s.to; j++ {
		s.from, s.to = min(s.from, l[j].from), max(s.to, l[j].to)
	}
	return slices.Replace(l, i, j, s)
}

// over is those that overlap another.
func (l intervals) over(s interval) intervals {
	i, _ := slices.BinarySearchFunc(l, s.from+1, func(x interval, from cluster.Instant) int { return cmp.Compare(x.to, from) })
	j := i
	for j < len(l) && l[j].from < s.to {
		j++
	}
	return l[i:j]
}

// wall lets nothing onto a host meanwhile.
func (l intervals) wall(p *backfill.Profile, host int) {
	for _, s := range l {
		p.Take(host, s.from, s.to, &backfill.Amount{Slots: backfill.Blocked})
	}
}
