package victims

import (
	"cmp"
	"slices"
)

const (
	// maxStarts is from how many first steps the greedy search begins.
	maxStarts = 8
	// maxPool is how many of the cheapest victims may replace another one, and maxExchanges bounds the exchanges
	// that are tried for one set.
	maxPool, maxExchanges = 256, 1024
	// stepsPerUnit and moreSteps bound the steps that a search considers first: by each missing unit, and in all.
	stepsPerUnit, moreSteps = 4, 64
)

// step is victims that end together, and what that costs and gives.
type step struct {
	set   []int32
	cost  Cost
	gains int32 // units
	of    int   // host, or victim of a spread want
}

// compareSteps compares steps by loss for each unit of those that are still missing.
func compareSteps(a, b *step, missing int32) int {
	x, y := int64(max(1, min(a.gains, missing))), int64(max(1, min(b.gains, missing)))
	return cmp.Or(cmp.Compare(a.cost.Loss*y, b.cost.Loss*x), cmp.Compare(a.cost.CPULoss*y, b.cost.CPULoss*x),
		a.cost.Compare(b.cost), cmp.Compare(a.of, b.of))
}

// several returns sets for a job on several hosts, one of each start of the greedy search.
func (s *solver) several() []Proposal {
	if s.fits() {
		return []Proposal{{}}
	}
	s.pool = s.cheapestVictims()
	all, missing := s.steps(), s.missing
	slices.SortFunc(all, func(a, b step) int { return compareSteps(&a, &b, missing) })
	few := all[:min(len(all), stepsPerUnit*int(max(missing, 1))+moreSteps)]
	var list []Proposal
	for i := range min(maxStarts, len(all)) {
		set, ok := s.greedy(few, i)
		if !ok {
			set, ok = s.greedy(all, i)
		}
		if !ok {
			break
		}
		set = s.exchange(s.reduce(set))
		list = append(list, s.proposal(set))
		for _, v := range set {
			s.restore(v)
		}
	}
	return list
}

// cheapestVictims returns the victims that have something in the group, the cheapest first; not all if there are
// many.
func (s *solver) cheapestVictims() (list []int32) {
	for _, h := range s.hosts {
		list = append(list, s.on[h]...)
	}
	slices.SortFunc(list, s.byCost)
	list = slices.Compact(list)
	return list[:min(len(list), maxPool)]
}

// steps returns the possible steps: the cheapest victims of each host that does not yet serve the job; single
// victims for a spread want.
func (s *solver) steps() []step {
	var list []step
	if s.Need.Spread() {
		for v := range s.Victims {
			if x, ok := s.stepOf(v); ok {
				list = append(list, x)
			}
		}
		return list
	}
	for _, h := range s.hosts {
		if x, ok := s.stepOf(h); ok {
			list = append(list, x)
		}
	}
	return list
}

// stepOf returns the step of a host, or of a victim of a spread want, as things are now; false when it gives
// nothing.
func (s *solver) stepOf(of int) (step, bool) {
	x := step{of: of}
	if s.Need.Spread() {
		v := int32(of)
		if s.gone[v] || !slices.ContainsFunc(s.Victims[v].Hosts, func(h int) bool { return s.in[h] }) {
			return x, false
		}
		x.set, x.cost = []int32{v}, s.Victims[v].Cost
	} else {
		if s.gives[of] > 0 {
			return x, false
		}
		ok := false
		if x.cost, x.set, ok = s.cheapest(of); !ok {
			return x, false
		}
	}
	x.gains = s.gainsOf(x.set)
	return x, true
}

// gainsOf returns how many units the end of victims gives that make a host serve the job, or of one of a spread want.
func (s *solver) gainsOf(set []int32) int32 {
	if !s.Need.Spread() && !slices.ContainsFunc(set, func(v int32) bool { return len(s.Victims[v].Hosts) > 1 }) {
		return 1
	}
	before := s.missing
	for _, v := range set {
		s.end(v)
	}
	gains := before - s.missing
	for _, v := range set {
		s.restore(v)
	}
	return gains
}

// greedy ends victims until the job fits, the given step first, then by the least loss for each unit. It returns
// all that have ended; false when the job does not fit.
func (s *solver) greedy(all []step, first int) (set []int32, ok bool) {
	steps := slices.Clone(all)
	clear(s.stale)
	for next := first; ; next = s.best(&steps) {
		if next < 0 {
			for _, v := range set {
				s.restore(v)
			}
			return nil, false
		}
		for _, v := range steps[next].set {
			s.end(v)
			s.markStale(v)
		}
		set = append(set, steps[next].set...)
		steps = slices.Delete(steps, next, next+1)
		if s.fits() {
			return set, true
		}
	}
}

// markStale has the steps computed again that the end of a victim changes.
func (s *solver) markStale(v int32) {
	for _, h := range s.Victims[v].Hosts {
		if !s.Need.Spread() {
			s.stale[h] = true
			continue
		}
		for _, o := range s.on[h] {
			s.stale[o] = true
		}
	}
}

// best returns the index of the best step; -1 for none. It computes steps again whose victims or hosts changed, and
// drops those that give nothing any more.
func (s *solver) best(steps *[]step) int {
	best, kept := -1, (*steps)[:0]
	for _, x := range *steps {
		if s.stale[x.of] {
			again, ok := s.stepOf(x.of)
			if s.stale[x.of] = false; !ok {
				continue
			}
			x = again
		}
		if kept = append(kept, x); best < 0 || compareSteps(&x, &kept[best], s.missing) < 0 {
			best = len(kept) - 1
		}
	}
	*steps = kept
	return best
}

// reduce restores the victims of a set that the job can do without, the most expensive first.
func (s *solver) reduce(set []int32) []int32 {
	slices.SortFunc(set, func(a, b int32) int { return s.byCost(b, a) })
	return slices.DeleteFunc(set, func(v int32) bool {
		s.restore(v)
		if s.fits() {
			return true
		}
		s.end(v)
		return false
	})
}

// exchange replaces single victims of a set by cheaper ones, the most expensive first.
func (s *solver) exchange(set []int32) []int32 {
	left := maxExchanges
	for i, old := range set {
		for _, v := range s.pool {
			if s.byCost(v, old) >= 0 || left == 0 {
				break
			}
			if s.gone[v] {
				continue
			}
			left--
			s.restore(old)
			s.end(v)
			if s.fits() {
				set[i] = v
				break
			}
			s.restore(v)
			s.end(old)
		}
	}
	return s.reduce(set)
}
