package archive

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/report/tally"
	"github.com/greylag/greylag/pkg/cluster"
)

// The roll-up is the sums of finished jobs, by half hours and keys: see package tally. It is
// computed from the records, with a delay, up to the first gap, and rebuilt when it is missing; so
// neither batches nor the order in which gaps are filled affect it.
var (
	bucketTally   = []byte("tally")   // slot, key -> tally
	bucketDays    = []byte("days")    // day of UTC, key -> tally: the sum of its slots
	keyTallied    = []byte("tallied") // the seq up to which the roll-up is complete
	keyUnreadable = []byte("illegible")
)

const (
	// foldBehind is how many records the roll-up may lag behind the records before the writer
	// updates it: a report then waits for less than a second.
	foldBehind = 8192
	// foldCells bounds the memory of a fold, in tallies.
	foldCells = 1 << 16
)

var errTally = errors.New("tally cannot be read")

// cell is the key of a tally.
type cell struct {
	slot cluster.Instant
	key  tally.Key
}

// fold adds further records to the roll-up and reports whether more are left. O(records and their
// half hours).
func fold(tx *bolt.Tx) (more bool, err error) {
	slots, err := tx.CreateBucketIfNotExists(bucketTally)
	if err != nil {
		return false, err
	}
	days, err := tx.CreateBucketIfNotExists(bucketDays)
	if err != nil {
		return false, err
	}
	from, last := tallied(tx)+1, foldable(tx)
	if from > last {
		return false, nil
	}
	cells := make(map[cell]*tally.Tally)
	into := func(slot cluster.Instant, k tally.Key) *tally.Tally {
		at := cell{slot, k}
		t := cells[at]
		if t == nil {
			t = &tally.Tally{}
			cells[at] = t
		}
		return t
	}
	seq, illegible := from, uint64(0)
	c := tx.Bucket(bucketJobs).Cursor()
	k, v := c.Seek(number(from))
	for ; k != nil && seq <= last && len(cells) < foldCells; k, v = c.Next() {
		if seq = parseNumber(k); seq > last {
			break
		}
		if j := jobIn(seq, v); j != nil {
			tally.Job(j, 0, tally.Slots, into)
		} else {
			illegible++
		}
		seq++
	}
	if k == nil { // no controller has these records (StartAt)
		seq = last + 1
	}
	sums := byDays(cells) // before the cells are added to the stored tallies
	if err := errors.Join(addTallies(slots, cells), addTallies(days, sums)); err != nil {
		return false, err
	}
	meta := tx.Bucket(bucketMeta)
	return seq <= last, errors.Join(
		meta.Put(keyTallied, number(seq-1)),
		meta.Put(keyUnreadable, number(parseNumber(meta.Get(keyUnreadable))+illegible)),
	)
}

// day is the length of the roll-up's days, which are those of UTC.
const day = cluster.Instant(24 * time.Hour)

// byDays adds half hours up to days.
func byDays(cells map[cell]*tally.Tally) map[cell]*tally.Tally {
	out := make(map[cell]*tally.Tally)
	for at, t := range cells {
		at.slot -= at.slot % day
		sum := out[at]
		if sum == nil {
			sum = &tally.Tally{}
			out[at] = sum
		}
		sum.Add(t)
	}
	return out
}

// addTallies adds to the tallies in a bucket; it consumes cells. Sorted keys make bbolt several
// times as fast.
func addTallies(kept *bolt.Bucket, cells map[cell]*tally.Tally) error {
	places := make([]cell, 0, len(cells))
	for at := range cells {
		places = append(places, at)
	}
	slices.SortFunc(places, func(a, b cell) int { return cmp.Or(cmp.Compare(a.slot, b.slot), a.key.Compare(b.key)) })
	for _, at := range places {
		if err := addTally(kept, at, cells[at]); err != nil {
			return err
		}
	}
	return nil
}

// jobIn returns the finished job in a record; nil when it cannot be read.
func jobIn(seq uint64, value []byte) *cluster.Job {
	r, err := decode(seq, value)
	if err != nil {
		return nil
	}
	j, err := command.DecodeJob(r.Data)
	if err != nil || !j.State.Final() {
		return nil
	}
	return j
}

// addTally adds to the stored tally of a cell.
func addTally(kept *bolt.Bucket, at cell, t *tally.Tally) error {
	key := tally.AppendKey(number(uint64(max(at.slot, 0))), at.key)
	if data := kept.Get(key); data != nil {
		old, err := tally.Decode(data)
		if err != nil {
			return fmt.Errorf("%w: of %s", errTally, at.slot.Time())
		}
		t.Add(old)
	}
	return kept.Put(key, t.Encode())
}

// tallied returns the number up to which the roll-up is complete.
func tallied(tx *bolt.Tx) uint64 { return parseNumber(tx.Bucket(bucketMeta).Get(keyTallied)) }

