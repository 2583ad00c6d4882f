package archive

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/greylag/greylag/pkg/cluster"
)

// batch is the content of one transaction.
type batch struct {
	index   uint64
	records []Record // ascending
	amends  []Record // newer data of records in the archive
	fills   []Record // into gaps
	blobs   map[cluster.Digest][]byte
	ids     map[cluster.JobID]int // of records
	bytes   int
	rowBatch
}

func (b *batch) empty() bool {
	return len(b.records)+len(b.amends)+len(b.fills)+len(b.blobs) == 0 && b.none()
}

// Append accepts the result of log entry index: ended jobs, ascending and without gaps, and blobs.
// A record of a job that the archive already has replaces that one, as in Amend: replaying the log to
// its end changes nothing. After a restore of another history, records replace all present ones from
// the first on. A record beyond the next one leaves a gap (Gaps).
//
// Append waits only while more than MaxPending bytes wait for the disk. Accepted records can be
// read at once, and are on disk after Sync.
func (a *Archive) Append(index uint64, finished []Record, blobs []Blob) error {
	return a.take(index, func(b *batch) {
		for _, r := range finished {
			b.forget(r.Seq) // of another history, after a restore
			b.ids[r.ID] = len(b.records)
			b.records = append(b.records, r)
			b.bytes += len(r.Data) + 128
		}
		b.addBlobs(blobs)
	})
}

// Amend accepts newer data of jobs that have ended, as the result of log entry index. It changes only
// Data. Records that the archive lacks are skipped: a later Fill brings them with the change. A controller
// that was down while more jobs ended than the state keeps misses the amendments of that time to jobs that
// it had.
func (a *Archive) Amend(index uint64, amended []Record) error {
	return a.take(index, func(b *batch) {
		for _, r := range amended {
			if at, pending := b.ids[r.ID]; pending && b.records[at].Seq == r.Seq {
				b.records[at].Data = r.Data
				continue
			}
			b.amends = append(b.amends, r)
			b.bytes += len(r.Data) + 128
		}
	})
}

// forget drops records from a sequence number on.
func (b *batch) forget(from uint64) {
	for n := len(b.records); n > 0 && b.records[n-1].Seq >= from; n-- {
		delete(b.ids, b.records[n-1].ID)
		b.records = b.records[:n-1]
	}
}

// Fill adds records of a peer that lie in gaps, and missing blobs. Others are skipped.
func (a *Archive) Fill(finished []Record, blobs []Blob) error {
	return a.take(0, func(b *batch) {
		for _, r := range finished {
			b.fills = append(b.fills, r)
			b.bytes += len(r.Data) + 128
		}
		b.addBlobs(blobs)
	})
}

func (b *batch) addBlobs(blobs []Blob) {
	for _, blob := range blobs {
		b.blobs[blob.Digest] = blob.Content
		b.bytes += len(blob.Content) + 64
	}
}

func (a *Archive) take(index uint64, add func(*batch)) error {
	a.mu.Lock()
	for a.pending.bytes > a.options.MaxPending && !a.closed {
		a.press()
		a.changed.Wait()
	}
	if a.closed {
		a.mu.Unlock()
		return ErrClosed
	}
	if a.pending.blobs == nil {
		a.pending.blobs, a.pending.ids = map[cluster.Digest][]byte{}, map[cluster.JobID]int{}
	}
	a.pending.index = max(a.pending.index, index)
	add(&a.pending)
	a.mu.Unlock()
	poke(a.wake)
	return nil
}

// Sync returns when everything that was appended before is on disk, or with the error that prevents
// it. After an error the records are kept and written again later.
func (a *Archive) Sync() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for tries := 0; !a.pending.empty() || !a.writing.empty(); {
		if a.closed {
			return ErrClosed
		}
		a.press()
		a.changed.Wait()
		if a.fault != nil {
			if tries++; tries > 1 { // the first may be older
				return a.fault
			}
		}
	}
	return nil
}

// retry is how long the writer waits after a failure, such as a full disk.
const retry = time.Second

// write is the writer's goroutine: a batch, then a pause in which the next one gathers, unless a
// caller waits.
func (a *Archive) write() {
	defer close(a.done)
	for {
		<-a.wake
		for a.next() {
			err := a.commit(&a.writing)
			if err == nil {
				_ = a.rollUp(foldBehind) // a read reports what is wrong with it
			}
			a.mu.Lock()
			if a.fault = err; err == nil {
				a.writing = batch{}
			}
			a.changed.Broadcast()
			closed, hurry := a.closed, a.flush
			a.flush = false
			a.mu.Unlock()
			switch {
			case err != nil && closed:
				return
			case err != nil:
				rest(retry, a.stop)
			case !hurry:
				rest(a.options.Pause, a.hurry)
			}
		}
		if a.isClosed() {
			return
		}
	}
}

