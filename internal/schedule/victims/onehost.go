package victims

import (
	"slices"

	"github.com/greylag/greylag/pkg/backfill"
)

// partial is what some of the victims of a host leave to the job, and what they cost.
type partial struct {
	amount backfill.Amount
	cost   Cost
	from   int32 // the partial without the last victim; -1 for none
	victim int32
}

// maxPartials bounds the partials of one host. With eight GPUs there are far fewer; the result is exact below the
// bound.
const maxPartials = 2048

// cheapest returns the least cost at which a host can serve a node of the job, and the victims to end. It adds one
// victim after another to all partial sets, and drops partial sets that have no more than another and cost no
// less. O(victims of the host × partials²).
func (s *solver) cheapest(h int) (Cost, []int32, bool) {
	amount := s.Need.Useful(h, s.usable(h))
	if s.Need.Gives(h, &amount) > 0 {
		return Cost{}, nil, true
	}
	limit, best := s.Limit[h], int32(-1)
	list := append(s.states[:0], partial{amount: amount, from: -1, victim: -1})
	for _, v := range s.on[h] {
		if s.gone[v] {
			continue
		}
		adds := s.amountOn(v, h)
		for i := range int32(len(list)) {
			next := partial{amount: list[i].amount, cost: list[i].cost.Plus(s.Victims[v].Cost), from: i, victim: v}
			if best >= 0 && next.cost.Compare(list[best].cost) >= 0 {
				continue
			}
			next.amount.Add(adds)
			next.amount.Limit(&limit)
			next.amount = s.Need.Useful(h, next.amount)
			if next.amount == list[i].amount || dominated(list, &next) || len(list) == maxPartials {
				continue
			}
			if list = append(list, next); s.Need.Gives(h, &next.amount) > 0 {
				best = int32(len(list) - 1)
			}
		}
	}
	if s.states = list; best < 0 {
		return Cost{}, nil, false
	}
	var set []int32
	for i := best; list[i].from >= 0; i = list[i].from {
		set = append(set, list[i].victim)
	}
	return list[best].cost, set, true
}

// dominated reports whether another partial set has as much and costs no more.
func dominated(list []partial, x *partial) bool {
	return slices.ContainsFunc(list, func(p partial) bool {
		return p.cost.Compare(x.cost) <= 0 && p.amount.Covers(&x.amount)
	})
}

// amountOn returns what a victim has on a host.
func (s *solver) amountOn(v int32, h int) *backfill.Amount {
	return &s.Victims[v].Amounts[slices.Index(s.Victims[v].Hosts, h)]
}

// eachHost returns the cheapest sets for a job that lacks one host, one for each of the cheapest hosts.
func (s *solver) eachHost() []Proposal {
	var list []Proposal
	for _, h := range s.hosts {
		if _, set, ok := s.cheapest(h); ok && s.gives[h] == 0 {
			list = append(list, s.proposal(set))
		}
	}
	slices.SortStableFunc(list, func(a, b Proposal) int { return a.Cost.Compare(b.Cost) })
	return list[:min(len(list), maxProposals)]
}
