package victims

import (
	"cmp"
	"slices"

	"github.com/greylag/greylag/pkg/backfill"
)

// Victim is a job that may end.
type Victim struct {
	Cost    Cost
	Hosts   []int
	Amounts []backfill.Amount // by index of Hosts
}

// Problem is what may end for a job, and what the job needs.
type Problem struct {
	Need backfill.Fitting
	// Free is what is free of each host if no victim ends. Limit is the most that can be free throughout the
	// time of the job, however many end.
	Free, Limit []backfill.Amount
	Victims     []Victim
}

// Proposal is a set of victims, by number and in order of cost, after whose end the job should fit.
type Proposal struct {
	Victims []int32
	Cost    Cost
}

// maxProposals is the number of proposals that a caller may have to verify.
const maxProposals = 6

// Propose returns sets of victims, the cheapest first. Where the job lacks one host the first is the cheapest
// there is. None means that the job does not fit even if all end.
func Propose(p *Problem) []Proposal {
	s := newSolver(p)
	var all []Proposal
	for _, hosts := range p.Need.Groups() {
		s.enter(hosts)
		if !p.Need.Spread() && s.missing == 1 && p.Need.Plain() {
			all = append(all, s.eachHost()...)
		} else if s.possible() {
			all = append(all, s.several()...)
		}
		s.leave()
	}
	slices.SortStableFunc(all, func(a, b Proposal) int {
		return cmp.Or(a.Cost.Compare(b.Cost), slices.Compare(a.Victims, b.Victims))
	})
	all = slices.CompactFunc(all, func(a, b Proposal) bool { return slices.Equal(a.Victims, b.Victims) })
	return all[:min(len(all), maxProposals)]
}

// HostCosts returns the least cost at which each host can serve a node of the job; false for hosts that cannot.
func HostCosts(p *Problem) (costs []Cost, can []bool) {
	s := newSolver(p)
	costs, can = make([]Cost, len(p.Free)), make([]bool, len(p.Free))
	for _, hosts := range p.Need.Groups() {
		s.enter(hosts)
		for _, h := range hosts {
			costs[h], _, can[h] = s.cheapest(h)
		}
		s.leave()
	}
	return costs, can
}
