// Package heap provides a binary heap of values of any type, without the interface conversions and
// allocations of container/heap.
package heap

// Heap keeps values such that the first comes before all others. Make it with [New] or [NewIndexed].
type Heap[T any] struct {
	items  []T
	before func(a, b *T) bool
	moved  func(x *T, place int) // nil when values do not know their place
}

// New returns an empty heap. The function before reports whether a comes before b; which of two
// equal values comes first depends on the order of the calls alone.
func New[T any](before func(a, b *T) bool) Heap[T] { return Heap[T]{before: before} }

// NewIndexed returns an empty heap that calls moved with each new place of a value, for
// [Heap.Remove]: -1 when it is removed.
func NewIndexed[T any](before func(a, b *T) bool, moved func(x *T, place int)) Heap[T] {
	return Heap[T]{before: before, moved: moved}
}

// Len returns the number of values.
func (h *Heap[T]) Len() int { return len(h.items) }

// Items returns all values, the first at 0. The slice is the heap's own: do not change it.
func (h *Heap[T]) Items() []T { return h.items }

// Push adds a value. O(log n).
func (h *Heap[T]) Push(x T) {
	h.items = append(h.items, x)
	h.place(len(h.items) - 1)
	h.up(len(h.items) - 1)
}

// Pop removes the first value, which must exist. O(log n).
func (h *Heap[T]) Pop() T {
	x := h.items[0]
	h.Remove(0)
	return x
}

// Remove removes the value at a place; nothing when the place is -1. O(log n).
func (h *Heap[T]) Remove(place int) {
	if place < 0 {
		return
	}
	last := len(h.items) - 1
	if h.moved != nil {
		h.moved(&h.items[place], -1)
	}
	if place != last {
		h.items[place] = h.items[last]
		h.place(place)
	}
	clear(h.items[last:])
	h.items = h.items[:last]
	if place != last && !h.up(place) {
		h.down(place)
	}
}

// DeleteFunc removes the values for which del returns true. O(n).
func (h *Heap[T]) DeleteFunc(del func(x T) bool) {
	kept := h.items[:0]
	for i := range h.items {
		if x := h.items[i]; !del(x) {
			kept = append(kept, x)
		} else if h.moved != nil {
			h.moved(&x, -1)
		}
	}
	clear(h.items[len(kept):])
	h.items = kept
	h.Init()
}

// Init restores the order after values have changed. O(n).
func (h *Heap[T]) Init() {
	for i := range h.items {
		h.place(i)
	}
	for i := len(h.items)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

func (h *Heap[T]) place(i int) {
	if h.moved != nil {
		h.moved(&h.items[i], i)
	}
}

func (h *Heap[T]) swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	h.place(i)
	h.place(j)
}

// up moves a value towards the first, and reports whether it moved.
func (h *Heap[T]) up(i int) bool {
	from := i
	for i > 0 && h.before(&h.items[i], &h.items[(i-1)/2]) {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	return i != from
}

// down moves a value away from the first.
func (h *Heap[T]) down(i int) {
	for {
		first := i
		for c := 2*i + 1; c < min(2*i+3, len(h.items)); c++ {
			if h.before(&h.items[c], &h.items[first]) {
				first = c
			}
		}
		if first == i {
			return
		}
		h.swap(i, first)
		i = first
	}
}
