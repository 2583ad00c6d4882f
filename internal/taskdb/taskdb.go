// Package taskdb keeps a node's record of its tasks in one bbolt file, so that a daemon that is
// killed, upgraded or restarted knows what it had started.
//
// It decides how a record is written and how to treat a file that cannot be read: it sets the file
// aside, creates a new one and reports that. It never decides what happens to a task.
//
// Nothing is synced to the disk. A record has to outlive the daemon, and for that the kernel's page
// cache suffices; after a boot the tasks are gone, the node registers under a new boot, and its
// records mean nothing. The file therefore belongs on a tmpfs. (Measured: 0.05 ms a change, against
// 1 to 4 ms synced.)
package taskdb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/greylag/greylag/internal/boltcheck"
	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/reconcile"
)

var (
	// ErrInUse reports that another process has the file open.
	ErrInUse = errors.New("task records are in use by another gnoded")
	// ErrCorrupt reports that a file or a record in it cannot be read.
	ErrCorrupt = errors.New("task records are unreadable")
)

// lockPatience is how long Open waits for a daemon that is about to end.
const lockPatience = 2 * time.Second

const (
	bucketMeta  = "meta"
	bucketTasks = "tasks"

	keyIdentity = "identity"
	keyFloor    = "floor"
)

// DB is an open file. Its methods may be called from many goroutines.
type DB struct{ bolt *bolt.DB }

// Identity is the node's identity for the controllers.
type Identity struct {
	Boot     string // of the kernel; records of another boot mean nothing
	Instance string // two boots of a node never share one
	Cluster  string
	Epoch    uint64
	// Recovering reports that earlier records of this boot were lost, and that no desired set has
	// been acted on since.
	Recovering bool
}

// Change is the content of one transaction.
type Change struct {
	Put    []*Task
	Forget []reconcile.ID
	Floor  uint64 // older sets are no longer accepted; 0: unchanged
}

// Open opens or creates the file. fresh reports that it holds nothing, because it did not exist or
// could not be read; in the latter case the old file is next to it with the suffix ".broken". A
// file of an earlier development version stays in place. The error may be ErrInUse or
// codec.ErrEarlier.
func Open(path string) (db *DB, fresh bool, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, false, fmt.Errorf("task records: %w", err)
	}
	_, err = os.Stat(path)
	fresh = errors.Is(err, fs.ErrNotExist)
	db, err = open(path)
	if !errors.Is(err, ErrCorrupt) {
		return db, fresh, err
	}
	if err := os.Rename(path, path+".broken"); err != nil {
		return nil, false, fmt.Errorf("task records: %w", err)
	}
	db, err = open(path)
	return db, true, err
}

// check reports whether bbolt can open the file: it panics on damaged pages, some of
// them in a goroutine of its own. A missing or empty file is new.
func check(path string) error {
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		return nil
	}
	_, err := boltcheck.Tree(path)
	if errors.Is(err, boltcheck.ErrDamaged) {
		return fmt.Errorf("%s: %w: %w", path, ErrCorrupt, err)
	}
	return nil // bbolt reports other errors
}

// open reads everything once, so that damage shows now.
func open(path string) (db *DB, err error) {
	if err := check(path); err != nil {
		return nil, err
	}
	var file *bolt.DB
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: %w: %v", path, ErrCorrupt, r)
		}
		if err != nil && file != nil {
			_ = closeQuietly(file) // the first error counts
			db = nil
		}
	}()
	file, err = bolt.Open(path, 0o600, &bolt.Options{
		Timeout: lockPatience, NoSync: true, NoGrowSync: true, FreelistType: bolt.FreelistMapType,
	})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("%s: %w", path, ErrInUse)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("task records: %w", err)
	case err != nil:
		return nil, fmt.Errorf("%s: %w: %w", path, ErrCorrupt, err)
	}
	db = &DB{bolt: file}
	empty := false
	err = file.View(func(tx *bolt.Tx) error {
		empty = tx.Bucket([]byte(bucketMeta)) == nil || tx.Bucket([]byte(bucketTasks)) == nil
		return nil
	})
	if err == nil && empty {
		err = file.Update(createBuckets)
	}
	if err == nil {
		_, err = db.Tasks()
	}
	if err == nil {
		_, _, err = db.Identity()
	}
	switch {
	case errors.Is(err, codec.ErrEarlier):
		err = fmt.Errorf("%s: %w", path, err)
	case err != nil && !errors.Is(err, ErrCorrupt):
		err = fmt.Errorf("%s: %w: %w", path, ErrCorrupt, err)
	}
	return db, err
}

func createBuckets(tx *bolt.Tx) error {
	for _, name := range []string{bucketMeta, bucketTasks} {
		if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
			return err
		}
	}
	return nil
}

// closeQuietly closes a file that may be too damaged even for that.
func closeQuietly(file *bolt.DB) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("close: %v", r)
		}
	}()
	return file.Close()
}

// Close closes the file.
func (db *DB) Close() error { return db.bolt.Close() }

// Identity reads the value of SetIdentity. known is false in a fresh file.
func (db *DB) Identity() (id Identity, known bool, err error) {
	err = db.bolt.View(func(tx *bolt.Tx) error {
		data := tx.Bucket([]byte(bucketMeta)).Get([]byte(keyIdentity))
		if data == nil {
			return nil
		}
		known = true
		return decode(data, &id)
	})
	return id, known, err
}

// SetIdentity stores the node's identity.
func (db *DB) SetIdentity(id Identity) error {
	data, err := encode(id)
	if err != nil {
		return err
	}
	return db.update(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte(bucketMeta)).Put([]byte(keyIdentity), data)
	})
}

// Floor returns the version of the newest desired set that was acted on.
func (db *DB) Floor() (floor uint64, err error) {
	err = db.bolt.View(func(tx *bolt.Tx) error {
		if data := tx.Bucket([]byte(bucketMeta)).Get([]byte(keyFloor)); len(data) == 8 {
			floor = binary.BigEndian.Uint64(data)
		}
		return nil
	})
	return floor, err
}

// Tasks reads all records, by job and attempt.
func (db *DB) Tasks() ([]*Task, error) {
	var tasks []*Task
	err := db.bolt.View(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte(bucketTasks)).ForEach(func(k, v []byte) error {
			task, err := DecodeTask(v)
			if err == nil && string(key(task.ID)) != string(k) {
				err = fmt.Errorf("record of task %d.%d under another's name: %w", task.ID.Job, task.ID.Attempt, ErrCorrupt)
			}
			tasks = append(tasks, task)
			return err
		})
	})
	return tasks, err
}

// Write applies the change as a whole or not at all.
func (db *DB) Write(change Change) error {
	return db.update(func(tx *bolt.Tx) error {
		tasks, meta := tx.Bucket([]byte(bucketTasks)), tx.Bucket([]byte(bucketMeta))
		for _, task := range change.Put {
			data, err := EncodeTask(task)
			if err != nil {
				return err
			}
			if err := tasks.Put(key(task.ID), data); err != nil {
				return err
			}
		}
		for _, id := range change.Forget {
			if err := tasks.Delete(key(id)); err != nil {
				return err
			}
		}
		if change.Floor != 0 {
			if err := meta.Put([]byte(keyFloor), binary.BigEndian.AppendUint64(nil, change.Floor)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (db *DB) update(fn func(*bolt.Tx) error) error {
	if err := db.bolt.Update(fn); err != nil {
		return fmt.Errorf("task records: %w", err)
	}
	return nil
}

// key sorts by job, then attempt.
func key(id reconcile.ID) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, uint64(id.Job)), uint32(id.Attempt))
}