// rest waits for a while, or less.
func rest(pause time.Duration, less <-chan struct{}) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-less:
	}
}

func (a *Archive) isClosed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.closed
}

// next moves what waits to the writer; false when nothing waits.
func (a *Archive) next() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.writing.empty() {
		a.writing, a.pending = a.pending, batch{}
	}
	return !a.writing.empty()
}

// commit writes one batch in one transaction.
func (a *Archive) commit(b *batch) error {
	err := a.update(func(tx *bolt.Tx) error {
		pack(tx)
		for i := range b.records {
			if err := put(tx, &b.records[i]); err != nil {
				return err
			}
		}
		for i := range b.amends {
			if _, err := amend(tx, &b.amends[i]); err != nil {
				return err
			}
		}
		for i := range b.fills {
			if err := fill(tx, &b.fills[i]); err != nil {
				return err
			}
		}
		blobs := tx.Bucket(bucketBlobs)
		for digest, content := range b.blobs {
			if blobs.Get(digest[:]) != nil {
				continue
			}
			if err := blobs.Put(digest[:], content); err != nil {
				return err
			}
		}
		if err := b.write(tx); err != nil {
			return err
		}
		meta := tx.Bucket(bucketMeta)
		if b.index <= parseNumber(meta.Get(keyIndex)) {
			return nil
		}
		return meta.Put(keyIndex, number(b.index))
	})
	if err != nil {
		return fmt.Errorf("write archive %s: %w", a.path, err)
	}
	return nil
}

var errNoSeq = errors.New("record without a sequence number")

// put appends one record.
func put(tx *bolt.Tx, r *Record) error {
	if r.Seq == 0 {
		return errNoSeq
	}
	meta := tx.Bucket(bucketMeta)
	last := parseNumber(meta.Get(keySeq))
	if r.Seq <= last {
		amended, err := amend(tx, r)
		if err != nil || amended {
			return err
		}
		if inGap(tx, r.Seq) {
			return fill(tx, r)
		}
		if err := rewind(tx, r.Seq, last); err != nil {
			return err
		}
	} else if r.Seq > last+1 {
		if err := tx.Bucket(bucketGaps).Put(number(last+1), number(r.Seq-1)); err != nil {
			return err
		}
	}
	if err := meta.Put(keySeq, number(r.Seq)); err != nil {
		return err
	}
	return insert(tx, r)
}

// amend replaces the data of a record, and reports whether the archive has the record of this job.
func amend(tx *bolt.Tx, r *Record) (bool, error) {
	value := tx.Bucket(bucketJobs).Get(number(r.Seq))
	if value == nil {
		return false, nil
	}
	old, err := decode(r.Seq, value)
	if err != nil {
		return false, err
	}
	if old.ID != r.ID || old.Ended != r.Ended || old.User != r.User || old.Account != r.Account {
		return false, nil
	}
	if bytes.Equal(old.Data, r.Data) {
		return true, nil
	}
	return true, tx.Bucket(bucketJobs).Put(number(r.Seq), r.encode())
}

// rewind deletes every record from a sequence number on.
func rewind(tx *bolt.Tx, from, last uint64) error {
	if err := unfold(tx, from); err != nil {
		return err
	}
	for seq := from; seq <= last; seq++ {
		value := tx.Bucket(bucketJobs).Get(number(seq))
		if value == nil {
			continue
		}
		r, err := decode(seq, value)
		if err != nil {
			return err
		}
		if err := remove(tx, &r); err != nil {
			return err
		}
	}
	gaps := tx.Bucket(bucketGaps)
	for _, g := range gapsOf(tx) {
		switch {
		case g.First >= from:
			if err := gaps.Delete(number(g.First)); err != nil {
				return err
			}
		case g.Last >= from:
			if err := gaps.Put(number(g.First), number(from-1)); err != nil {
				return err
			}
		}
	}
	return nil
}

func insert(tx *bolt.Tx, r *Record) error {
	return errors.Join(tx.Bucket(bucketJobs).Put(number(r.Seq), r.encode()), addToIndexes(tx, r))
}

func remove(tx *bolt.Tx, r *Record) error {
	return errors.Join(tx.Bucket(bucketJobs).Delete(number(r.Seq)), takeFromIndexes(tx, r))
}
