package schedule

import (
	"math/rand/v2"
	"strings"

	"github.com/greylag/greylag/pkg/cluster"
)

// gresIn reads the generic resources of a line of a picture.
func gresIn(w words) (all []cluster.Gres) {
	for _, word := range w.list("gres") {
		parts := strings.Split(word, ":")
		g := cluster.Gres{Name: parts[0], Count: int64(words{"n": parts[len(parts)-1]}.n("n", 1))}
		if len(parts) > 2 {
			g.Type = parts[1]
		}
		all = append(all, g)
	}
	cluster.SortGres(all)
	return all
}

// countSome gives some nodes generic resources, and lets some jobs request them.
func countSome(r *rand.Rand, snap *cluster.Snapshot) {
	if r.IntN(3) == 0 {
		return
	}
	for _, n := range snap.Nodes {
		n.Gres = nodeGres(r)
	}
	for _, j := range snap.Pending {
		j.Spec.Request.Gres = randomGres(r)
	}
}

// vary3 gives the nodes of some sites generic resources.
func (s *site) vary3(seed uint64) {
	r := rand.New(rand.NewPCG(seed, 4))
	if r.IntN(2) == 0 {
		return
	}
	for _, n := range s.snap.Nodes {
		n.Gres = nodeGres(r)
	}
	s.counts = r
}

// nodeGres returns the generic resources of a node.
func nodeGres(r *rand.Rand) (all []cluster.Gres) {
	if r.IntN(4) > 0 {
		all = append(all, cluster.Gres{Name: "fpga", Count: 1 + r.Int64N(3)})
	}
	if r.IntN(4) > 0 {
		all = append(all, cluster.Gres{Name: "nvme", Type: []string{"fast", "slow"}[r.IntN(2)], Count: 100 * (1 + r.Int64N(3))})
	}
	return all
}

// randomGres returns what a job requests: nothing in half of the cases.
func randomGres(r *rand.Rand) (all []cluster.Gres) {
	if r.IntN(4) == 0 {
		all = append(all, cluster.Gres{Name: "fpga", Count: 1 + r.Int64N(2)})
	}
	if r.IntN(3) == 0 {
		all = append(all, cluster.Gres{Name: "nvme", Type: []string{"", "", "fast"}[r.IntN(3)], Count: 50 * (1 + r.Int64N(5))})
	}
	return all
}

// gresOf counts generic resources by name.
func gresOf(list []cluster.Gres) map[string]int64 {
	counts := map[string]int64{}
	for _, g := range list {
		counts[g.Name] += g.Count
	}
	return counts
}

// gresType reports whether the generic resources of a node have the requested types.
func gresType(n *cluster.Node, q *cluster.Request) bool {
	for _, g := range n.Gres {
		for _, want := range q.Gres {
			if g.Name == want.Name && want.Type != "" && want.Type != g.Type {
				return false
			}
		}
	}
	return true
}

// gresLeft reports whether the jobs ahead leave what a node is to give at every moment of an interval.
func gresLeft(snap *cluster.Snapshot, ahead []held, give grant, from, to cluster.Instant) bool {
	has := gresOf(nodeNamed(snap, give.node).Gres)
	moments := []cluster.Instant{from}
	for _, h := range ahead {
		if h.from > from && h.from < to {
			moments = append(moments, h.from)
		}
	}
	for _, m := range moments {
		used := map[string]int64{}
		for _, h := range ahead {
			for _, a := range h.nodes {
				if a.node == give.node && m >= h.from && m < h.to {
					for name, n := range a.gres {
						used[name] += n
					}
				}
			}
		}
		for name, n := range give.gres {
			if used[name]+n > has[name] {
				return false
			}
		}
	}
	return true
}
