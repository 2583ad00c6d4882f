package cow

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// check verifies the structure of the tree and returns its number of entries.
func check(m *Map[int, int]) (int, error) {
	if m.root == nil {
		return 0, nil
	}
	return checkNode(m.root, true, nil, nil)
}

func checkNode(n *node[int, int], root bool, low, high *int) (int, error) {
	if len(n.keys) > width || len(n.keys) == 0 {
		return 0, fmt.Errorf("a node has %d entries", len(n.keys))
	}
	if n.children == nil {
		for i, k := range n.keys {
			if low != nil && k < *low || high != nil && k >= *high || i > 0 && n.keys[i-1] >= k {
				return 0, fmt.Errorf("key %d is out of order", k)
			}
		}
		if len(n.values) != len(n.keys) {
			return 0, fmt.Errorf("%d keys with %d values", len(n.keys), len(n.values))
		}
		return len(n.keys), nil
	}
	if len(n.children) != len(n.keys) || len(n.children) < 2 || !root && len(n.children) < width/4 {
		return 0, fmt.Errorf("an inner node has %d keys, %d children", len(n.keys), len(n.children))
	}
	total := 0
	for i, c := range n.children {
		lo, hi := low, high
		if i > 0 {
			lo = &n.keys[i]
		}
		if i+1 < len(n.keys) {
			hi = &n.keys[i+1]
		}
		count, err := checkNode(c, false, lo, hi)
		if err != nil {
			return 0, err
		}
		total += count
	}
	return total, nil
}

// agree compares a map with a plain Go map.
func agree(t *testing.T, m *Map[int, int], model map[int]int) {
	t.Helper()
	count, err := check(m)
	if err != nil {
		t.Fatal(err)
	}
	if count != len(model) || m.Len() != len(model) {
		t.Fatalf("%d entries, Len %d, want %d", count, m.Len(), len(model))
	}
	want := slices.Sorted(maps.Keys(model))
	var got []int
	for k, v := range m.All() {
		if model[k] != v {
			t.Fatalf("value of %d is %d, want %d", k, v, model[k])
		}
		got = append(got, k)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("keys %v, want %v", got, want)
	}
	first, _, found := m.First()
	if found != (len(want) > 0) || found && first != want[0] {
		t.Fatalf("First is %d, %v", first, found)
	}
	if len(want) == 0 {
		return
	}
	for _, from := range []int{want[0] - 1, want[len(want)/2], want[len(want)/2] + 1, want[len(want)-1] + 1} {
		got = got[:0]
		for k := range m.From(from) {
			got = append(got, k)
		}
		at, _ := slices.BinarySearch(want, from)
		if !slices.Equal(got, want[at:]) {
			t.Fatalf("From(%d) yields %v, want %v", from, got, want[at:])
		}
	}
}

type clone struct {
	m     Map[int, int]
	model map[int]int
}

// run applies operations to a map and a plain Go map. It keeps clones, which must not change. An
// operation is two bytes; the key is in the rest.
func run(t *testing.T, ops []uint32) {
	m := New[int, int](cmp.Compare[int])
	model := map[int]int{}
	var clones []clone
	for i, op := range ops {
		key := int(op >> 4)
		switch op & 15 {
		case 0:
			if len(clones) < 8 {
				clones = append(clones, clone{m.Clone(), maps.Clone(model)})
			}
		case 1, 2, 3, 4, 5, 6:
			got, found := m.Delete(key)
			want, there := model[key]
			if found != there || got != want {
				t.Fatalf("Delete(%d) = %d, %v, want %d, %v", key, got, found, want, there)
			}
			delete(model, key)
		default:
			_, there := model[key]
			if added := m.Set(key, i); added == there {
				t.Fatalf("Set(%d) says added %v", key, added)
			}
			model[key] = i
		}
		if v, found := m.Get(key); found != m.Has(key) || v != model[key] {
			t.Fatalf("Get(%d) = %d, %v, want %d", key, v, found, model[key])
		}
	}
	agree(t, &m, model)
	for i := range clones {
		agree(t, &clones[i].m, clones[i].model)
	}
}

func TestAgainstModel(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		space := []uint32{20, 200, 5000}[seed%3]
		ops := make([]uint32, 6000)
		for i := range ops {
			action := r.Uint32N(16)
			if action == 0 && r.Uint32N(50) != 0 {
				action = 9
			}
			key := r.Uint32N(space)
			if seed%5 == 0 { // keys ascend and are deleted in the same order
				key = uint32(i)
				if action < 7 {
					key = uint32(i / 3)
				}
			}
			ops[i] = key<<4 | action
		}
		run(t, ops)
	}
}

func TestFillAndDrain(t *testing.T) {
	for _, step := range []int{1, -1, 7919} {
		m := New[int, int](cmp.Compare[int])
		model := map[int]int{}
		for i := range 10_007 {
			key := (i*step%10_007 + 10_007) % 10_007
			m.Set(key, i)
			model[key] = i
		}
		agree(t, &m, model)
		full := m.Clone()
		for i := range 10_007 {
			m.Delete((10_006*step - i*step%10_007 + 10_007*8000) % 10_007)
			if i%997 == 0 {
				if _, err := check(&m); err != nil {
					t.Fatal(err)
				}
			}
		}
		agree(t, &m, map[int]int{})
		agree(t, &full, model)
	}
}

// TestReadersOfClones reads clones during writes, for the race detector.
func TestReadersOfClones(t *testing.T) {
	m := New[int, int](cmp.Compare[int])
	var readers sync.WaitGroup
	for round := range 50 {
		for i := range 200 {
			m.Set(round*100+i, round)
		}
		c, size := m.Clone(), m.Len()
		readers.Go(func() {
			count := 0
			for range c.All() {
				count++
			}
			if count != size {
				t.Errorf("a clone has %d entries, want %d", count, size)
			}
		})
		for i := range 50 {
			m.Delete(round*100 + i*2)
		}
	}
	readers.Wait()
}

func FuzzMap(f *testing.F) {
	f.Add([]byte("0123456789abcdefghijklmnopqrstuvwxyz"))
	f.Fuzz(func(t *testing.T, data []byte) {
		ops := make([]uint32, 0, len(data)/2)
		for i := 0; i+1 < len(data); i += 2 {
			ops = append(ops, uint32(data[i])<<4|uint32(data[i+1]&15))
		}
		run(t, ops)
	})
}

func BenchmarkSetAscending(b *testing.B) {
	m := New[uint64, uint64](cmp.Compare[uint64])
	b.ReportAllocs()
	for i := range b.N {
		m.Set(uint64(i), 0)
	}
}

// BenchmarkSetAfterClone changes a map of a million entries and clones it after each change, as
// each log entry does with a table.
func BenchmarkSetAfterClone(b *testing.B) {
	m := New[uint64, uint64](cmp.Compare[uint64])
	for i := range uint64(1_000_000) {
		m.Set(i, 0)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		m.Clone()
		m.Set(uint64(i)*7919%1_000_000, 1)
	}
}

func BenchmarkGet(b *testing.B) {
	m := New[uint64, uint64](cmp.Compare[uint64])
	for i := range uint64(1_000_000) {
		m.Set(i, 0)
	}
	b.ResetTimer()
	for i := range b.N {
		m.Get(uint64(i) * 7919 % 1_000_000)
	}
}
