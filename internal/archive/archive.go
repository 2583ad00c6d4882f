// Package archive keeps, on each controller's disk, what the replicated state may drop: ended jobs,
// the scripts and environments of all jobs, and the journals of credits, of changes and of
// ended leases.
//
// It decides how they are stored, found and made durable, from the records it is given. The
// replicated log is the truth; the archive is a copy that can always be rebuilt from the log or
// from a peer. From the records it builds an index by user, account and time, and the sums of
// package tally, with a delay. It never decides which jobs are finished or what counts, and never
// delays a command for a disk: records are kept in memory and written in batches by a goroutine of its
// own. It replaces a record's Data only by newer Data of the same job.
//
// Every batch is one bbolt transaction with its fsync, so the file is whole after any crash. What
// was not written yet is still in the log, because a snapshot, which allows the log to be
// truncated, waits for Sync. Writing without fsync in between was rejected: bbolt then no longer
// orders its pages, and a power failure can destroy the file.
package archive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/greylag/greylag/internal/boltcheck"
	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/cluster"
)

// Record is one job that has ended. Seq numbers them 1, 2, 3, ... in the order of their ends, equal
// on every replica. All fields except Data are index keys.
type Record struct {
	Seq       uint64
	ID        cluster.JobID
	User      string
	Account   string
	State     cluster.JobState
	Submitted cluster.Instant
	Ended     cluster.Instant
	Data      []byte
}

// Blob is a script or an environment.
type Blob struct {
	Digest  cluster.Digest
	Content []byte
}

// Errors of the archive.
var (
	// ErrDamaged reports that the file cannot be used.
	ErrDamaged = errors.New("archive is damaged")
	// ErrClosed reports that the archive is closed.
	ErrClosed = errors.New("archive is closed")
)

// Options bound what may wait for the disk; the zero value has the defaults.
type Options struct {
	// Pause is how long the writer gathers between two batches (500 ms).
	Pause time.Duration
	// MaxPending is how many bytes may wait before Append does (64 MiB).
	MaxPending int
}

const fileName = "archive.db"

// Archive is an open archive. All methods may be called from any goroutine.
type Archive struct {
	db      *bolt.DB
	path    string
	options Options

	mu      sync.Mutex
	changed *sync.Cond // one of the fields below has changed
	pending batch      // accepted, not yet passed to the writer
	writing batch      // the writer's batch; pending and writing can be read
	flush   bool       // a caller waits: do not pause
	fault   error      // of the last attempt to write; nil after a success
	closed  bool
	done    chan struct{} // the writer has ended
	stop    chan struct{} // closed by Close
	wake    chan struct{} // capacity 1: work is waiting, or the end
	hurry   chan struct{} // capacity 1: do not pause
}

// Open opens or creates the archive in a folder. For a file that cannot be used it returns an error
// that wraps ErrDamaged and names the fix.
func Open(dir string, options Options) (*Archive, error) {
	if options.Pause == 0 {
		options.Pause = 500 * time.Millisecond
	}
	if options.MaxPending == 0 {
		options.MaxPending = 64 << 20
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open archive: %w", err)
	}
	a := &Archive{
		path: filepath.Join(dir, fileName), options: options,
		done: make(chan struct{}), stop: make(chan struct{}),
		wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1),
	}
	a.changed = sync.NewCond(&a.mu)
	if err := a.open(); err != nil {
		return nil, err
	}
	go a.write()
	return a, nil
}

// open opens the file and creates its buckets. bbolt reports some damage by a panic.
func (a *Archive) open() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = a.damaged(fmt.Errorf("%v", p))
		}
	}()
	if err := a.checkSize(); err != nil {
		return err
	}
	// The free list is kept in the file: without it bbolt reads every page when it
	// opens one, and ends the process over a bad one.
	a.db, err = bolt.Open(a.path, 0o600, &bolt.Options{Timeout: time.Second, FreelistType: bolt.FreelistMapType})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("open archive %s: another process has it open", a.path)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("open archive: %w", err)
	case err != nil:
		return a.damaged(err)
	}
	step := prepare
	for more := true; more; step = indexSome { // true only when indexes are rebuilt
		err := a.update(func(tx *bolt.Tx) (err error) {
			more, err = step(tx)
			return err
		})
		if err != nil {
			return errors.Join(a.damaged(err), a.db.Close())
		}
	}
	return nil
}

