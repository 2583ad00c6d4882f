package topology

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/greylag/greylag/pkg/cluster"
)

// FuzzSet compares the bitset with a map.
func FuzzSet(f *testing.F) {
	f.Add(uint64(1))
	f.Add(uint64(2))
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		draw := func() (GPUSet, map[int32]bool) {
			var s GPUSet
			m := map[int32]bool{}
			for range r.IntN(40) {
				i := int32(r.IntN(MaxGPUs+20) - 10)
				s = s.With(i)
				if i >= 0 && i < MaxGPUs {
					m[i] = true
				}
			}
			return s, m
		}
		a, inA := draw()
		b, inB := draw()
		for i := int32(-1); i <= MaxGPUs; i++ {
			for what, c := range map[string][2]bool{
				"Has": {a.Has(i), inA[i]}, "And": {a.And(b).Has(i), inA[i] && inB[i]},
				"Or": {a.Or(b).Has(i), inA[i] || inB[i]}, "Minus": {a.Minus(b).Has(i), inA[i] && !inB[i]},
			} {
				if c[0] != c[1] {
					t.Fatalf("%s %d: %v", what, i, c[0])
				}
			}
		}
		list := a.Indices()
		if int(a.Len()) != len(inA) || len(list) != len(inA) || !slices.IsSorted(list) || SetOf(list) != a {
			t.Fatalf("%v is not %v", list, inA)
		}
		n := r.IntN(len(list) + 2)
		if low := a.Lowest(int32(n)).Indices(); !slices.Equal(low, list[:min(n, len(list))]) {
			t.Fatalf("lowest %d of %v: %v", n, list, low)
		}
	})
}

// FuzzPlace checks that a placement gives what was requested from what is free, that one is found
// where one exists, and that the order of hosts does not matter.
func FuzzPlace(f *testing.F) {
	for seed := range uint64(500) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		var free []Free
		for i := range 1 + r.IntN(5) {
			n := cluster.Node{Name: string(rune('a' + i)), CPUs: 8, Memory: 64}
			for g := range r.IntN(9) {
				n.GPUs = append(n.GPUs, cluster.GPU{Index: int32(g), Type: []string{"x", "y"}[r.IntN(2)],
					Domain: []string{"", "p", "q"}[r.IntN(3)], Fault: []string{"", "", "", "broken"}[r.IntN(4)]})
			}
			f := AllOf(NewHost(&n))
			if r.IntN(2) == 0 {
				f = f.Less(f.GPUs.Lowest(int32(r.IntN(4))), int32(r.IntN(8)), cluster.Bytes(r.IntN(64)))
			}
			free = append(free, f)
		}
		q := cluster.Request{Nodes: int32(r.IntN(4)), GPUsPerNode: int32(r.IntN(5)), TasksPerNode: 1, CPUsPerTask: int32(1 + r.IntN(4)),
			MemPerNode: cluster.Bytes(r.IntN(20)), MemPerGPU: cluster.Bytes(r.IntN(8)), Exclusive: r.IntN(5) == 0}
		if r.IntN(3) == 0 {
			q.GPUs, q.GPUsPerNode = int32(1+r.IntN(12)), 0
		} else if q.Nodes == 0 {
			q.Nodes = 1
		}
		if r.IntN(3) == 0 {
			q.GPUTypes = []string{"y", "x"}[:1+r.IntN(2)]
		}
		need := NeedOf(&q)
		p, ok := Place(free, &need)
		if want := exists(free, &q, &need); ok != want {
			t.Fatalf("placed %v, possible %v: %+v in %+v", ok, want, q, free)
		}
		if ok {
			verify(t, free, &q, p)
		}
		r.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
		if again, _ := Place(free, &need); !reflect.DeepEqual(again, p) {
			t.Fatalf("another order places %+v, not %+v", again, p)
		}
	})
}

// exists tries every set of hosts.
func exists(free []Free, q *cluster.Request, need *NodeRequest) bool {
	for _, kind := range need.Types {
		for set := 1; set < 1<<len(free); set++ {
			nodes, total, fits := int32(0), int32(0), true
			for i := range free {
				if set&(1<<i) == 0 {
					continue
				}
				f := &free[i]
				n := f.GPUs.And(f.Host.OfType(kind)).Len()
				for n > 0 && q.MemoryOn(n) > f.Memory {
					n--
				}
				nodes, total = nodes+1, total+n
				fits = fits && f.CPUs >= q.CPUsPerNode() && f.Memory >= q.MemoryOn(0) && (f.Idle || !q.Exclusive) &&
					n >= q.GPUsPerNode && (q.GPUs == 0 || n > 0)
			}
			if fits && (q.Nodes == 0 || nodes == q.Nodes) && total >= q.GPUs && (q.GPUs == 0 || nodes <= q.GPUs) {
				return true
			}
		}
	}
	return false
}

func verify(t *testing.T, free []Free, q *cluster.Request, p cluster.Placement) {
	t.Helper()
	total := int32(0)
	kinds := map[string]bool{}
	for _, a := range p.Nodes {
		i := slices.IndexFunc(free, func(f Free) bool { return f.Host.Name == a.Node })
		f := &free[i]
		gpus := SetOf(a.GPUs)
		n := gpus.Len()
		total += n
		for _, kind := range []string{"x", "y"} {
			if gpus.And(f.Host.OfType(kind)) != (GPUSet{}) {
				kinds[kind] = true
			}
		}
		if gpus.Minus(f.GPUs) != (GPUSet{}) || a.CPUs > f.CPUs || a.Memory > f.Memory || a.Memory != q.MemoryOn(n) ||
			q.GPUs == 0 && n != q.GPUsPerNode || q.Exclusive && !f.Idle || int(n) != len(a.GPUs) {
			t.Fatalf("%+v out of %+v for %+v", a, f, q)
		}
	}
	if total != q.TotalGPUs() || q.Nodes > 0 && int(q.Nodes) != len(p.Nodes) || len(q.GPUTypes) > 0 && len(kinds) > 1 {
		t.Fatalf("%+v for %+v", p, q)
	}
}
