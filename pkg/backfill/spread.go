package backfill

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/greylag/greylag/pkg/cluster"
)

// A spread want requests a total of GPUs, on a number of hosts or on as few as suffice; each host
// gives what it has.

// largestFirst sorts the candidates by what they offer; of equal ones the lower host comes first.
func (p *Profile) largestFirst() {
	slices.SortFunc(p.found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.gives, a.gives), cmp.Compare(a.host, b.host))
	})
}

func (p *Profile) enoughSpread(w *Want) bool {
	if w.domains != nil {
		return p.keepBestDomains(w)
	}
	p.largestFirst()
	nodes, _ := p.nodesOf(w)
	return nodes > 0
}

// nodesOf returns on how many of the candidates, largest first, the want is spread, and what these
// offer; 0 when they do not suffice.
func (p *Profile) nodesOf(w *Want) (nodes int, gives int32) {
	fixed := int(w.Need.Nodes)
	for i := range p.found {
		if gives += p.found[i].gives; gives >= w.Need.Total && i+1 >= fixed {
			nodes = i + 1
			break
		}
		if fixed > 0 && i+1 == fixed {
			return 0, gives
		}
	}
	if w.Need.Most > 0 && nodes > int(w.Need.Most) || w.Need.Total < int32(nodes) {
		return 0, gives
	}
	return nodes, gives
}

// chooseSpread gives each host at least one GPU, and the largest host the most; the last host is
// the one that fits best.
func (p *Profile) chooseSpread(w *Want, k *kindWant) []HostShare {
	p.largestFirst()
	nodes, _ := p.nodesOf(w)
	left := w.Need.Total
	var shares []HostShare
	for i := range nodes {
		c := &p.found[i]
		n := min(c.gives, left-int32(nodes-1-i))
		if i == nodes-1 {
			for j := i + 1; j < len(p.found) && p.found[j].gives >= n; j++ {
				if p.found[j].gives < c.gives {
					c = &p.found[j]
				}
			}
		}
		left -= n
		shares = append(shares, HostShare{c.host, n, k.demands[p.models[c.host]].takes(&c.free, n)})
	}
	slices.SortFunc(shares, byHost)
	return shares
}

// spreadLater tries every instant at which something changes on one of the hosts.
func (p *Profile) spreadLater(w *Want, k *kindWant, set HostSet, from, before cluster.Instant) (Start, bool) {
	instants := []cluster.Instant{from}
	for i := range set {
		for rest := set[i]; rest != 0; rest &= rest - 1 {
			r := &p.rows[i*64+bits.TrailingZeros64(rest)]
			for j := r.at(from) + 1; j < len(r.steps) && r.steps[j].from < before; j++ {
				instants = append(instants, r.steps[j].from)
			}
		}
	}
	slices.Sort(instants)
	for _, t := range slices.Compact(instants) {
		p.found = p.found[:0]
		for i := range set {
			for rest := set[i]; rest != 0; rest &= rest - 1 {
				h := i*64 + bits.TrailingZeros64(rest)
				p.Rows++
				free := p.rows[h].window(t, t.Add(w.Lasts))
				if k.demands[p.models[h]].fits(&free) {
					p.found = append(p.found, p.candidate(w, k, h, free))
				}
			}
		}
		if p.enough(w) {
			return p.choose(w, k, t), true
		}
	}
	return Start{}, false
}
