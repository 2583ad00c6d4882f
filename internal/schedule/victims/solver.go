package victims

import (
	"cmp"
	"slices"

	"github.com/greylag/greylag/pkg/backfill"
)

// solver holds which victims have ended, and what the hosts of a group then have.
type solver struct {
	*Problem
	free    []backfill.Amount
	gone    []bool
	rank    []int32   // of each victim in order of cost
	on      [][]int32 // victims by host, the cheapest first
	in      []bool    // hosts of the group
	hosts   []int     // the same, in order
	gives   []int32   // units of the hosts of the group
	missing int32     // units that the job lacks; negative when there are more than it needs
	pool    []int32   // the cheapest victims of the group, the cheapest first
	stale   []bool    // steps that changed since they were computed, by what they are of
	states  []partial // a buffer
	whole   []backfill.Amount
}

func newSolver(p *Problem) *solver {
	s := &solver{
		Problem: p, free: slices.Clone(p.Free), gone: make([]bool, len(p.Victims)), on: make([][]int32, len(p.Free)),
		rank: make([]int32, len(p.Victims)), in: make([]bool, len(p.Free)), gives: make([]int32, len(p.Free)), stale: make([]bool, max(len(p.Free), len(p.Victims))),
	}
	order := make([]int32, len(p.Victims))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(p.Victims[a].Cost.Compare(p.Victims[b].Cost), cmp.Compare(a, b))
	})
	for i, v := range order {
		s.rank[v] = int32(i)
		for _, h := range p.Victims[v].Hosts {
			s.on[h] = append(s.on[h], v)
		}
	}
	return s
}

// byCost compares victims by cost, then by number.
func (s *solver) byCost(a, b int32) int { return cmp.Compare(s.rank[a], s.rank[b]) }

// enter makes hosts the group in which the job is placed.
func (s *solver) enter(hosts []int) {
	s.hosts, s.missing = hosts, s.Need.Units()
	for _, h := range hosts {
		s.in[h] = true
		s.gives[h] = s.units(h)
		s.missing -= s.gives[h]
	}
}

// leave ends the use of the group. No victim may be gone.
func (s *solver) leave() {
	for _, h := range s.hosts {
		s.in[h], s.gives[h] = false, 0
	}
}

// units returns how many units a host has now.
func (s *solver) units(h int) int32 {
	free := s.usable(h)
	return s.Need.Gives(h, &free)
}

// usable returns what the job can use of a host now.
func (s *solver) usable(h int) backfill.Amount {
	free := s.free[h]
	free.Limit(&s.Limit[h])
	return free
}

// end has a victim end.
func (s *solver) end(v int32) { s.change(v, true, (*backfill.Amount).Add) }

// restore is the inverse of end.
func (s *solver) restore(v int32) { s.change(v, false, subtract) }

// subtract is the inverse of [backfill.Amount.Add].
func subtract(a, n *backfill.Amount) { a.Subtract(n) }

func (s *solver) change(v int32, gone bool, by func(a, n *backfill.Amount)) {
	s.gone[v] = gone
	for i, h := range s.Victims[v].Hosts {
		by(&s.free[h], &s.Victims[v].Amounts[i])
		if s.in[h] {
			had := s.gives[h]
			s.gives[h] = s.units(h)
			s.missing -= s.gives[h] - had
		}
	}
}

// fits reports whether the job fits now. O(1) where counting units is enough, else O(hosts).
func (s *solver) fits() bool {
	if s.missing > 0 || s.Need.Plain() {
		return s.missing <= 0
	}
	s.whole = append(s.whole[:0], s.free...)
	for h := range s.whole {
		s.whole[h].Limit(&s.Limit[h])
	}
	return s.Need.Whole(s.whole)
}

// possible reports whether the job fits if all victims end. O(hosts of the group + what victims have there).
func (s *solver) possible() bool {
	missing := s.Need.Units()
	s.whole = append(s.whole[:0], s.free...)
	for _, h := range s.hosts {
		for _, v := range s.on[h] {
			s.whole[h].Add(s.amountOn(v, h))
		}
		s.whole[h].Limit(&s.Limit[h])
		missing -= s.Need.Gives(h, &s.whole[h])
	}
	return missing <= 0 && (s.Need.Plain() || s.Need.Whole(s.whole))
}

// proposal returns a set of victims with its cost.
func (s *solver) proposal(set []int32) Proposal {
	p := Proposal{Victims: slices.SortedFunc(slices.Values(set), s.byCost)}
	for _, v := range set {
		p.Cost = p.Cost.Plus(s.Victims[v].Cost)
	}
	return p
}
