package topology

import (
	"cmp"
	"slices"
	"strings"

	"github.com/greylag/greylag/pkg/cluster"
)

// Place chooses nodes and GPUs for the whole need among what is free, and returns false when it
// does not fit. The types of the need are tried in order; one gang gets one type. The placement's
// nodes are sorted by name. O(n log n) in the hosts.
func Place(free []Free, need *NodeRequest) (cluster.Placement, bool) {
	for _, kind := range need.Types {
		if p, ok := placeType(free, need, kind); ok {
			return p, true
		}
	}
	return cluster.Placement{}, false
}

// candidate is a host that can be one of the job's nodes.
type candidate struct {
	free   *Free
	gpus   GPUSet // the free ones of the type
	gives  int32  // number of them that the job can use
	linked bool   // the job's share fits into one NVLink domain
}

// left returns how many free GPUs remain when a job takes n.
func (c *candidate) left(n int32) int32 { return c.free.GPUs.Len() - n }

func placeType(free []Free, need *NodeRequest, kind string) (cluster.Placement, bool) {
	var fit []candidate
	for i := range free {
		f := &free[i]
		if gives, ok := need.Gives(f, kind); ok {
			fit = append(fit, candidate{free: f, gpus: f.GPUs.And(f.Host.OfType(kind)), gives: gives})
		}
	}
	if need.PerNode < 0 {
		return placeSpread(fit, need)
	}
	if len(fit) < int(need.Nodes) {
		return cluster.Placement{}, false
	}
	if need.Nodes > 1 && need.PerNode > 0 {
		fit = inOneDomain(fit, need)
	}
	for i := range fit {
		fit[i].linked = need.PerNode < 2 || linked(&fit[i], need.PerNode)
	}
	slices.SortFunc(fit, func(a, b candidate) int { return tightest(&a, &b, need.PerNode) })
	p := cluster.Placement{}
	for i := range fit[:need.Nodes] {
		c := &fit[i]
		p.Nodes = append(p.Nodes, need.share(c.free, pick(c, need.PerNode)))
	}
	sortByName(&p)
	return p, true
}

// tightest puts first the host on which a share of n GPUs stays within one NVLink domain, then the
// one with the least left.
func tightest(a, b *candidate, n int32) int {
	if a.linked != b.linked {
		if a.linked {
			return -1
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(a.left(n), b.left(n)),
		cmp.Compare(a.free.CPUs, b.free.CPUs),
		strings.Compare(a.free.Host.Name, b.free.Host.Name),
	)
}

// linked reports whether n of the candidate's GPUs lie in one NVLink domain.
func linked(c *candidate, n int32) bool {
	for _, link := range c.free.Host.links {
		if c.gpus.And(link.gpus).Len() >= n {
			return true
		}
	}
	return false
}

// inOneDomain keeps the candidates of the smallest NVLink domain across hosts that can hold the
// whole job, with only its GPUs; all candidates when no such domain exists.
func inOneDomain(fit []candidate, need *NodeRequest) []candidate {
	hosts := map[string]int32{}
	for i := range fit {
		for _, link := range fit[i].free.Host.links {
			if fit[i].gpus.And(link.gpus).Len() >= need.PerNode {
				hosts[link.name]++
			}
		}
	}
	best := ""
	for name, n := range hosts { // the least in a total order: the order of the map does not matter
		if n >= need.Nodes && (best == "" || n < hosts[best] || n == hosts[best] && name < best) {
			best = name
		}
	}
	if best == "" {
		return fit
	}
	var inside []candidate
	for _, c := range fit {
		for _, link := range c.free.Host.links {
			if gpus := c.gpus.And(link.gpus); link.name == best && gpus.Len() >= need.PerNode {
				c.gpus = gpus
				inside = append(inside, c)
			}
		}
	}
	return inside
}

// pick chooses n of the candidate's GPUs: from the smallest NVLink domain that has them all, else
// from the largest ones on; the lowest indices of each.
func pick(c *candidate, n int32) GPUSet {
	var pools []GPUSet
	rest := c.gpus
	for _, link := range c.free.Host.links {
		if gpus := c.gpus.And(link.gpus); gpus.Len() > 0 {
			pools, rest = append(pools, gpus), rest.Minus(gpus)
		}
	}
	if n == 1 && rest != (GPUSet{}) { // a single GPU needs no link: keep the linked ones together
		return rest.Lowest(1)
	}
	slices.SortStableFunc(pools, func(a, b GPUSet) int { return cmp.Compare(a.Len(), b.Len()) })
	for _, pool := range pools {
		if pool.Len() >= n {
			return pool.Lowest(n)
		}
	}
	slices.Reverse(pools)
	var chosen GPUSet
	for _, pool := range append(pools, rest) {
		chosen = chosen.Or(pool.Lowest(n - chosen.Len()))
	}
	return chosen
}

// placeSpread places a total of GPUs on need.Nodes nodes, at least one on each, or on as few nodes
// as can hold them.
func placeSpread(fit []candidate, need *NodeRequest) (cluster.Placement, bool) {
	slices.SortFunc(fit, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.gives, b.gives), tightest(&a, &b, a.gives))
	})
	nodes := need.Nodes
	if nodes == 0 {
		for sum := int32(0); sum < need.Total; nodes++ {
			if int(nodes) == len(fit) {
				return cluster.Placement{}, false
			}
			sum += fit[len(fit)-1-int(nodes)].gives
		}
	}
	if need.Total < nodes || int(nodes) > len(fit) || need.Most > 0 && nodes > need.Most {
		return cluster.Placement{}, false
	}
	first, ok := window(fit, int(nodes), need.Total)
	if !ok {
		return cluster.Placement{}, false
	}
	p := cluster.Placement{}
	left := need.Total
	for i := int(nodes) - 1; i >= 0; i-- {
		c := &fit[first+i]
		n := min(c.gives, left-int32(i)) // one for each further node
		left -= n
		p.Nodes = append(p.Nodes, need.share(c.free, pick(c, n)))
	}
	sortByName(&p)
	return p, true
}

// window returns the first n neighbours, from the tightest on, that give the total.
func window(fit []candidate, n int, total int32) (int, bool) {
	sum := int32(0)
	for i := range fit {
		sum += fit[i].gives
		if i >= n {
			sum -= fit[i-n].gives
		}
		if i >= n-1 && sum >= total {
			return i - n + 1, true
		}
	}
	return 0, false
}

func sortByName(p *cluster.Placement) {
	slices.SortFunc(p.Nodes, func(a, b cluster.NodeAllocation) int { return strings.Compare(a.Node, b.Node) })
}
