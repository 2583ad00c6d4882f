package archive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/greylag/greylag/pkg/cluster"
)

// indexVersion is raised when the form of an index changes; the indexes are then rebuilt.
const indexVersion = 1

// indexes are derived from the records. They are written in the transaction of the records, so that
// they agree after any crash.
func indexes() [][]byte {
	return [][]byte{bucketIDs, bucketEnded, bucketUsers, bucketAccounts, bucketHours}
}

// entry is the value in a time index, so that a query need not read records that do not match:
// submitted, 8 bytes | state, 1 byte.
type entry struct {
	submitted cluster.Instant
	state     cluster.JobState
}

const entryBytes = 8 + 1

func (r *Record) entry() []byte {
	return append(binary.BigEndian.AppendUint64(make([]byte, 0, entryBytes), uint64(max(r.Submitted, 0))), byte(r.State))
}

func readEntry(value []byte) (entry, error) {
	if len(value) != entryBytes {
		return entry{}, fmt.Errorf("%w: an index has an entry of %d bytes", errRecord, len(value))
	}
	return entry{cluster.Instant(binary.BigEndian.Uint64(value)), cluster.JobState(value[8])}, nil
}

// hourOf returns an instant's whole hours since 1970.
func hourOf(i cluster.Instant) uint64 { return uint64(max(i, 0)) / uint64(time.Hour) }

// startOf returns the start of an hour.
func startOf(hour uint64) cluster.Instant { return cluster.Instant(hour * uint64(time.Hour)) }

// pack fills the pages of buckets whose keys arrive in ascending order; by default bbolt leaves
// them half empty for keys in between.
func pack(tx *bolt.Tx) {
	for _, name := range [][]byte{bucketJobs, bucketIDs, bucketEnded} {
		tx.Bucket(name).FillPercent = 0.95
	}
	for j := range journals {
		tx.Bucket(rowsBucket(j)).FillPercent = 0.95
	}
}

func addToIndexes(tx *bolt.Tx, r *Record) error {
	value := r.entry()
	return errors.Join(
		tx.Bucket(bucketIDs).Put(number(uint64(r.ID)), number(r.Seq)),
		tx.Bucket(bucketEnded).Put(stamp(nil, r.Ended, r.Seq), value),
		tx.Bucket(bucketUsers).Put(stamp(lane(r.User), r.Ended, r.Seq), value),
		tx.Bucket(bucketAccounts).Put(stamp(lane(r.Account), r.Ended, r.Seq), value),
		lowerHour(tx, r),
	)
}

// lowerHour keeps, for the hour in which a record ended, the earliest submission.
func lowerHour(tx *bolt.Tx, r *Record) error {
	hours, key := tx.Bucket(bucketHours), number(hourOf(r.Ended))
	submitted := uint64(max(r.Submitted, 0))
	if old := hours.Get(key); old != nil && parseNumber(old) <= submitted {
		return nil
	}
	return hours.Put(key, number(submitted))
}

// takeFromIndexes does not change the hour: a value that is too early costs a look-up, no more.
func takeFromIndexes(tx *bolt.Tx, r *Record) error {
	return errors.Join(
		tx.Bucket(bucketIDs).Delete(number(uint64(r.ID))),
		tx.Bucket(bucketEnded).Delete(stamp(nil, r.Ended, r.Seq)),
		tx.Bucket(bucketUsers).Delete(stamp(lane(r.User), r.Ended, r.Seq)),
		tx.Bucket(bucketAccounts).Delete(stamp(lane(r.Account), r.Ended, r.Seq)),
	)
}

// indexBatch is how many records one transaction adds to new indexes.
const indexBatch = 20_000

// allIndexed is the watermark of complete indexes.
const allIndexed = 1<<64 - 1

// prepareIndexes empties the indexes when one is missing or of another version.
func prepareIndexes(tx *bolt.Tx) error {
	meta := tx.Bucket(bucketMeta)
	version, _ := indexedUpTo(meta)
	missing := version != indexVersion
	for _, name := range indexes() {
		missing = missing || tx.Bucket(name) == nil
	}
	if !missing {
		return nil
	}
	for _, name := range indexes() {
		if tx.Bucket(name) != nil {
			if err := tx.DeleteBucket(name); err != nil {
				return err
			}
		}
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	return setIndexed(meta, 0)
}

// indexSome adds one part to indexes that are rebuilt, so that a crash costs no more than that;
// more reports that others follow. O(1) when they are complete.
func indexSome(tx *bolt.Tx) (more bool, err error) {
	meta := tx.Bucket(bucketMeta)
	_, done := indexedUpTo(meta)
	if done == allIndexed {
		return false, nil
	}
	c := tx.Bucket(bucketJobs).Cursor()
	n := 0
	for k, v := c.Seek(number(done + 1)); k != nil; k, v = c.Next() {
		if n++; n > indexBatch {
			return true, setIndexed(meta, done)
		}
		r, err := decode(parseNumber(k), v)
		if err != nil {
			return false, err
		}
		if err := addToIndexes(tx, &r); err != nil {
			return false, err
		}
		done = r.Seq
	}
	return false, setIndexed(meta, allIndexed)
}

// indexedUpTo returns the version of the indexes and their watermark; 0 without indexes.
func indexedUpTo(meta *bolt.Bucket) (version, seq uint64) {
	v := meta.Get(keyIndexed)
	if len(v) != 16 {
		return 0, 0
	}
	return binary.BigEndian.Uint64(v), binary.BigEndian.Uint64(v[8:])
}

func setIndexed(meta *bolt.Bucket, seq uint64) error {
	return meta.Put(keyIndexed, append(number(indexVersion), number(seq)...))
}
