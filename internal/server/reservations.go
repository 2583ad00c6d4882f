package server

import (
	"slices"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/server/joblist"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// reservedNow returns the reservations that hold each node now, by node.
func reservedNow(v *state.View) map[string][]string {
	var reserved map[string][]string
	rules := &v.Policy().Scheduling
	for i := range rules.Reservations {
		r := &rules.Reservations[i]
		if standing(r, v.Now()) != "ACTIVE" {
			continue
		}
		if reserved == nil {
			reserved = map[string][]string{}
		}
		for _, name := range reservedNodes(v, r) {
			reserved[name] = append(reserved[name], r.Name)
		}
	}
	return reserved
}

// standing is the position of an instant relative to the interval of a reservation.
func standing(r *cluster.Reservation, now cluster.Instant) string {
	switch {
	case now < r.Start:
		return "INACTIVE"
	case now < r.End:
		return "ACTIVE"
	}
	return "OVER"
}

// reservedNodes returns the registered nodes that a reservation names, by name.
func reservedNodes(v *state.View, r *cluster.Reservation) []string {
	var all []string
	for _, expr := range r.Nodes {
		if expr == "ALL" {
			all = all[:0]
			for n := range v.Nodes() {
				all = append(all, n.Name)
			}
			break
		}
		names, _ := hostlist.Expand(expr) // checked when the policy was set
		for _, name := range names {
			if _, known := v.Node(name); known {
				all = append(all, name)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// reservations returns all reservations. O(nodes of each + active jobs).
func reservations(v *state.View, visibility *joblist.Visibility) []*greylagv1.ReservationInfo {
	rules := &v.Policy().Scheduling
	if len(rules.Reservations) == 0 {
		return nil
	}
	jobs := map[string][]*greylagv1.ReservedJob{}
	for j := range v.Jobs(0) {
		name := j.Spec.Reservation // before anything of it is hidden
		if name == "" || j.State.Final() {
			continue
		}
		if j = visibility.See(j); j != nil {
			jobs[name] = append(jobs[name], &greylagv1.ReservedJob{Job: j.Ref().String(), User: j.Spec.Owner.User, State: greylagv1.JobState(j.State)})
		}
	}
	var list []*greylagv1.ReservationInfo
	for i := range rules.Reservations {
		r := &rules.Reservations[i]
		names := reservedNodes(v, r)
		p := &greylagv1.ReservationInfo{
			Name: r.Name, Start: wire.Timestamp(r.Start), End: wire.Timestamp(r.End), State: wire.Enum[greylagv1.ReservationState](standing(r, v.Now())), Users: r.Users, Accounts: r.Accounts,
			Maintenance: r.Maintenance(), NodeList: hostlist.Compress(names), Nodes: int32(len(names)), Reason: r.Why, Jobs: jobs[r.Name],
		}
		for _, name := range names {
			n, _ := v.Node(name)
			p.Gpus += int32(len(n.GPUs))
			for _, used := range v.Use(name).GPUs {
				if used {
					p.GpusUsed++
				}
			}
		}
		list = append(list, p)
	}
	return list
}
