package cow

import "slices"

// Set stores a value and reports whether the key is new. O(log n). After a Clone it copies each
// node on the path once.
func (m *Map[K, V]) Set(key K, value V) (added bool) {
	if m.mark == nil {
		m.mark = new(mark)
	}
	if m.root == nil {
		m.root = &node[K, V]{mark: m.mark}
	}
	m.root = m.own(m.root)
	right, added := m.set(m.root, true, key, value)
	if right != nil {
		m.root = &node[K, V]{
			mark:     m.mark,
			keys:     append(make([]K, 0, step), m.root.keys[0], right.keys[0]),
			children: append(make([]*node[K, V], 0, step), m.root, right),
		}
	}
	if added {
		m.size++
	}
	return added
}

// set stores the value below n, which the map owns. If it had to split n, it returns the new right
// half. last means that no node lies to the right of n.
func (m *Map[K, V]) set(n *node[K, V], last bool, key K, value V) (right *node[K, V], added bool) {
	if n.children == nil {
		return m.setLeaf(n, last, key, value)
	}
	i := m.child(n, key)
	n.children[i] = m.own(n.children[i])
	last = last && i == len(n.children)-1
	half, added := m.set(n.children[i], last, key, value)
	if half == nil {
		return nil, added
	}
	if len(n.keys) == width {
		right = m.split(n, last)
		if i+1 > len(n.keys) {
			n, i = right, i-len(n.keys)
		}
	}
	n.keys = insert(n.keys, i+1, half.keys[0])
	n.children = insert(n.children, i+1, half)
	return right, added
}

func (m *Map[K, V]) setLeaf(n *node[K, V], last bool, key K, value V) (right *node[K, V], added bool) {
	i, found := m.search(n.keys, key)
	if found {
		n.values[i] = value
		return nil, false
	}
	if len(n.keys) == width {
		last = last && i == width
		right = m.split(n, last)
		if i > len(n.keys) || last {
			n, i = right, i-len(n.keys)
		}
	}
	n.keys = insert(n.keys, i, key)
	n.values = insert(n.values, i, value)
	return right, true
}

// split moves the upper half of n into a new node. At the right edge, where ascending keys arrive,
// it moves nothing of a leaf and a quarter of an inner node. The nodes that remain stay full, and
// inner nodes never lack children.
func (m *Map[K, V]) split(n *node[K, V], edge bool) *node[K, V] {
	at := width / 2
	switch {
	case edge && n.children == nil:
		at = width
	case edge:
		at = width * 3 / 4
	}
	right := &node[K, V]{mark: m.mark, keys: spare(n.keys[at:], edge)}
	if n.children == nil {
		right.values = spare(n.values[at:], edge)
	} else {
		right.children = spare(n.children[at:], edge)
	}
	n.keep(at)
	return right
}

// keep drops the entries from index at on and their capacity.
func (n *node[K, V]) keep(at int) {
	if at == len(n.keys) {
		return
	}
	n.keys = spare(n.keys[:at], false)
	if n.children == nil {
		n.values = spare(n.values[:at], false)
		return
	}
	n.children = spare(n.children[:at], false)
}

// step is the number of entries by which the capacity of a node grows. Nodes filled by ascending
// keys are full and others two thirds full on average. Allocating all nodes at full capacity cost a
// third of the memory of a large map.
const step = 8

// spare copies a list into one with some capacity, or with all that a node may need.
func spare[T any](list []T, all bool) []T {
	free := width
	if !all {
		free = (len(list) + step - 1) / step * step
	}
	return append(make([]T, 0, free), list...)
}

// more returns the list with capacity for count further entries.
func more[T any](list []T, count int) []T {
	if len(list)+count <= cap(list) {
		return list
	}
	return append(make([]T, 0, (len(list)+count+step-1)/step*step), list...)
}

// insert inserts one entry at index i.
func insert[T any](list []T, i int, x T) []T { return slices.Insert(more(list, 1), i, x) }

