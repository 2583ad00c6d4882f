package table

import (
	"testing"

	"github.com/greylag/greylag/internal/codec"
)

// TestHash checks that the hash of digests is XXH64, by the vectors of cespare/xxhash and of its specification.
func TestHash(t *testing.T) {
	for text, want := range map[string]uint64{
		"":    0xef46db3751d8e999,
		"a":   0xd24ec4f1a98c6e5b,
		"as":  0x1c330fb2d66be179,
		"abc": 0x44bc2cf5ad770999,
		"Call me Ishmael. Some years ago--never mind how long precisely-": 0x02a2e85470d6fd96,
	} {
		h := Hasher{c: codec.Writer([]byte(text))}
		if got := h.Sum(); got != want {
			t.Errorf("XXH64 of %q is %016x, want %016x", text, got, want)
		}
	}
}
