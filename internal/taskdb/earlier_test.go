package taskdb

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/greylag/greylag/internal/codec"
)

// TestEarlierVersion: a file of an earlier development version is refused by its name. It
// is not taken for damaged, which would move it away, and its records do not change.
func TestEarlierVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks.db")
	db, _, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	first := task(1)
	if err := db.Write(Change{Put: []*Task{first}}); err != nil {
		t.Fatal(err)
	}
	earlier := 0
	err = db.bolt.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte(bucketTasks))
		return b.ForEach(func(k, v []byte) error {
			earlier++
			return b.Put(k, append([]byte{1}, v[1:]...)) // the version that it wrote
		})
	})
	if err = errors.Join(err, db.Close()); err != nil || earlier != 1 {
		t.Fatal(earlier, err)
	}
	_, _, err = Open(path)
	if !errors.Is(err, codec.ErrEarlier) || errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(path + ".broken"); err == nil {
		t.Error("the file was moved away")
	}
}
