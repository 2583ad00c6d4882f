package archive

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/greylag/greylag/pkg/cluster"
)

// Keep bounds the scripts and environments that no job needs any more.
type Keep struct {
	Age   time.Duration // since the last need; 0: permanently
	Bytes int64         // of all contents, needed or not; 0: no bound
}

// Swept is the result of a sweep.
type Swept struct {
	Kept, Deleted           int
	KeptBytes, DeletedBytes int64
}

// Blobs that no job needs, with the time and their size: the second bucket is the inverse of the
// first.
var (
	bucketIdle      = []byte("idle")      // since (unix s), digest -> size
	bucketIdleSince = []byte("idlesince") // digest -> since
)

// sweepChunk is how many blobs one transaction reads, so that the writer never waits long.
const sweepChunk = 4096

// Sweep deletes contents that have not been needed for keep.Age, and of the others that are not
// needed the oldest until all fit into keep.Bytes. It calls needed right before each deletion,
// while no write can happen: needed must use the current state, as a job may bring a content back
// at any time. Idle time counts from the first sweep that found a content idle. now must not go
// back. O(blobs), in small transactions.
func (a *Archive) Sweep(now cluster.Instant, keep Keep, needed func(cluster.Digest) bool) (Swept, error) {
	s := sweep{now: uint64(now.Time().Unix()), keep: keep, needed: needed}
	err := a.update(func(tx *bolt.Tx) error {
		if _, err := tx.CreateBucketIfNotExists(bucketIdle); err != nil {
			return err
		}
		_, err := tx.CreateBucketIfNotExists(bucketIdleSince)
		return err
	})
	for more := err == nil; more && err == nil; {
		more, err = s.look(a.db)
	}
	for more := err == nil; more && err == nil && !a.isClosed(); {
		err = a.update(func(tx *bolt.Tx) (err error) {
			more, err = s.delete(tx)
			return err
		})
	}
	if err != nil {
		return s.Swept, fmt.Errorf("sweep archive %s: %w", a.path, err)
	}
	return s.Swept, nil
}

type sweep struct {
	now    uint64
	keep   Keep
	needed func(cluster.Digest) bool
	next   []byte // the blob to continue with
	Swept
}

// look records which blobs of a chunk are idle, and writes only if that changed.
func (s *sweep) look(db *bolt.DB) (more bool, err error) {
	var begins, ends []idleBlob
	err = db.View(func(tx *bolt.Tx) error {
		since := tx.Bucket(bucketIdleSince)
		c := tx.Bucket(bucketBlobs).Cursor()
		k, v := c.Seek(s.next)
		for n := 0; n < sweepChunk && k != nil; n++ {
			b := idleBlob{since: parseNumber(since.Get(k)), size: int64(len(v))}
			copy(b.digest[:], k)
			s.Kept++
			s.KeptBytes += b.size
			switch idle := !s.needed(b.digest); {
			case idle && b.since == 0:
				b.since = s.now
				begins = append(begins, b)
			case !idle && b.since != 0:
				ends = append(ends, b)
			}
			k, v = c.Next()
		}
		s.next = bytes.Clone(k)
		return nil
	})
	if err != nil || len(begins)+len(ends) == 0 {
		return s.next != nil, err
	}
	return s.next != nil, db.Update(func(tx *bolt.Tx) error {
		for _, b := range begins {
			if err := b.put(tx); err != nil {
				return err
			}
		}
		for _, b := range ends {
			if err := b.drop(tx); err != nil {
				return err
			}
		}
		return nil
	})
}

// delete removes the oldest ones, by age or size.
func (s *sweep) delete(tx *bolt.Tx) (more bool, err error) {
	var goes []idleBlob
	c, over := tx.Bucket(bucketIdle).Cursor(), s.KeptBytes-s.keep.Bytes
	for k, v := c.First(); k != nil; k, v = c.Next() {
		b, ok := parseIdle(k, v)
		if !ok {
			return false, fmt.Errorf("idle blob %x: its key is malformed", k)
		}
		old := s.keep.Age > 0 && b.since+uint64(s.keep.Age/time.Second) <= s.now
		if !old && (s.keep.Bytes == 0 || over <= 0) {
			break
		}
		if len(goes) == sweepChunk {
			more = true
			break
		}
		goes = append(goes, b)
		over -= b.size
	}
	for _, b := range goes {
		if err := b.drop(tx); err != nil {
			return false, err
		}
		if s.needed(b.digest) {
			continue
		}
		if err := tx.Bucket(bucketBlobs).Delete(b.digest[:]); err != nil {
			return false, err
		}
		s.Kept, s.KeptBytes = s.Kept-1, s.KeptBytes-b.size
		s.Deleted, s.DeletedBytes = s.Deleted+1, s.DeletedBytes+b.size
	}
	return more, nil
}

// idleBlob is a blob that no job needs.
type idleBlob struct {
	since  uint64
	digest cluster.Digest
	size   int64
}

func (b idleBlob) key() []byte { return append(number(b.since), b.digest[:]...) }

func parseIdle(k, v []byte) (b idleBlob, ok bool) {
	if len(k) != 8+len(b.digest) {
		return b, false
	}
	b.since, b.size = binary.BigEndian.Uint64(k), int64(parseNumber(v))
	copy(b.digest[:], k[8:])
	return b, true
}

func (b idleBlob) put(tx *bolt.Tx) error {
	if err := tx.Bucket(bucketIdle).Put(b.key(), number(uint64(b.size))); err != nil {
		return err
	}
	return tx.Bucket(bucketIdleSince).Put(b.digest[:], number(b.since))
}

func (b idleBlob) drop(tx *bolt.Tx) error {
	if err := tx.Bucket(bucketIdle).Delete(b.key()); err != nil {
		return err
	}
	return tx.Bucket(bucketIdleSince).Delete(b.digest[:])
}
