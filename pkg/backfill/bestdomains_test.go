package backfill

import (
	"math/rand/v2"
	"testing"

	"github.com/greylag/greylag/pkg/topology"
)

// FuzzBestDomains compares what few domains of one group offer on a limited number of hosts with every
// choice of hosts.
func FuzzBestDomains(f *testing.F) {
	for seed := range uint64(4000) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 3))
		w := &Want{most: 1 + r.Int32N(3), Need: topology.NodeRequest{PerNode: -1, Total: 1 + r.Int32N(16)}}
		if r.IntN(3) > 0 {
			w.groups = []int32{0, 1, 0, 1, 0}
		}
		if w.Need.Most = r.Int32N(5); r.IntN(2) == 0 {
			w.Need.Nodes = min(1+r.Int32N(4), w.Need.Total)
		}
		p := &Profile{}
		for h := range 1 + r.IntN(9) {
			w.domains = append(w.domains, r.Int32N(6)-1)
			p.found = append(p.found, candidate{host: h, gives: 1 + r.Int32N(5)})
		}
		hosts := append([]candidate(nil), p.found...)
		want := false
		for chosen := range 1 << len(hosts) {
			want = want || w.serves(hosts, chosen)
		}
		if got := p.keepBestDomains(w); got != want {
			t.Fatalf("%+v in %d of %v (groups %v) of %+v: %v", w.Need, w.most, w.domains, w.groups, hosts, got)
		}
	})
}

// serves reports whether the want can be spread over the chosen hosts.
func (w *Want) serves(hosts []candidate, chosen int) bool {
	domains, groups := map[int32]bool{}, map[int32]bool{}
	nodes, sum := int32(0), int32(0)
	for i, c := range hosts {
		if chosen>>i&1 == 0 {
			continue
		}
		d := w.domains[c.host]
		if d < 0 {
			return false
		}
		domains[d], groups[w.groupOf(d)] = true, true
		nodes, sum = nodes+1, sum+c.gives
	}
	n := &w.Need
	return nodes > 0 && nodes <= n.Total && sum >= n.Total && len(domains) <= int(w.most) && len(groups) == 1 &&
		(n.Nodes == 0 || nodes == n.Nodes) && (n.Most == 0 || nodes <= n.Most)
}

// wide returns a want for many hosts in many domains of equal size, where some domains offer more
// than others: neither bound alone excludes it.
func wide(domains, each, most, hosts int32) (*Want, []domainGives) {
	w := &Want{most: most, Need: topology.NodeRequest{Nodes: hosts, Total: 1}}
	group := make([]domainGives, domains)
	for i := range group {
		group[i].domain = int32(i)
		for h := range each {
			group[i].hosts = append(group[i].hosts, 8-h*8/each)
			group[i].sum += group[i].hosts[h]
		}
	}
	return w, group
}

func TestBestDomainsIsBounded(t *testing.T) {
	if w, group := wide(64, 32, 16, 256); len(bestDomains(w, group)) == 0 {
		t.Error("a want that is just within the bound is not served")
	}
	if w, group := wide(65, 32, 16, 256); bestDomains(w, group) != nil {
		t.Error("a want beyond the bound is looked for")
	}
}

// BenchmarkBestDomains measures the most expensive search within the bound: 16 of 64 domains of 32
// hosts, 256 hosts in all.
func BenchmarkBestDomains(b *testing.B) {
	w, group := wide(64, 32, 16, 256)
	b.ReportAllocs()
	for b.Loop() {
		bestDomains(w, group)
	}
}
