package cow

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tidwall/btree"
)

// table is what the benchmark needs of a persistent ordered map.
type table interface {
	clone() table
	get(int) (int, bool)
	set(int, int)
	all(func(int, int) bool)
}

type ourMap struct{ m Map[int, int] }

func (t *ourMap) clone() table              { return &ourMap{t.m.Clone()} }
func (t *ourMap) get(k int) (int, bool)     { return t.m.Get(k) }
func (t *ourMap) set(k, v int)              { t.m.Set(k, v) }
func (t *ourMap) all(f func(int, int) bool) { t.m.All()(f) }

type tidwallMap struct{ m *btree.Map[int, int] }

func (t *tidwallMap) clone() table              { return &tidwallMap{t.m.Copy()} }
func (t *tidwallMap) get(k int) (int, bool)     { return t.m.Get(k) }
func (t *tidwallMap) set(k, v int)              { t.m.Set(k, v) }
func (t *tidwallMap) all(f func(int, int) bool) { t.m.Scan(f) }

type tidwallGeneric struct{ m *btree.BTreeG[[2]int] }

func (t *tidwallGeneric) clone() table { return &tidwallGeneric{t.m.Copy()} }
func (t *tidwallGeneric) get(k int) (int, bool) {
	e, ok := t.m.Get([2]int{k})
	return e[1], ok
}
func (t *tidwallGeneric) set(k, v int) { t.m.Set([2]int{k, v}) }
func (t *tidwallGeneric) all(f func(int, int) bool) {
	t.m.Scan(func(e [2]int) bool { return f(e[0], e[1]) })
}

// BenchmarkMaps compares the map with those of github.com/tidwall/btree: BTreeG, which also takes a
// function that compares keys, and Map, which orders them with <.
func BenchmarkMaps(b *testing.B) {
	ours := New[int, int](cmp.Compare[int])
	for name, empty := range map[string]func() table{
		"cow": func() table { return &ourMap{ours.Clone()} },
		"BTreeG": func() table {
			return &tidwallGeneric{btree.NewBTreeGOptions(func(a, b [2]int) bool { return a[0] < b[0] }, btree.Options{NoLocks: true})}
		},
		"Map": func() table { return &tidwallMap{new(btree.Map[int, int])} },
	} {
		for _, size := range []int{10_000, 1_000_000} {
			t := empty()
			keys := rand.New(rand.NewPCG(1, 2)).Perm(size)
			for _, k := range keys {
				t.set(k, k)
			}
			run := func(op string, f func(i int)) {
				b.Run(fmt.Sprintf("%s/%d/%s", op, size, name), func(b *testing.B) {
					b.ReportAllocs()
					for i := 0; b.Loop(); i++ {
						f(i)
					}
				})
			}
			run("get", func(i int) { t.get(keys[i%size]) })
			run("set", func(i int) { t.set(keys[i%size], i) })
			run("clone+set", func(i int) {
				t = t.clone()
				t.set(keys[i%size], i)
			})
			run("clone+100set", func(i int) {
				t = t.clone()
				for j := range 100 {
					t.set(keys[(i*100+j)%size], i)
				}
			})
			run("iterate", func(int) { t.all(func(int, int) bool { return true }) })
		}
	}
}
