// Package cow provides an ordered map with O(1) clones: a B+tree whose nodes are copied on write.
//
// A node that carries the map's own mark is reachable from no other map, so a write may change it
// in place; it copies all others. The package never locks. A map has one writer at a time. Any
// number of goroutines may read a clone while its origin is written, since the two never write a
// common node.
//
// Two alternatives were rejected: a hash map with an undo log, because a snapshot would have to
// stop the writer, and a binary persistent tree, because it needs five times the memory.
package cow

import "iter"

// width is the maximum number of entries of a node: 32 entries of 24 bytes are a few cache lines to
// search and take less than a microsecond to copy.
const width = 32

// Map is an ordered map from K to V. Create it with [New]; the zero Map cannot be written.
type Map[K, V any] struct {
	compare func(a, b K) int
	root    *node[K, V]
	size    int
	mark    *mark // nil until the first write after a clone
}

// mark identifies the map that owns a node. It has a size so that two marks never share an address.
type mark struct{ _ byte }

// node is a leaf, with values, or an inner node, with children. A child holds the keys that are at
// least its own entry in keys and less than the next; the first entry of an inner node counts as
// less than every key.
type node[K, V any] struct {
	mark     *mark
	keys     []K
	values   []V           // leaf only
	children []*node[K, V] // inner node only
}

// New returns an empty map ordered by compare, which follows the contract of cmp.Compare.
func New[K, V any](compare func(a, b K) int) Map[K, V] {
	return Map[K, V]{compare: compare}
}

// Clone returns a map with the same entries. Neither map sees later writes to the other. Values are
// shared. O(1).
func (m *Map[K, V]) Clone() Map[K, V] {
	m.mark = nil
	return *m
}

// Len returns the number of entries. O(1).
func (m *Map[K, V]) Len() int { return m.size }

// Get returns the value of key. O(log n).
func (m *Map[K, V]) Get(key K) (value V, found bool) {
	n := m.root
	if n == nil {
		return value, false
	}
	for n.children != nil {
		n = n.children[m.child(n, key)]
	}
	i, found := m.search(n.keys, key)
	if !found {
		return value, false
	}
	return n.values[i], true
}

// Has reports whether the map has the key. O(log n).
func (m *Map[K, V]) Has(key K) bool {
	_, found := m.Get(key)
	return found
}

// First returns the entry with the smallest key. O(log n).
func (m *Map[K, V]) First() (key K, value V, found bool) {
	for n := m.root; n != nil; n = n.children[0] {
		if n.children == nil {
			return n.keys[0], n.values[0], true
		}
	}
	return key, value, false
}

// All yields the entries in ascending order of keys. The map must not be written meanwhile; to
// write, iterate over a clone. O(n).
func (m *Map[K, V]) All() iter.Seq2[K, V] {
	root := m.root
	return func(yield func(K, V) bool) {
		if root != nil {
			root.walk(yield)
		}
	}
}

// From yields the entries with keys at or above key in ascending order, under the same condition as
// All. O(log n) to the first.
func (m *Map[K, V]) From(key K) iter.Seq2[K, V] {
	start := *m
	return func(yield func(K, V) bool) {
		if start.root != nil {
			start.walkFrom(start.root, key, yield)
		}
	}
}

func (n *node[K, V]) walk(yield func(K, V) bool) bool {
	for _, c := range n.children {
		if !c.walk(yield) {
			return false
		}
	}
	for i, v := range n.values {
		if !yield(n.keys[i], v) {
			return false
		}
	}
	return true
}

func (m *Map[K, V]) walkFrom(n *node[K, V], key K, yield func(K, V) bool) bool {
	if n.children == nil {
		for i, _ := m.search(n.keys, key); i < len(n.keys); i++ {
			if !yield(n.keys[i], n.values[i]) {
				return false
			}
		}
		return true
	}
	i := m.child(n, key)
	if !m.walkFrom(n.children[i], key, yield) {
		return false
	}
	for _, c := range n.children[i+1:] {
		if !c.walk(yield) {
			return false
		}
	}
	return true
}

// search returns the first position whose key is not less than key, and reports whether it is
// equal.
func (m *Map[K, V]) search(keys []K, key K) (int, bool) {
	lo, hi := 0, len(keys)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		switch c := m.compare(keys[mid], key); {
		case c == 0:
			return mid, true
		case c < 0:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return lo, false
}

// child returns the index of the child of n that holds or would hold key.
func (m *Map[K, V]) child(n *node[K, V], key K) int {
	i, found := m.search(n.keys[1:], key)
	if found {
		return i + 1
	}
	return i
}
