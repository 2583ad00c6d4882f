package auth

import "container/list"

type digest [32]byte

// lru keeps the most recently used values, at most cap of them. The zero value is not usable; it is
// not safe for concurrent use. find and add are O(1).
type lru[V any] struct {
	cap     int
	entries map[digest]*list.Element
	order   *list.List // of lruEntry[V], most recent first
}

type lruEntry[V any] struct {
	key   digest
	value V
}

func newLRU[V any](cap int) *lru[V] {
	return &lru[V]{cap: cap, entries: make(map[digest]*list.Element), order: list.New()}
}

func (l *lru[V]) find(key digest) (V, bool) {
	e, ok := l.entries[key]
	if !ok {
		var none V
		return none, false
	}
	l.order.MoveToFront(e)
	return e.Value.(lruEntry[V]).value, true
}

func (l *lru[V]) add(key digest, value V) {
	if e, ok := l.entries[key]; ok {
		e.Value = lruEntry[V]{key, value}
		l.order.MoveToFront(e)
		return
	}
	l.entries[key] = l.order.PushFront(lruEntry[V]{key, value})
	if l.order.Len() > l.cap {
		last := l.order.Back()
		l.order.Remove(last)
		delete(l.entries, last.Value.(lruEntry[V]).key)
	}
}
