package plan

import (
	"cmp"
	"slices"

	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
)

// A reserved node is several hosts: one for jobs that name no reservation, and one for the members of
// each of its reservations. At any instant at most one of them is open, so that no GPU is planned twice.

// reservedHost is the host of a node for the members of a reservation.
type reservedHost struct {
	host        int // noHost under maintenance
	reservation *cluster.Reservation
}

// noHost stands for the host of a maintenance window, which has no members. A host that is always
// closed would cost the search index all its entries.
const noHost = -1

// ReservationsOf returns the reservations of a snapshot; the one that has a node first comes first. A
// maintenance window may overlap any, and ordinary ones may overlap too.
func ReservationsOf(snap *cluster.Snapshot) []*cluster.Reservation {
	list := make([]*cluster.Reservation, len(snap.Policy.Scheduling.Reservations))
	for i := range list {
		list[i] = &snap.Policy.Scheduling.Reservations[i]
	}
	slices.SortFunc(list, (*cluster.Reservation).Before)
	return list
}

// reserve adds a host for each node of a reservation that has not ended.
func (r *Resources) reserve(x *cluster.Reservation, now cluster.Instant) {
	if x.End <= now {
		return
	}
	member := cluster.ParseNodeNames(x.Nodes)
	for h := range len(r.index) {
		name := r.Hosts[h].Name
		if !member.Has(name) {
			continue
		}
		if x.Maintenance() {
			r.reserved[name] = append(r.reserved[name], reservedHost{noHost, x})
			continue
		}
		r.reserved[name] = append(r.reserved[name], reservedHost{len(r.Hosts), x})
		r.Hosts = append(r.Hosts, r.Hosts[h])
		for level := range r.levels {
			r.levels[level] = append(r.levels[level], r.levels[level][h])
		}
	}
}

// block closes nodes to other jobs while they are reserved, and to members while they are not, or
// while another reservation has them, and leased nodes from the end of their leases on.
func (r *Resources) block(p *backfill.Profile) {
	for _, n := range r.leased {
		if len(r.reserved[n.Name]) == 0 {
			p.RestrictHost(r.index[n.Name], 0, n.Rental.Until)
		}
	}
	for name, reserved := range r.reserved {
		var taken intervals
		if x := &r.Nodes[name].Rental; x.Lease != 0 {
			taken = taken.with(interval{x.Until, cluster.Never})
		}
		for _, t := range reserved {
			own := interval{t.reservation.Start, t.reservation.End}
			if t.host != noHost {
				p.RestrictHost(t.host, own.from, own.to)
				for _, s := range taken.over(own) {
					intervals{{max(s.from, own.from), min(s.to, own.to)}}.block(p, t.host)
				}
			}
			taken = taken.with(own)
		}
		taken.block(p, r.index[name])
	}
}

// HostOf returns the host of a node for a job, and the reservations that may keep the node from the job;
// false when the job's own reservation does not have the node.
func (r *Resources) HostOf(spec *cluster.JobSpec, node string) (host int, others []*cluster.Reservation, ok bool) {
	host, kept, ok := r.hostOf(spec, node)
	for i := range kept {
		others = append(others, kept[i].reservation)
	}
	return host, others, ok
}

func (r *Resources) hostOf(spec *cluster.JobSpec, node string) (host int, others []reservedHost, ok bool) {
	reserved := r.reserved[node]
	if spec.Reservation == "" {
		host, ok = r.index[node]
		return host, reserved, ok
	}
	for i, t := range reserved {
		if t.reservation.Name == spec.Reservation {
			return t.host, reserved[:i], t.host != noHost
		}
	}
	return 0, nil, false
}

// nextEdge returns when the first of some reservations begins or ends after an instant.
func nextEdge(all []cluster.Reservation, after cluster.Instant) cluster.Instant {
	at := cluster.Never
	for i := range all {
		at = min(at, edge(&all[i], after))
	}
	return at
}

// edge returns when a reservation begins or ends after an instant; [cluster.Never] if it has ended.
func edge(x *cluster.Reservation, after cluster.Instant) cluster.Instant {
	switch {
	case x.Start > after:
		return x.Start
	case x.End > after:
		return x.End
	}
	return cluster.Never
}

// interval is a half-open interval of time.
type interval struct{ from, to cluster.Instant }

// intervals are ordered, and no two of them touch.
type intervals []interval

// with adds an interval. O(log intervals + joined intervals).
func (l intervals) with(s interval) intervals {
	i, _ := slices.BinarySearchFunc(l, s.from, func(x interval, from cluster.Instant) int { return cmp.Compare(x.to, from) })
	j := i
	for ; j < len(l) && l[j].from <= s.to; j++ {
		s.from, s.to = min(s.from, l[j].from), max(s.to, l[j].to)
	}
	return slices.Replace(l, i, j, s)
}

// over returns those that overlap another interval.
func (l intervals) over(s interval) intervals {
	i, _ := slices.BinarySearchFunc(l, s.from+1, func(x interval, from cluster.Instant) int { return cmp.Compare(x.to, from) })
	j := i
	for j < len(l) && l[j].from < s.to {
		j++
	}
	return l[i:j]
}

// block closes a host during the intervals.
func (l intervals) block(p *backfill.Profile, host int) {
	for _, s := range l {
		p.Take(host, s.from, s.to, &backfill.Amount{Slots: backfill.Blocked})
	}
}
