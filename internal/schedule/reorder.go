package schedule

import "slices"

// inOrder reports whether the starts that are no promises were planned in the present
// order of priorities, so that planning them anew in that order could only take from
// one what it gives to another: each has been moved as early as it could be, one at a
// time, and keeps what it won. Then the jobs get their present priorities, and those
// whose start has come near are told again, which makes a promise of it.
// O(jobs log jobs).
func (p *Planner) inOrder(r *pass) bool {
	horizon := p.horizon(r)
	all := p.due.Len()+len(p.started)+p.barred.count == len(p.entries) // have a place
	if all && !p.outOfOrder && r.prio.steady() {
		for _, e := range p.due.Items() {
			if !e.promised && e.at <= horizon {
				r.markChanged(e)
			}
		}
		p.ordered = r.snap.Now
		return true
	}
	list := make([]*entry, 0, len(p.entries))
	for _, e := range p.entries {
		switch {
		case e.class == nil || e.kept != nil:
		case e.at == 0: // beyond the window when it was planned, which has moved on
			return false
		default:
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b *entry) int { return a.rank.compare(&b.rank) })
	ranks := make([]rank, len(list))
	turn := 0
	for i, e := range list {
		if ranks[i] = e.rank; len(list) > 1 {
			ranks[i] = p.rankOf(r, e.job)
		}
		if i > 0 && ranks[i-1].compare(&ranks[i]) > 0 {
			return false
		}
		if !e.promised && !e.starts {
			if e.turn < turn {
				return false
			}
			turn = e.turn
		}
	}
	for i, e := range list {
		if e.rank = ranks[i]; !e.promised && e.at <= horizon {
			r.markChanged(e)
		}
	}
	if p.ordered, p.outOfOrder = r.snap.Now, false; len(list) > 0 {
		p.lowestPlanned = list[len(list)-1].rank
	}
	return true
}
