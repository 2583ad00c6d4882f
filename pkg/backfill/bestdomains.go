package backfill

import (
	"cmp"
	"maps"
	"slices"
)

// keepBestDomains keeps the candidates of few enough domains of one group that suffice for a spread
// want, if there are any: of the domains that offer the most GPUs. When the want limits its hosts,
// it tries next the domains whose largest hosts offer the most. O(candidates log candidates), else
// O(domains allowed × hosts allowed × candidates), which mostCells bounds.
func (p *Profile) keepBestDomains(w *Want) bool {
	p.largestFirst()
	if !w.inReach(p.found) {
		return false
	}
	all := slices.Clone(p.found)
	for _, group := range w.gpusByGroup(all) {
		for _, keep := range [...]func(*Want, []domainGives) map[int32]bool{mostGPUs, bestDomains} {
			kept := keep(w, group)
			p.found = p.found[:0]
			for i := range all {
				if d := w.domains[all[i].host]; d >= 0 && kept[d] {
					p.found = append(p.found, all[i])
				}
			}
			if nodes, _ := p.nodesOf(w); nodes > 0 {
				return true
			}
		}
	}
	return false
}

// inReach reports whether the candidates, the largest first, suffice in any domains.
func (w *Want) inReach(all []candidate) bool {
	hosts := int(cmp.Or(w.Need.Nodes, w.Need.Most, w.Need.Total))
	sum := int32(0)
	for i := range all[:min(hosts, len(all))] {
		sum += all[i].gives
	}
	return sum >= w.Need.Total && len(all) >= int(w.Need.Nodes)
}

// domainGives is what the candidates of a domain offer, the largest first, and the sum.
type domainGives struct {
	domain int32
	hosts  []int32
	sum    int32
}

// gpusByGroup returns the domains of candidates, which are sorted by size, by group: first the
// group that offers the fewest GPUs, and in each the domain that offers the most.
func (w *Want) gpusByGroup(all []candidate) [][]domainGives {
	domains := map[int32]*domainGives{}
	for i := range all {
		d := w.domains[all[i].host]
		if d < 0 {
			continue
		}
		if domains[d] == nil {
			domains[d] = &domainGives{domain: d}
		}
		domains[d].hosts = append(domains[d].hosts, all[i].gives)
		domains[d].sum += all[i].gives
	}
	groups, sums := map[int32][]domainGives{}, map[int32]int32{}
	for _, d := range slices.Sorted(maps.Keys(domains)) {
		g := w.groupOf(d)
		groups[g] = append(groups[g], *domains[d])
		sums[g] += domains[d].sum
	}
	order := slices.SortedFunc(maps.Keys(groups), func(a, b int32) int { return cmp.Or(cmp.Compare(sums[a], sums[b]), cmp.Compare(a, b)) })
	list := make([][]domainGives, 0, len(order))
	for _, g := range order {
		slices.SortStableFunc(groups[g], func(a, b domainGives) int { return cmp.Compare(b.sum, a.sum) })
		list = append(list, groups[g])
	}
	return list
}

// mostGPUs returns the domains that offer the most GPUs.
func mostGPUs(w *Want, group []domainGives) map[int32]bool {
	kept := map[int32]bool{}
	for _, d := range group[:min(len(group), int(w.most))] {
		kept[d.domain] = true
	}
	return kept
}

// mostCells bounds the table of a knapsack, and so the cost of one search (milliseconds, and 1
// MiB): 16 of 64 domains with 256 hosts. A larger want gets the domains that offer the most GPUs,
// or waits until they suffice.
const mostCells = 1 << 18

// bestDomains returns the domains whose n largest hosts offer the most GPUs, where n is the number
// of hosts that the want allows. It returns none when they cannot suffice, when the want allows any
// number of hosts, or beyond mostCells. How many hosts of each domain are best is a knapsack: its
// items are domains, filled host by host.
func bestDomains(w *Want, group []domainGives) map[int32]bool {
	hosts := int(cmp.Or(w.Need.Nodes, w.Need.Most))
	if hosts == 0 || !maybeFeasible(w, group, hosts) {
		return nil
	}
	most := min(int(w.most), len(group))
	if len(group)*most*hosts > mostCells {
		w.bounded = true
		return nil
	}
	// best[k][n] is the most that n hosts of k domains offer, among those checked so far; -1 for
	// none. took[i][k][n] is how many of them are of domain i.
	best, took := make([][]int32, most+1), make([][][]int32, len(group))
	for k := range best {
		best[k] = slices.Repeat([]int32{-1}, hosts+1)
	}
	best[0][0] = 0
	for i := range group {
		took[i] = make([][]int32, most+1)
		for k := most; k > 0; k-- {
			took[i][k] = make([]int32, hosts+1)
			fill(best[k-1], best[k], took[i][k], group[i].hosts)
		}
	}
	k, n := mostCapacity(w, best)
	kept := map[int32]bool{}
	for i := len(group) - 1; i >= 0 && k > 0; i-- {
		if t := took[i][k][n]; t > 0 {
			kept[group[i].domain] = true
			k, n = k-1, n-int(t)
		}
	}
	return kept
}

// maybeFeasible reports whether a want could be served if only one of the two bounds applied: the
// number of hosts, or the number of domains.
func maybeFeasible(w *Want, group []domainGives, hosts int) bool {
	var all []int32
	sum := int32(0)
	for i := range group {
		all = append(all, group[i].hosts[:min(hosts, len(group[i].hosts))]...)
		if i < int(w.most) {
			sum += group[i].sum
		}
	}
	slices.SortFunc(all, func(a, b int32) int { return cmp.Compare(b, a) })
	largest := int32(0)
	for _, n := range all[:min(hosts, len(all))] {
		largest += n
	}
	return sum >= w.Need.Total && largest >= w.Need.Total && len(all) >= int(w.Need.Nodes)
}

// fill adds hosts of one more domain, the largest first, to the best result without it.
func fill(without, best, took []int32, hosts []int32) {
	for n := len(best) - 1; n > 0; n-- {
		sum := int32(0)
		for t := 1; t <= min(n, len(hosts)); t++ {
			sum += hosts[t-1]
			if before := without[n-t]; before >= 0 && before+sum > best[n] {
				best[n], took[n] = before+sum, int32(t)
			}
		}
	}
}

// mostCapacity returns with how many domains and hosts a want gets the most; with its own number of
// hosts, if it names one.
func mostCapacity(w *Want, best [][]int32) (domains, hosts int) {
	most := int32(-1)
	for k := range best {
		for n := range best[k] {
			if (w.Need.Nodes == 0 || n == int(w.Need.Nodes)) && best[k][n] > most {
				most, domains, hosts = best[k][n], k, n
			}
		}
	}
	return domains, hosts
}
