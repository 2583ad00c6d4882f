package backfill

import "github.com/greylag/greylag/pkg/cluster"

// Closed calls a function while some hosts are closed for an interval. It must only search. O(hosts × (steps + bins)).
func (p *Profile) Closed(hosts []int, from, to cluster.Instant, search func()) {
	wall, given := &Amount{Slots: Blocked}, len(p.freed)
	for _, h := range hosts {
		p.Take(h, from, to, wall)
	}
	search()
	for _, h := range hosts {
		p.Release(h, from, to, wall)
	}
	p.freed = p.freed[:min(given, len(p.freed))]
}

// Opened calls a function while an amount of a host is free for an interval that is taken. It must only search.
// O(steps + bins).
func (p *Profile) Opened(h int, from, to cluster.Instant, a *Amount, search func()) {
	given := len(p.freed)
	p.Release(h, from, to, a)
	search()
	p.Take(h, from, to, a)
	p.freed = p.freed[:min(given, len(p.freed))]
}

// Kept calls a function while amounts of hosts are taken for an interval; a host without such an amount is closed. It must
// only search. O(amounts × (steps + bins)).
func (p *Profile) Kept(list []HostShare, from, to cluster.Instant, search func()) {
	wall, given := &Amount{Slots: Blocked}, len(p.freed)
	taken := make([]*Amount, len(list))
	for i := range list {
		if taken[i] = &list[i].Amount; !p.Has(list[i].Host, from, to, taken[i]) {
			taken[i] = wall
		}
		p.Take(list[i].Host, from, to, taken[i])
	}
	search()
	for i := range list {
		p.Release(list[i].Host, from, to, taken[i])
	}
	p.freed = p.freed[:min(given, len(p.freed))]
}
