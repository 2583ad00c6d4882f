package backfill

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

func hosts(names ...string) []*topology.Host {
	var list []*topology.Host
	for _, name := range names {
		n := cluster.Node{Name: name, CPUs: 8, Memory: 64}
		for i := range int32(4) {
			n.GPUs = append(n.GPUs, cluster.GPU{Index: i})
		}
		list = append(list, topology.NewHost(&n))
	}
	return list
}

func want(p *Profile, lasts time.Duration, r cluster.Request) *Want {
	r.TasksPerNode, r.CPUsPerTask = 1, max(r.CPUsPerTask, 1)
	w := &Want{Need: topology.NeedOf(&r), Lasts: lasts}
	for i := range p.Hosts() {
		w.Hosts = append(w.Hosts, i)
	}
	return w
}

// TestLaterOnesNeverDelayEarlierOnes plays the case of the manual: a wide job waits
// for a running one, a short one slips in before it, a long one may not.
func TestLaterOnesNeverDelayEarlierOnes(t *testing.T) {
	p := New(100, hosts("n1"), 1000)
	p.Take(0, 200, []cluster.NodeAllocation{{Node: "n1", GPUs: []int32{0, 1}, CPUs: 2}})
	wide := want(p, 50, cluster.Request{Nodes: 1, GPUsPerNode: 4})
	at, where, ok := p.Earliest(wide)
	if !ok || at != 200 || len(where.Nodes[0].GPUs) != 4 {
		t.Fatal(at, where, ok)
	}
	p.Take(at, at+50, where.Nodes)
	if _, ok := p.StartsNow(want(p, 101, cluster.Request{Nodes: 1, GPUsPerNode: 1})); ok {
		t.Fatal("a job that would end after the planned start may start now")
	}
	if !p.FitsNow(want(p, 101, cluster.Request{Nodes: 1, GPUsPerNode: 1})) {
		t.Fatal("it would fit now but for the plan")
	}
	if where, ok := p.StartsNow(want(p, 100, cluster.Request{Nodes: 1, GPUsPerNode: 1})); !ok || where.Nodes[0].GPUs[0] != 2 {
		t.Fatal("a job that ends in time does not start")
	}
	if at, _, ok := p.Earliest(want(p, 101, cluster.Request{Nodes: 1, GPUsPerNode: 1})); !ok || at != 250 {
		t.Fatal(at, ok)
	}
	if p.FitsEmpty(want(p, 1, cluster.Request{Nodes: 1, GPUsPerNode: 5})) {
		t.Fatal("five GPUs of four")
	}
}

func TestEffortIsBounded(t *testing.T) {
	p := New(0, hosts("n1"), 30)
	for i := range cluster.Instant(100) {
		p.Take(i*2, i*2+1, []cluster.NodeAllocation{{Node: "n1", GPUs: []int32{0, 1, 2, 3}}})
	}
	w := want(p, 2, cluster.Request{Nodes: 1, GPUsPerNode: 1})
	if _, _, ok := p.Earliest(w); ok || !p.Exhausted() {
		t.Fatal("found beyond its effort")
	}
}

// taken is an interval, as the oracle keeps it.
type taken struct {
	from, to cluster.Instant
	on       cluster.NodeAllocation
}

// FuzzEarliest compares with an oracle that tries every instant.
func FuzzEarliest(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		names := []string{"a", "b", "c"}[:1+r.IntN(3)]
		p := New(0, hosts(names...), 1<<30)
		var all []taken
		for range 12 {
			q := cluster.Request{Nodes: int32(1 + r.IntN(len(names))), GPUsPerNode: int32(r.IntN(5)), CPUsPerTask: int32(1 + r.IntN(8)), MemPerNode: cluster.Bytes(r.IntN(64))}
			if r.IntN(4) == 0 {
				q.GPUs, q.GPUsPerNode, q.Nodes = int32(1+r.IntN(4*len(names))), 0, 0
			}
			lasts := time.Duration(1 + r.IntN(6))
			at, where, ok := p.Earliest(want(p, lasts, q))
			if !ok {
				t.Fatalf("%+v never fits", q) // everything is free in the end
			}
			for earlier := cluster.Instant(0); earlier < at; earlier++ {
				if naive(names, all, q, earlier, earlier.Add(lasts)) {
					t.Fatalf("%+v fits at %d, not first at %d", q, earlier, at)
				}
			}
			end := at.Add(lasts)
			for _, a := range where.Nodes {
				gpus, cpus, memory := spare(all, a.Node, at, end)
				for _, g := range a.GPUs {
					if !slices.Contains(gpus, g) {
						t.Fatalf("GPU %d of %s is not free at %d", g, a.Node, at)
					}
				}
				if a.CPUs > cpus || a.Memory > memory {
					t.Fatalf("%+v at %d: %d CPUs, %d bytes free", a, at, cpus, memory)
				}
			}
			for _, a := range where.Nodes {
				all = append(all, taken{at, end, a})
			}
			p.Take(at, end, where.Nodes)
		}
	})
}

// spare is what of a host is free throughout an interval.
func spare(all []taken, name string, from, to cluster.Instant) (gpus []int32, cpus int32, memory cluster.Bytes) {
	gpus, cpus, memory = []int32{0, 1, 2, 3}, 8, 64
	for at := from; at < to; at++ {
		c, m := int32(8), cluster.Bytes(64)
		for _, x := range all {
			if x.on.Node == name && x.from <= at && at < x.to {
				c, m = c-x.on.CPUs, m-x.on.Memory
				gpus = slices.DeleteFunc(gpus, func(g int32) bool { return slices.Contains(x.on.GPUs, g) })
			}
		}
		cpus, memory = min(cpus, c), min(memory, m)
	}
	return gpus, cpus, memory
}

func naive(names []string, all []taken, q cluster.Request, from, to cluster.Instant) bool {
	nodes, total := int32(0), int32(0)
	for _, name := range names {
		gpus, cpus, memory := spare(all, name, from, to)
		if cpus < q.CPUsPerTask || memory < q.MemPerNode || int32(len(gpus)) < q.GPUsPerNode {
			continue
		}
		nodes, total = nodes+1, total+int32(len(gpus))
	}
	return nodes >= q.Nodes && total >= q.GPUs
}
