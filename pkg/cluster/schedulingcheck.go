package cluster

import (
	"math"
	"slices"
	"time"
)

// Bounds of the scheduling policy.
const (
	maxWeight       = 1 << 40 // times the number of factors stays far inside int64
	maxReservations = 10_000
	// MaxBilling is the heaviest billing weight, in thousandths.
	MaxBilling = 1_000_000_000
)

// check reports what is out of range or does not fit together. It does not read the
// node lists of reservations. O(size).
func (s *Scheduling) check(fault func(string, ...any)) {
	if s.Depth < Unlimited {
		fault("scheduling depth %d, want a number from 0 on, or unlimited", s.Depth)
	}
	if s.PromiseHorizon < Unlimited || s.PromiseHorizon > maxLimit {
		fault("promise horizon %s is out of range", s.PromiseHorizon)
	}
	for _, d := range []struct {
		what string
		time time.Duration
	}{
		{"scheduling window", s.Window}, {"replan", s.Replan}, {"max switch wait", s.MaxSwitchWait},
		{"max age", s.Weights.MaxAge}, {"half life", s.FairShare.HalfLife},
	} {
		if d.time < 0 || d.time > maxLimit {
			fault("%s %s is out of range", d.what, d.time)
		}
	}
	w := s.Weights
	for _, n := range []int64{w.Age, w.FairShare, w.JobSize, w.Partition, w.QOS} {
		if n < 0 || n > maxWeight {
			fault("weight %d is out of range, 0 to %d", n, int64(maxWeight))
		}
	}
	var names []string
	for _, b := range s.FairShare.Billing {
		names = append(names, b.Resource)
		if b.Milli < 0 || b.Milli > MaxBilling {
			fault("billing weight of %q is out of range, 0 to %d", b.Resource, MaxBilling/1000)
		}
	}
	checkUnique(fault, "billed resource", names)
	names = nil
	for _, l := range s.Licences {
		names = append(names, l.Name)
		if l.Count < 0 || l.Count == math.MaxInt32 {
			fault("licence %q: a count of %d is out of range", l.Name, l.Count)
		}
	}
	checkUnique(fault, "licence", names)
	s.checkReservations(fault)
}

func (s *Scheduling) checkReservations(fault func(string, ...any)) {
	if len(s.Reservations) > maxReservations {
		fault("%d reservations, at most %d", len(s.Reservations), maxReservations)
		return
	}
	var names []string
	for i := range s.Reservations {
		r := &s.Reservations[i]
		names = append(names, r.Name)
		switch {
		case r.Start <= 0 || r.End <= r.Start:
			fault("reservation %q ends before it starts, or has no start", r.Name)
		case len(r.Nodes) == 0:
			fault("reservation %q names no nodes", r.Name)
		case len(r.Nodes) > maxList:
			fault("reservation %q: too many node lists", r.Name)
		}
		checkName(fault, "reason of a reservation", r.Why, maxText)
		for _, u := range r.Users {
			checkWord(fault, "user", u)
		}
		for _, a := range r.Accounts {
			checkWord(fault, "account", a)
		}
	}
	checkUnique(fault, "reservation", names)
}

// checkUnique wants names that are words, each once.
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

// Licence is how many of a licence there are; false when there is none of that name.
func (s *Scheduling) Licence(name string) (int32, bool) {
	i := slices.IndexFunc(s.Licences, func(l Licence) bool { return l.Name == name })
	if i < 0 {
		return 0, false
	}
	return s.Licences[i].Count, true
}
