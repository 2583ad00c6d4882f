package table

import (
	"fmt"
	"iter"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/cow"
)

// Schema describes a table.
type Schema[K, V any] struct {
	Kind    Kind
	Compare func(a, b K) int
	// Key codes a key, which precedes the record. Nil where the record holds its own key, which
	// KeyOf then returns.
	Key   func(*codec.Coder, *K)
	KeyOf func(*V) K
	// Fields codes a record.
	Fields func(*codec.Coder, *V)
	// Digested codes what of a record the digest covers. Nil means Fields.
	Digested func(*codec.Coder, *V)
}

// Table is a keyed set of records that snapshots and digests cover. Records are replaced, never
// changed. A Table has one writer at a time; any number of goroutines may read a clone.
type Table[K, V any] struct {
	cow.Map[K, V]
	schema *Schema[K, V]
	hasher *Hasher
	digest uint64
}

// New returns an empty table. A nil hasher means that the table has no digest.
func New[K, V any](schema *Schema[K, V], h *Hasher) Table[K, V] {
	return Table[K, V]{Map: cow.New[K, V](schema.Compare), schema: schema, hasher: h}
}

// Clone returns a table that later writes to t do not change, whose own writes use another
// hasher. O(1).
func (t *Table[K, V]) Clone(h *Hasher) Table[K, V] {
	c := *t
	c.Map, c.hasher = t.Map.Clone(), h
	return c
}

// Digest returns the XOR of the hashes of all records. O(1).
func (t *Table[K, V]) Digest() uint64 { return t.digest }

// Set stores a record. O(log n).
func (t *Table[K, V]) Set(k K, v V) {
	if t.hasher != nil {
		if old, found := t.Get(k); found {
			t.digest ^= t.hash(k, old)
		}
		t.digest ^= t.hash(k, v)
	}
	t.Map.Set(k, v)
}

// SetIndexed stores a record that differs from the stored one only in fields that the digest
// does not cover. O(log n).
func (t *Table[K, V]) SetIndexed(k K, v V) { t.Map.Set(k, v) }

// Delete removes a record and returns it. O(log n).
func (t *Table[K, V]) Delete(k K) (V, bool) {
	old, found := t.Map.Delete(k)
	if found && t.hasher != nil {
		t.digest ^= t.hash(k, old)
	}
	return old, found
}

// Values yields the records in the order of their keys.
func (t *Table[K, V]) Values() iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, v := range t.All() {
			if !yield(v) {
				return
			}
		}
	}
}

func (t *Table[K, V]) hash(k K, v V) uint64 {
	c := t.hasher.Begin(t.schema.Kind)
	if t.schema.Key != nil {
		t.schema.Key(c, &k)
	}
	if t.schema.Digested != nil {
		t.schema.Digested(c, &v)
	} else {
		t.schema.Fields(c, &v)
	}
	return t.hasher.Sum()
}

// Check recomputes the digest. O(n).
func (t *Table[K, V]) Check() error {
	if t.hasher == nil {
		return nil
	}
	var sum uint64
	for k, v := range t.All() {
		sum ^= t.hash(k, v)
	}
	if sum != t.digest {
		return fmt.Errorf("table %d: the digest is %016x, recomputed %016x", t.schema.Kind, t.digest, sum)
	}
	return nil
}

// Encode writes the table into frames of its kind.
func (t *Table[K, V]) Encode(w *Writer) {
	w.Begin(t.schema.Kind)
	for k, v := range t.All() {
		if t.schema.Key != nil {
			t.schema.Key(w.Coder(), &k)
		}
		codec.Record(w.Coder(), &v, t.schema.Fields)
		w.EndRecord()
	}
}

// Decode reads and stores one record. A key that is already present is an error in c.
func (t *Table[K, V]) Decode(c *codec.Coder) (k K, v V) {
	if t.schema.Key != nil {
		t.schema.Key(c, &k)
	}
	codec.Record(c, &v, t.schema.Fields)
	if t.schema.Key == nil {
		k = t.schema.KeyOf(&v)
	}
	switch {
	case c.Failed():
	case t.Has(k):
		c.Fail("table %d: %v twice", t.schema.Kind, k)
	default:
		t.Set(k, v)
	}
	return k, v
}