// cut drops the entries from index at on and clears their pointers.
func (n *node[K, V]) cut(at int) {
	clear(n.keys[at:])
	n.keys = n.keys[:at]
	if n.children == nil {
		clear(n.values[at:])
		n.values = n.values[:at]
		return
	}
	clear(n.children[at:])
	n.children = n.children[:at]
}

// own returns n if only this map can reach it, else a copy that only this map can reach.
func (m *Map[K, V]) own(n *node[K, V]) *node[K, V] {
	if n.mark == m.mark {
		return n
	}
	c := &node[K, V]{mark: m.mark, keys: spare(n.keys, false)}
	if n.children == nil {
		c.values = spare(n.values, false)
	} else {
		c.children = spare(n.children, false)
	}
	return c
}

// Delete removes a key and returns its value. Deleting a missing key copies nothing. O(log n).
func (m *Map[K, V]) Delete(key K) (value V, found bool) {
	if value, found = m.Get(key); !found {
		return value, false
	}
	if m.mark == nil {
		m.mark = new(mark)
	}
	m.root = m.own(m.root)
	m.remove(m.root, key)
	m.size--
	for len(m.root.children) == 1 {
		m.root = m.root.children[0]
	}
	if m.size == 0 {
		m.root = nil
	}
	return value, true
}

// remove deletes an existing key below n, which the map owns.
func (m *Map[K, V]) remove(n *node[K, V], key K) {
	if n.children == nil {
		i, _ := m.search(n.keys, key)
		n.keys = slices.Delete(n.keys, i, i+1)
		n.values = slices.Delete(n.values, i, i+1)
		return
	}
	i := m.child(n, key)
	n.children[i] = m.own(n.children[i])
	m.remove(n.children[i], key)
	if len(n.children[i].keys) < width/4 && len(n.children) > 1 {
		m.refill(n, i)
	}
}

// refill merges child i of n with a neighbour, or balances the two if they do not fit into one
// node.
func (m *Map[K, V]) refill(n *node[K, V], i int) {
	if i == len(n.children)-1 {
		i--
	}
	left, right := m.own(n.children[i]), n.children[i+1]
	n.children[i] = left
	if right.children != nil {
		// The first key of an inner node may be stale; the parent's key is its bound.
		right = m.own(right)
		right.keys[0] = n.keys[i+1]
	}
	if len(left.keys)+len(right.keys) <= width {
		left.take(right, len(right.keys))
		n.keys = slices.Delete(n.keys, i+1, i+2)
		n.children = slices.Delete(n.children, i+1, i+2)
		return
	}
	right = m.own(right)
	n.children[i+1] = right
	if more := (len(right.keys) - len(left.keys)) / 2; more > 0 {
		left.take(right, more)
		right.drop(more)
	} else {
		right.give(left, -more)
	}
	n.keys[i+1] = right.keys[0]
}

// take appends the first count entries of from.
func (n *node[K, V]) take(from *node[K, V], count int) {
	n.keys = append(more(n.keys, count), from.keys[:count]...)
	if n.children == nil {
		n.values = append(more(n.values, count), from.values[:count]...)
		return
	}
	n.children = append(more(n.children, count), from.children[:count]...)
}

// drop removes the first count entries.
func (n *node[K, V]) drop(count int) {
	n.keys = slices.Delete(n.keys, 0, count)
	if n.children == nil {
		n.values = slices.Delete(n.values, 0, count)
		return
	}
	n.children = slices.Delete(n.children, 0, count)
}

// give moves the last count entries of left to the front of n.
func (n *node[K, V]) give(left *node[K, V], count int) {
	at := len(left.keys) - count
	n.keys = slices.Insert(more(n.keys, count), 0, left.keys[at:]...)
	if n.children == nil {
		n.values = slices.Insert(more(n.values, count), 0, left.values[at:]...)
	} else {
		n.children = slices.Insert(more(n.children, count), 0, left.children[at:]...)
	}
	left.cut(at)
}