// foldable returns the highest number below which no record is missing.
func foldable(tx *bolt.Tx) uint64 {
	if k, _ := tx.Bucket(bucketGaps).Cursor().First(); k != nil {
		return parseNumber(k) - 1
	}
	return parseNumber(tx.Bucket(bucketMeta).Get(keySeq))
}

// unfold drops the roll-up when a record in it is removed.
func unfold(tx *bolt.Tx, from uint64) error {
	if from > tallied(tx) {
		return nil
	}
	for _, name := range [][]byte{bucketTally, bucketDays} {
		if tx.Bucket(name) != nil {
			if err := tx.DeleteBucket(name); err != nil {
				return err
			}
		}
	}
	meta := tx.Bucket(bucketMeta)
	return errors.Join(meta.Delete(keyTallied), meta.Delete(keyUnreadable))
}

// rollUp updates the roll-up until at most that many records are left.
func (a *Archive) rollUp(behind uint64) error {
	for more := true; more; {
		wanted := false
		err := a.view(func(tx *bolt.Tx) error {
			wanted = tallied(tx)+behind < foldable(tx)
			return nil
		})
		if err != nil || !wanted {
			return err
		}
		err = a.update(func(tx *bolt.Tx) (err error) {
			if more, err = fold(tx); errors.Is(err, errTally) {
				more = true
				return unfold(tx, 0) // it is rebuilt
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Rolled describes the part of the roll-up that was read.
type Rolled struct {
	Seq       uint64 // of its newest record
	Missing   bool   // later records are missing here
	Illegible uint64 // unreadable records, which are not counted
}

// Tallies calls add with the sums of jobs in the periods between each two bounds, which ascend and
// begin half hours: any number of times for a period and a key, in an order that depends only on
// the roll-up; add owns its argument. Whole days of UTC are read from their sums: O(days × keys,
// and half hours × keys at the ends), plus updating the roll-up first.
func (a *Archive) Tallies(bounds []cluster.Instant, add func(period int, k tally.Key, t *tally.Tally)) (Rolled, error) {
	if err := a.Sync(); err != nil {
		return Rolled{}, err
	}
	if err := a.rollUp(0); err != nil {
		return Rolled{}, a.wrap(err)
	}
	var out Rolled
	err := a.view(func(tx *bolt.Tx) error {
		meta := tx.Bucket(bucketMeta)
		out = Rolled{Seq: tallied(tx), Missing: len(gapsOf(tx)) > 0, Illegible: parseNumber(meta.Get(keyUnreadable))}
		for i := 1; i < len(bounds); i++ {
			from, to := bounds[i-1], bounds[i]
			first, last := (from+day-1)/day*day, to/day*day // the whole days between
			if first > last {
				first, last = to, to
			}
			one := func(k tally.Key, t *tally.Tally) { add(i-1, k, t) }
			err := errors.Join(
				scan(tx.Bucket(bucketTally), from, first, one), scan(tx.Bucket(bucketDays), first, last, one), scan(tx.Bucket(bucketTally), last, to, one))
			if err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, errTally) { // some were added already: the caller starts again
		err = errors.Join(fmt.Errorf("%w: it is being rebuilt; try again", err), a.update(func(tx *bolt.Tx) error { return unfold(tx, 0) }))
	}
	return out, a.wrap(err)
}

// scan reads the tallies of a bucket from one instant to before another.
func scan(kept *bolt.Bucket, from, to cluster.Instant, add func(tally.Key, *tally.Tally)) error {
	if kept == nil || from >= to {
		return nil
	}
	c, end := kept.Cursor(), number(uint64(to))
	for k, v := c.Seek(number(uint64(max(from, 0)))); k != nil && bytes.Compare(k, end) < 0; k, v = c.Next() {
		key, ok := tally.ParseKey(k[8:])
		t, err := tally.Decode(v)
		if !ok || err != nil {
			return fmt.Errorf("%w: %x", errTally, k)
		}
		add(key, t)
	}
	return nil
}

// Ended returns up to limit records of jobs that ended from one instant to before another, oldest
// end first, after a position; and the position of the last. O(log n + limit).
func (a *Archive) Ended(from, to cluster.Instant, after Position, limit int) ([]Record, Position, error) {
	if err := a.Sync(); err != nil {
		return nil, after, err
	}
	var list []Record
	err := a.view(func(tx *bolt.Tx) error {
		c := tx.Bucket(bucketEnded).Cursor()
		start := stamp(nil, from, 0)
		if after != (Position{}) {
			start = stamp(nil, after.Ended, after.Seq+1)
		}
		for k, _ := c.Seek(start); k != nil && len(list) < limit; k, _ = c.Next() {
			at := Position{cluster.Instant(binary.BigEndian.Uint64(k)), binary.BigEndian.Uint64(k[8:])}
			if at.Ended >= to {
				return nil
			}
			r, err := recordAt(tx, at.Seq)
			if err != nil {
				return err
			}
			list, after = append(list, r), at
		}
		return nil
	})
	return list, after, a.wrap(err)
}
