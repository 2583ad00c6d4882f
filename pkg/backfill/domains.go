package backfill

import (
	"cmp"
	"maps"
	"slices"
)

// The nodes of a want may have to lie in few domains (leaf switches), and these in one group (an
// NVLink domain). For wants that count hosts the largest domains are taken, which is exact;
// bestdomains.go handles wants that spread GPUs over a limited number of hosts.

// enough reports whether the candidates suffice, in few enough domains.
func (p *Profile) enough(w *Want) bool {
	if w.Need.PerNode < 0 {
		return p.enoughSpread(w)
	}
	if w.domains == nil {
		return len(p.found) >= int(w.Need.Nodes) && p.requiredFound(w)
	}
	return w.mostHosts(p.counts(w)) >= w.Need.Nodes
}

// requiredFound reports whether the hosts that the want requires are among the candidates.
func (p *Profile) requiredFound(w *Want) bool {
	if w.required == nil {
		return true
	}
	n := 0
	for i := range p.found {
		if w.required.Has(p.found[i].host) {
			n++
		}
	}
	return n == w.required.Len()
}

// counts returns the number of candidates in each domain.
func (p *Profile) counts(w *Want) map[int32]int32 {
	counts := map[int32]int32{}
	for i := range p.found {
		if d := w.domains[p.found[i].host]; d >= 0 {
			counts[d]++
		}
	}
	return counts
}

// groupOf returns the group of a domain.
func (w *Want) groupOf(domain int32) int32 {
	if w.groups == nil {
		return 0
	}
	return w.groups[domain]
}

// mostHosts returns the largest number of hosts in few enough domains of one group.
func (w *Want) mostHosts(counts map[int32]int32) int32 {
	if w.groups == nil {
		return top(counts, w.most)
	}
	best := int32(0)
	for _, part := range w.byGroup(counts) {
		best = max(best, top(part, w.most))
	}
	return best
}

// byGroup divides the counts by group.
func (w *Want) byGroup(counts map[int32]int32) map[int32]map[int32]int32 {
	parts := map[int32]map[int32]int32{}
	for d, n := range counts {
		g := w.groupOf(d)
		if parts[g] == nil {
			parts[g] = map[int32]int32{}
		}
		parts[g][d] = n
	}
	return parts
}

// top adds the largest numbers, most of them.
func top(counts map[int32]int32, most int32) int32 {
	list := slices.SortedFunc(maps.Values(counts), func(a, b int32) int { return cmp.Compare(b, a) })
	sum := int32(0)
	for _, n := range list[:min(len(list), int(most))] {
		sum += n
	}
	return sum
}

// keepGroup keeps the candidates of the group with the fewest of them, among the groups that have n
// hosts in few enough domains.
func (p *Profile) keepGroup(w *Want, n int32) {
	if w.groups == nil {
		return
	}
	best, fewest := int32(-1), int32(0)
	parts := w.byGroup(p.counts(w))
	for _, g := range slices.Sorted(maps.Keys(parts)) {
		all := top(parts[g], int32(len(parts[g])))
		if top(parts[g], w.most) >= n && (best < 0 || all < fewest) {
			best, fewest = g, all
		}
	}
	p.found = slices.DeleteFunc(p.found, func(c candidate) bool {
		d := w.domains[c.host]
		return d < 0 || w.groups[d] != best
	})
}

// keepDomains keeps the candidates of as few domains as have n, at most most of them.
func (p *Profile) keepDomains(domains []int32, n, most int) {
	counts := map[int32]int{}
	for i := range p.found {
		if d := domains[p.found[i].host]; d >= 0 {
			counts[d]++
		}
	}
	order := make([]int32, 0, len(counts))
	for d := range counts {
		order = append(order, d)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) })
	keep := map[int32]bool{}
	for i := range order {
		if i == most || n <= 0 {
			break
		}
		d := order[i]
		for j := i; j < len(order); j++ { // the last one needed: the smallest that suffices
			if counts[order[j]] >= n {
				d = order[j]
			}
		}
		if keep[d] {
			d = order[i]
		}
		keep[d] = true
		n -= counts[d]
	}
	p.found = slices.DeleteFunc(p.found, func(c candidate) bool { return !keep[domains[c.host]] })
}
