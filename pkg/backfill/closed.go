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
