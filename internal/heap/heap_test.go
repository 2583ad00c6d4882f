package heap_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/greylag/greylag/internal/heap"
)

// item is a value that knows its place.
type item struct{ key, place int }

func newItems() heap.Heap[*item] {
	return heap.NewIndexed(func(a, b **item) bool { return (*a).key < (*b).key }, func(x **item, place int) { (*x).place = place })
}

// drain pops all values.
func drain(h *heap.Heap[*item]) (keys []int) {
	for h.Len() > 0 {
		keys = append(keys, h.Pop().key)
	}
	return keys
}

// TestRandomOperations compares the heap with a sorted list after random operations.
func TestRandomOperations(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		h := newItems()
		var list []*item
		for range r.IntN(60) {
			switch k := r.IntN(6); {
			case k < 4 || len(list) == 0:
				x := &item{key: r.IntN(20), place: -1}
				list = append(list, x)
				h.Push(x)
			case k == 4:
				i := r.IntN(len(list))
				h.Remove(list[i].place)
				if list[i].place != -1 {
					t.Fatalf("a removed value has the place %d", list[i].place)
				}
				h.Remove(list[i].place)
				list = slices.Delete(list, i, i+1)
			default:
				limit := r.IntN(20)
				above := func(x *item) bool { return x.key > limit }
				h.DeleteFunc(above)
				list = slices.DeleteFunc(list, above)
			}
			for i, x := range h.Items() {
				if x.place != i {
					t.Fatalf("the value at %d has the place %d", i, x.place)
				}
			}
		}
		for _, x := range list {
			x.key = r.IntN(20)
		}
		h.Init()
		slices.SortFunc(list, func(a, b *item) int { return cmp.Compare(a.key, b.key) })
		var want []int
		for _, x := range list {
			want = append(want, x.key)
		}
		if got := drain(&h); !slices.Equal(got, want) {
			t.Fatalf("popped %v, want %v", got, want)
		}
	}
}

func TestPlainValues(t *testing.T) {
	h := heap.New(func(a, b *int) bool { return *a > *b })
	for _, x := range []int{3, 1, 4, 1, 5, 9, 2, 6} {
		h.Push(x)
	}
	var got []int
	for h.Len() > 0 {
		got = append(got, h.Pop())
	}
	if want := []int{9, 6, 5, 4, 3, 2, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("popped %v, want %v", got, want)
	}
}
