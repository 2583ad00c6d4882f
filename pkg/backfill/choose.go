package backfill

import (
	"cmp"
	"slices"

	"github.com/greylag/greylag/pkg/cluster"
)

// choose selects the best of the candidates, which are sorted by host and suffice.
func (p *Profile) choose(w *Want, k *kindWant, at cluster.Instant) Start {
	s := Start{At: at, Kind: k.kind}
	if w.Need.PerNode < 0 {
		s.Shares = p.chooseSpread(w, k)
		return s
	}
	n := int(w.Need.Nodes)
	p.narrow(w, n)
	slices.SortFunc(p.found, func(a, b candidate) int {
		if w.required != nil && w.required.Has(a.host) != w.required.Has(b.host) {
			return map[bool]int{true: -1, false: 1}[w.required.Has(a.host)]
		}
		return p.tighter(k, &a, &b)
	})
	for i := range p.found[:n] {
		c := &p.found[i]
		d := &k.demands[p.models[c.host]]
		s.Shares = append(s.Shares, HostShare{c.host, d.gpus, d.takes(&c.free, d.gpus)})
	}
	slices.SortFunc(s.Shares, byHost)
	return s
}

// tighter puts first the host on which the share leaves the least: with GPUs of one pool, then by
// free GPUs, by free CPUs, and by number.
func (p *Profile) tighter(k *kindWant, a, b *candidate) int {
	one := func(c *candidate) int {
		for i := range k.demands[p.models[c.host]].forms {
			if c.free.Covers(&k.demands[p.models[c.host]].forms[i]) {
				return 0
			}
		}
		return 1
	}
	const every = Lanes(0x7f7f7f7f7f7f7f7f)
	return cmp.Or(
		cmp.Compare(one(a), one(b)),
		cmp.Compare(a.free.GPUs.Sum(every), b.free.GPUs.Sum(every)),
		cmp.Compare(a.free.CPUs, b.free.CPUs),
		cmp.Compare(a.host, b.host),
	)
}

// narrow keeps the candidates of the narrowest domains that can hold the whole job: those that it
// must lie in, else the lowest level of the fabric at which one domain has enough hosts; of several
// the one with the fewest hosts to spare.
func (p *Profile) narrow(w *Want, n int) {
	if w.domains != nil {
		p.keepGroup(w, int32(n))
		p.keepDomains(w.domains, n, int(w.most))
	}
	if n == 1 || p.Packed || w.required != nil {
		return
	}
	for _, level := range p.levels {
		counts := map[int32]int{}
		for i := range p.found {
			if d := level[p.found[i].host]; d >= 0 {
				counts[d]++
			}
		}
		best, fewest := int32(-1), 0
		for d, c := range counts { // the least in a total order: the order of the map does not matter
			if c >= n && (best < 0 || c < fewest || c == fewest && d < best) {
				best, fewest = d, c
			}
		}
		if best >= 0 {
			p.found = slices.DeleteFunc(p.found, func(c candidate) bool { return level[c.host] != best })
			return
		}
	}
}
