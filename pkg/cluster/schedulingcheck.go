package cluster

import (
	"math"
	"slices"
	"strings"
	"time"
)

// Bounds of the scheduling policy.
const (
	maxWeight       = 1 << 40 // times the number of factors stays far inside int64
	maxReservations = 10_000
	// MaxBilling is the largest billing weight, in thousandths.
	MaxBilling = 1_000_000_000
)

// check reports values that are out of range or contradict each other. It does not read the node
// lists of reservations. O(size).
func (s *Scheduling) check(fault faultReporter) {
	if s.Depth < Unlimited {
		fault("scheduling.depth", "scheduling depth %d, want a number from 0 on, or unlimited", s.Depth)
	}
	if s.PromiseHorizon < Unlimited || s.PromiseHorizon > maxLimit {
		fault("scheduling.promise_horizon", "promise horizon %s is out of range", s.PromiseHorizon)
	}
	for _, d := range []struct {
		key, what string
		time      time.Duration
	}{
		{"scheduling.window", "scheduling window", s.Window}, {"scheduling.replan", "replan", s.Replan},
		{"scheduling.max_switch_wait", "max switch wait", s.MaxSwitchWait},
		{"scheduling.weights.max_age", "max age", s.Weights.MaxAge}, {"fair_share.half_life", "half life", s.FairShare.HalfLife},
	} {
		if d.time < 0 || d.time > maxLimit {
			fault(d.key, "%s %s is out of range", d.what, d.time)
		}
	}
	w := s.Weights
	for _, x := range []struct {
		name   string
		weight int64
	}{{"age", w.Age}, {"fair_share", w.FairShare}, {"job_size", w.JobSize}, {"partition", w.Partition}, {"qos", w.QOS}} {
		if x.weight < 0 || x.weight > maxWeight {
			fault("scheduling.weights."+x.name, "weight %d is out of range, 0 to %d", x.weight, int64(maxWeight))
		}
	}
	var names []string
	for _, b := range s.FairShare.Billing {
		names = append(names, b.Resource)
		if b.Milli < 0 || b.Milli > MaxBilling {
			fault("fair_share.billing."+b.Resource, "billing weight of %q is out of range, 0 to %d", b.Resource, MaxBilling/1000)
		}
	}
	checkUnique(fault.at("fair_share.billing"), "billed resource", names)
	names = nil
	for _, l := range s.Licences {
		names = append(names, l.Name)
		if l.Count < 0 || l.Count == math.MaxInt32 {
			fault("licences."+l.Name, "licence %q: a count of %d is out of range", l.Name, l.Count)
		}
	}
	checkUnique(fault.at("licences"), "licence", names)
	s.checkReservations(fault)
}

func (s *Scheduling) checkReservations(fault faultReporter) {
	if len(s.Reservations) > maxReservations {
		fault("reservation", "%d reservations, at most %d", len(s.Reservations), maxReservations)
		return
	}
	var names []string
	for i := range s.Reservations {
		r, at := &s.Reservations[i], element("reservation", i)
		names = append(names, r.Name)
		switch {
		case r.Start <= 0 || r.End <= r.Start:
			fault(at+".end", "reservation %q ends before it starts, or has no start", r.Name)
		case len(r.Nodes) == 0:
			fault(at+".nodes", "reservation %q names no nodes", r.Name)
		case len(r.Nodes) > maxList:
			fault(at+".nodes", "reservation %q: too many node lists", r.Name)
		}
		checkName(fault.at(at+".reason"), "reason of a reservation", r.Why, maxText)
		for k, u := range r.Users {
			checkWord(fault.at(element(at+".users", k)), "user", u)
		}
		for k, a := range r.Accounts {
			checkWord(fault.at(element(at+".accounts", k)), "account", a)
		}
	}
	checkUnique(fault.at("reservation"), "reservation", names)
}

// checkUnique requires that names are words and unique.
func checkUnique(fault func(string, ...any), what string, names []string) {
	seen := make(map[string]bool, len(names))
	for _, n := range names {
		checkWord(fault, what, n)
		if seen[n] {
			fault("%s %q is named twice", what, n)
		}
		seen[n] = true
	}
}

// Reservation finds a reservation by name.
func (s *Scheduling) Reservation(name string) (*Reservation, bool) {
	i := slices.IndexFunc(s.Reservations, func(r Reservation) bool { return r.Name == name })
	if i < 0 {
		return nil, false
	}
	return &s.Reservations[i], true
}

// Admits reports whether jobs of a user and an account may use the reservation.
func (r *Reservation) Admits(user, account string) bool {
	return slices.Contains(r.Users, user) || account != "" && slices.Contains(r.Accounts, account)
}

// Maintenance reports whether the reservation admits no jobs.
func (r *Reservation) Maintenance() bool { return len(r.Users)+len(r.Accounts) == 0 }

// Before is negative when the reservation takes precedence on nodes that it shares with another at
// the same time: maintenance first, then by name. It is 0 only for the same reservation.
func (r *Reservation) Before(o *Reservation) int {
	switch {
	case r.Maintenance() == o.Maintenance():
		return strings.Compare(r.Name, o.Name)
	case r.Maintenance():
		return -1
	}
	return 1
}

// Licence returns the number of a licence, and whether it is defined.
func (s *Scheduling) Licence(name string) (int32, bool) {
	i := slices.IndexFunc(s.Licences, func(l Licence) bool { return l.Name == name })
	if i < 0 {
		return 0, false
	}
	return s.Licences[i].Count, true
}