// checkSize refuses a truncated file. bbolt maps the file into memory, and the kernel kills a
// process that reads a map beyond the end of the file. An empty file is new; one that lacks its
// newest transaction is filled like that of a controller that was down.
func (a *Archive) checkSize() error {
	if info, err := os.Stat(a.path); err != nil || info.Size() == 0 {
		return nil // bbolt creates the file, or reports why it cannot
	}
	switch err := boltcheck.Size(a.path); {
	case err == nil || errors.Is(err, boltcheck.ErrMetaLost):
		return nil
	case errors.Is(err, boltcheck.ErrDamaged):
		return a.damaged(err)
	case errors.Is(err, boltcheck.ErrInUse):
		return fmt.Errorf("open archive %s: another process has it open", a.path)
	default:
		return fmt.Errorf("open archive: %w", err)
	}
}

// view reads, and turns a panic of bbolt on damaged pages into an error.
func (a *Archive) view(read func(*bolt.Tx) error) error {
	return a.guard(func() error { return a.db.View(read) })
}

// update writes, guarded as view.
func (a *Archive) update(write func(*bolt.Tx) error) error {
	return a.guard(func() error { return a.db.Update(write) })
}

func (a *Archive) guard(op func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = a.damaged(fmt.Errorf("%v", p))
		}
	}()
	return op()
}

func (a *Archive) damaged(err error) error {
	if errors.Is(err, codec.ErrEarlier) {
		return fmt.Errorf("archive %s: %w", a.path, err)
	}
	return fmt.Errorf("%w: %s: %w: move the file away and start again; it is rebuilt from the log and the other controllers", ErrDamaged, a.path, err)
}

// The buckets. Numbers in keys are big-endian, so that keys sort as numbers do.
var (
	bucketMeta     = []byte("meta")     // see below
	bucketJobs     = []byte("jobs")     // seq -> record
	bucketIDs      = []byte("ids")      // job id -> seq
	bucketEnded    = []byte("ended")    // ended, seq -> entry (index.go)
	bucketUsers    = []byte("users")    // user, 0, ended, seq -> entry
	bucketAccounts = []byte("accounts") // account, 0, ended, seq -> entry
	bucketHours    = []byte("hours")    // hour of ended -> earliest submission among its records
	bucketBlobs    = []byte("blobs")    // digest -> content
	bucketGaps     = []byte("gaps")     // first missing seq -> last missing seq
)

var (
	keyFormat  = []byte("format")
	keyIndex   = []byte("index")   // log index of the newest batch
	keySeq     = []byte("seq")     // highest seq
	keyIndexed = []byte("indexed") // the indexes hold every record up to this seq; absent: there are none
)

// form is the form of the file.
const form = 1

// prepare creates what is missing. more reports that indexSome has to be called.
func prepare(tx *bolt.Tx) (more bool, err error) {
	for _, name := range [][]byte{bucketMeta, bucketJobs, bucketBlobs, bucketGaps} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return false, err
		}
	}
	for j := range journals {
		for _, name := range [][]byte{rowsBucket(j), rowGapsBucket(j)} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return false, err
			}
		}
	}
	meta := tx.Bucket(bucketMeta)
	switch v := meta.Get(keyFormat); {
	case v == nil:
		if err := meta.Put(keyFormat, number(uint64(codec.FormByte(form)))); err != nil {
			return false, err
		}
	case len(v) == 8 && binary.BigEndian.Uint64(v) <= 2:
		return false, fmt.Errorf("it was %w", codec.ErrEarlier)
	case len(v) != 8 || binary.BigEndian.Uint64(v) != uint64(codec.FormByte(form)):
		return false, fmt.Errorf("its form %x is not known to this version of greylag", v)
	}
	if err := prepareIndexes(tx); err != nil {
		return false, err
	}
	return indexSome(tx)
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func parseNumber(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

// Close writes what waits and closes the file.
func (a *Archive) Close() error {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return nil
	}
	a.closed = true
	close(a.stop)
	a.press()
	a.changed.Broadcast()
	a.mu.Unlock()
	<-a.done
	a.mu.Lock()
	fault := a.fault
	a.mu.Unlock()
	return errors.Join(fault, a.db.Close())
}

// press makes the writer continue at once; the caller holds the lock.
func (a *Archive) press() {
	a.flush = true
	poke(a.hurry)
	poke(a.wake)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
