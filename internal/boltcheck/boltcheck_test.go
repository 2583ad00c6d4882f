package boltcheck

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

// sample writes a file with branch pages, overflow pages, nested and inline buckets
// and pages that were freed, and returns its content.
func sample(t *testing.T, options bolt.Options) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sample.db")
	options.Timeout, options.NoSync, options.NoGrowSync = time.Second, true, true
	db, err := bolt.Open(path, 0o600, &options)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 6 {
		err := db.Update(func(tx *bolt.Tx) error { return fill(tx, round) })
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func fill(tx *bolt.Tx, round int) error {
	conf, err := tx.CreateBucketIfNotExists([]byte("conf"))
	if err != nil {
		return err
	}
	nested, err := conf.CreateBucketIfNotExists([]byte("nested"))
	if err != nil {
		return err
	}
	logs, err := tx.CreateBucketIfNotExists([]byte("logs"))
	if err != nil {
		return err
	}
	for i := round * 500; i < round*500+900; i++ {
		key := binary.BigEndian.AppendUint64(nil, uint64(i))
		size := 60
		if i%97 == 0 {
			size = 20_000
		}
		if err := errors.Join(logs.Put(key, make([]byte, size)), nested.Put([]byte(fmt.Sprint(i)), key)); err != nil {
			return err
		}
	}
	for i := range round * 300 {
		if err := logs.Delete(binary.BigEndian.AppendUint64(nil, uint64(i))); err != nil {
			return err
		}
	}
	return conf.Put([]byte("term"), []byte{byte(round)})
}

// variants are the options with which Greylag opens files: with and without a stored free list.
var variants = map[string]bolt.Options{
	"stored free list":    {FreelistType: bolt.FreelistMapType},
	"free list not saved": {FreelistType: bolt.FreelistMapType, NoFreelistSync: true},
}

// use opens a file that passed the check, reads all of it and writes to it. A panic
// in a goroutine of bbolt ends the test.
func use(t *testing.T, path string, options bolt.Options) {
	t.Helper()
	options.Timeout, options.NoSync, options.NoGrowSync = time.Second, true, true
	db, err := bolt.Open(path, 0o600, &options)
	if err != nil {
		t.Fatalf("passed the check, and bbolt refuses it: %v", err)
	}
	defer db.Close()
	read := func(_, _ []byte) error { return nil }
	err = db.Update(func(tx *bolt.Tx) error {
		return tx.ForEach(func(_ []byte, b *bolt.Bucket) error {
			if err := b.ForEach(read); err != nil {
				return err
			}
			return b.Put([]byte("\xff\xff new"), make([]byte, 9000))
		})
	})
	if err != nil {
		t.Fatalf("passed the check, and bbolt fails: %v", err)
	}
}

func TestWholeFilesPass(t *testing.T) {
	for name, options := range variants {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.db")
			if err := os.WriteFile(path, sample(t, options), 0o600); err != nil {
				t.Fatal(err)
			}
			buckets, err := Tree(path)
			if err != nil || !slices.Equal(buckets, []string{"conf", "logs"}) {
				t.Errorf("buckets %q, %v", buckets, err)
			}
			if err := Size(path); err != nil {
				t.Error(err)
			}
			use(t, path, options)
		})
	}
}

func TestFilesCutShort(t *testing.T) {
	for name, options := range variants {
		t.Run(name, func(t *testing.T) {
			data := sample(t, options)
			f, err := open(data)
			if err != nil {
				t.Fatal(err)
			}
			end := int(f.meta.pages * f.meta.pageSize) // only reserved space follows
			path := filepath.Join(t.TempDir(), "x.db")
			for percent := range 100 {
				size := len(data) * percent / 100
				if err := os.WriteFile(path, data[:size], 0o600); err != nil {
					t.Fatal(err)
				}
				_, err := Tree(path)
				if errors.Is(err, ErrDamaged) != (size < end) || errors.Is(Size(path), ErrDamaged) != (size < end) {
					t.Errorf("cut to %d bytes of %d (%d in use): %v", size, len(data), end, err)
				}
				if err == nil {
					use(t, path, options)
				}
			}
		})
	}
}

func TestFlippedBitsAreFoundOrHarmless(t *testing.T) {
	rounds := 500
	if testing.Short() {
		rounds = 100
	}
	for name, options := range variants {
		t.Run(name, func(t *testing.T) {
			data := sample(t, options)
			path := filepath.Join(t.TempDir(), "x.db")
			found := 0
			for seed := range rounds {
				random := rand.New(rand.NewPCG(uint64(seed), 1))
				bad := slices.Clone(data)
				for range 1 + random.IntN(8) {
					at := random.IntN(len(bad))
					if random.IntN(2) == 0 { // page headers are the most sensitive bytes
						at = at&^4095 + random.IntN(128)
					}
					bad[at] ^= 1 << random.IntN(8)
				}
				if err := os.WriteFile(path, bad, 0o600); err != nil {
					t.Fatal(err)
				}
				switch _, err := Tree(path); {
				case err == nil:
					use(t, path, options)
				case errors.Is(err, ErrDamaged):
					found++
				default:
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			if found == 0 || found == rounds {
				t.Errorf("%d of %d were found: the test proves nothing", found, rounds)
			}
		})
	}
}

func TestOneInvalidMetaPage(t *testing.T) {
	data := sample(t, variants["free list not saved"])
	data[pageHead+40] ^= 1
	path := filepath.Join(t.TempDir(), "x.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if buckets, err := Tree(path); !errors.Is(err, ErrMetaLost) || len(buckets) != 2 {
		t.Errorf("buckets %q, %v", buckets, err)
	}
}

func TestMissingAndUsedFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	if _, err := Tree(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := Tree(path); !errors.Is(err, ErrInUse) {
		t.Errorf("open elsewhere: %v", err)
	}
}
