package archive

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/greylag/greylag/pkg/cluster"
)

// Watermark returns the log index of the newest entry whose records are on disk, and the highest
// sequence number there.
func (a *Archive) Watermark() (index, seq uint64) {
	// The only error of a read transaction is that the archive is closed.
	_ = a.view(func(tx *bolt.Tx) error {
		meta := tx.Bucket(bucketMeta)
		index, seq = parseNumber(meta.Get(keyIndex)), parseNumber(meta.Get(keySeq))
		return nil
	})
	return index, seq
}

// Job finds a finished job by id. O(log n).
func (a *Archive) Job(id cluster.JobID) (Record, bool, error) {
	a.mu.Lock()
	for _, b := range []*batch{&a.pending, &a.writing} {
		if i, ok := b.ids[id]; ok {
			r := b.records[i]
			a.mu.Unlock()
			return r, true, nil
		}
	}
	a.mu.Unlock()
	var r Record
	found := false
	err := a.view(func(tx *bolt.Tx) error {
		key := tx.Bucket(bucketIDs).Get(number(uint64(id)))
		if key == nil {
			return nil
		}
		var err error
		r, err = recordAt(tx, parseNumber(key))
		found = err == nil
		return err
	})
	return r, found, a.wrap(err)
}

func (a *Archive) wrap(err error) error {
	if err != nil {
		return fmt.Errorf("read archive %s: %w", a.path, err)
	}
	return nil
}

func recordAt(tx *bolt.Tx, seq uint64) (Record, error) {
	value := tx.Bucket(bucketJobs).Get(number(seq))
	if value == nil {
		return Record{}, fmt.Errorf("%w: number %d is in an index only", errRecord, seq)
	}
	return decode(seq, value)
}

// Between returns up to limit records from a sequence number on, ascending. Those in
// gaps are left out.
func (a *Archive) Between(from uint64, limit int) ([]Record, error) {
	if err := a.Sync(); err != nil {
		return nil, err
	}
	var list []Record
	err := a.view(func(tx *bolt.Tx) error {
		c := tx.Bucket(bucketJobs).Cursor()
		for k, v := c.Seek(number(from)); k != nil && len(list) < limit; k, v = c.Next() {
			r, err := decode(parseNumber(k), v)
			if err != nil {
				return err
			}
			list = append(list, r)
		}
		return nil
	})
	return list, a.wrap(err)
}

// Position is a place in a listing: everything newer has been listed. The zero value
// is the beginning.
type Position struct {
	Ended cluster.Instant
	Seq   uint64
}

// Query selects finished jobs, newest end first.
type Query struct {
	User   string          // "" means all
	From   cluster.Instant // ended at or after; 0: no bound
	Before cluster.Instant // ended before; 0: no bound
	After  Position        // continue after the last of the page before
	Limit  int             // most records
}

// List returns one page of finished jobs, and the start of the next; false without one. O(log n +
// page).
func (a *Archive) List(q Query) ([]Record, Position, bool, error) {
	if err := a.Sync(); err != nil {
		return nil, Position{}, false, err
	}
	var list []Record
	var next Position
	more := false
	err := a.view(func(tx *bolt.Tx) error {
		bucket, prefix := tx.Bucket(bucketEnded), []byte{}
		if q.User != "" {
			bucket, prefix = tx.Bucket(bucketUsers), append([]byte(q.User), 0)
		}
		c := bucket.Cursor()
		for k := seekBefore(c, q.bound(prefix)); k != nil; k, _ = c.Prev() {
			if !bytes.HasPrefix(k, prefix) || len(k) != len(prefix)+16 {
				return nil
			}
			ended := cluster.Instant(binary.BigEndian.Uint64(k[len(prefix):]))
			if ended < q.From {
				return nil
			}
			if len(list) >= q.Limit {
				more = true
				return nil
			}
			r, err := recordAt(tx, binary.BigEndian.Uint64(k[len(prefix)+8:]))
			if err != nil {
				return err
			}
			list = append(list, r)
			next = Position{ended, r.Seq}
		}
		return nil
	})
	return list, next, more, a.wrap(err)
}

// bound returns the first key that is not listed.
func (q *Query) bound(prefix []byte) []byte {
	switch {
	case q.After != (Position{}):
		return stamp(bytes.Clone(prefix), q.After.Ended, q.After.Seq)
	case q.Before != 0:
		return stamp(bytes.Clone(prefix), q.Before, 0)
	}
	return stamp(bytes.Clone(prefix), cluster.Never, 0)
}

// seekBefore moves to the last key below one.
func seekBefore(c *bolt.Cursor, key []byte) []byte {
	if k, _ := c.Seek(key); k == nil {
		k, _ = c.Last()
		return k
	}
	k, _ := c.Prev()
	return k
}

// Blob returns a script or an environment. O(log n).
func (a *Archive) Blob(d cluster.Digest) ([]byte, bool, error) {
	if content, ok := a.waiting(d); ok {
		return content, true, nil
	}
	var content []byte
	found := false
	err := a.view(func(tx *bolt.Tx) error {
		if v := tx.Bucket(bucketBlobs).Get(d[:]); v != nil {
			content, found = bytes.Clone(v), true
		}
		return nil
	})
	return content, found, a.wrap(err)
}

// waiting finds a blob that is not on disk yet.
func (a *Archive) waiting(d cluster.Digest) ([]byte, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if content, ok := a.pending.blobs[d]; ok {
		return content, true
	}
	content, ok := a.writing.blobs[d]
	return content, ok
}

// Missing returns those of the digests that are not in the archive.
func (a *Archive) Missing(digests []cluster.Digest) ([]cluster.Digest, error) {
	var missing []cluster.Digest
	for _, d := range digests { // existing ones are not deleted during the search on disk
		if _, ok := a.waiting(d); !ok && !d.IsZero() {
			missing = append(missing, d)
		}
	}
	err := a.view(func(tx *bolt.Tx) error {
		blobs := tx.Bucket(bucketBlobs)
		missing = slices.DeleteFunc(missing, func(d cluster.Digest) bool { return blobs.Get(d[:]) != nil })
		return nil
	})
	return missing, a.wrap(err)
}
