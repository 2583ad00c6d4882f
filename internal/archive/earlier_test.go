package archive

import (
	"errors"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/greylag/greylag/internal/codec"
)

// TestEarlierVersion: a file of an earlier development version is refused by its name, and
// keeps its form.
func TestEarlierVersion(t *testing.T) {
	dir := t.TempDir()
	a, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	err = a.update(func(tx *bolt.Tx) error { return tx.Bucket(bucketMeta).Put(keyFormat, number(2)) })
	if err = errors.Join(err, a.Close()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := Open(dir, Options{}); !errors.Is(err, codec.ErrEarlier) || errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), a.path) {
			t.Errorf("got %v", err)
		}
	}
}
