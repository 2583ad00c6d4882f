package archive

import (
	"bytes"

	bolt "go.etcd.io/bbolt"
)

// Journal names one of the journals. Those of credits and of changes are hash-chained.
type Journal uint8

// The journals.
const (
	CreditJournal Journal = iota // entries of the ledger
	AuditJournal                 // changes by users, and decisions
	LeaseJournal                 // leases that have ended
	journals
)

// JournalOf returns the journal of a number; false if it does not exist.
func JournalOf(n uint32) (Journal, bool) { return Journal(n), n < uint32(journals) }

// Row is one entry of a journal, opaque to the archive. Seq numbers them 1, 2, 3, ..., equal on
// every replica.
type Row struct {
	Seq  uint64
	Data []byte
}

// rowsBucket and rowGapsBucket are the buckets of a journal: seq -> row, and first missing seq ->
// last missing seq.
func rowsBucket(j Journal) []byte    { return []byte{'r', 'o', 'w', 's', '0' + byte(j)} }
func rowGapsBucket(j Journal) []byte { return []byte{'h', 'o', 'l', 'e', '0' + byte(j)} }

// rowBatch is the rows that one transaction writes.
type rowBatch struct {
	appended, filled [journals][]Row
}

func (b *rowBatch) none() bool {
	for j := range b.appended {
		if len(b.appended[j])+len(b.filled[j]) > 0 {
			return false
		}
	}
	return true
}

// AppendRows accepts the rows of log entry index, ascending and without gaps, with the guarantees
// of Append.
func (a *Archive) AppendRows(index uint64, j Journal, rows []Row) error {
	return a.take(index, func(b *batch) {
		for _, r := range rows {
			list := b.appended[j]
			for n := len(list); n > 0 && list[n-1].Seq >= r.Seq; n-- {
				list = list[:n-1] // of another history, after a restore
			}
			b.appended[j] = append(list, r)
			b.bytes += len(r.Data) + 64
		}
	})
}

// FillRows adds rows of a peer that lie in gaps. Others are skipped.
func (a *Archive) FillRows(j Journal, rows []Row) error {
	return a.take(0, func(b *batch) {
		for _, r := range rows {
			b.filled[j] = append(b.filled[j], r)
			b.bytes += len(r.Data) + 64
		}
	})
}

// RowGaps lists the gaps of a journal, ascending.
func (a *Archive) RowGaps(j Journal) ([]Gap, error) {
	if err := a.Sync(); err != nil {
		return nil, err
	}
	var gaps []Gap
	err := a.view(func(tx *bolt.Tx) error {
		c := tx.Bucket(rowGapsBucket(j)).Cursor()
		for k, v := c.First(); k != nil; k, v = c.Next() {
			gaps = append(gaps, Gap{parseNumber(k), parseNumber(v)})
		}
		return nil
	})
	return gaps, a.wrap(err)
}

// ExpectRows declares that rows up to seq exist, and no more: missing ones are a gap, and those
// beyond are of another history.
func (a *Archive) ExpectRows(j Journal, seq uint64) error {
	if err := a.Sync(); err != nil {
		return err
	}
	return a.update(func(tx *bolt.Tx) error {
		last := lastRow(tx, j)
		if seq < last {
			return cutRows(tx, j, seq+1)
		}
		if seq == last {
			return nil
		}
		if err := tx.Bucket(rowGapsBucket(j)).Put(number(last+1), number(seq)); err != nil {
			return err
		}
		return setLastRow(tx, j, seq)
	})
}

// Rows returns up to limit rows of a journal from a sequence number on, ascending.
// Those in gaps are left out. O(log n + limit).
func (a *Archive) Rows(j Journal, from uint64, limit int) ([]Row, error) {
	if err := a.Sync(); err != nil {
		return nil, err
	}
	var list []Row
	err := a.view(func(tx *bolt.Tx) error {
		c := tx.Bucket(rowsBucket(j)).Cursor()
		for k, v := c.Seek(number(from)); k != nil && len(list) < limit; k, v = c.Next() {
			list = append(list, Row{parseNumber(k), bytes.Clone(v)})
		}
		return nil
	})
	return list, a.wrap(err)
}

// LastRow returns the highest sequence number of a journal.
func (a *Archive) LastRow(j Journal) (seq uint64, err error) {
	if err := a.Sync(); err != nil {
		return 0, err
	}
	err = a.view(func(tx *bolt.Tx) error {
		seq = lastRow(tx, j)
		return nil
	})
	return seq, a.wrap(err)
}

func lastRow(tx *bolt.Tx, j Journal) uint64 {
	return parseNumber(tx.Bucket(bucketMeta).Get(rowsBucket(j)))
}

func setLastRow(tx *bolt.Tx, j Journal, seq uint64) error {
	return tx.Bucket(bucketMeta).Put(rowsBucket(j), number(seq))
}

// write stores the rows of a batch in the journals.
func (b *rowBatch) write(tx *bolt.Tx) error {
	for j := range journals {
		for _, r := range b.appended[j] {
			if err := putRow(tx, j, r); err != nil {
				return err
			}
		}
		for _, r := range b.filled[j] {
			if err := fillRow(tx, j, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// putRow appends one row. An existing equal one changes nothing; a different one begins another
// history.
func putRow(tx *bolt.Tx, j Journal, r Row) error {
	if r.Seq == 0 {
		return errNoSeq
	}
	last := lastRow(tx, j)
	if r.Seq <= last {
		old := tx.Bucket(rowsBucket(j)).Get(number(r.Seq))
		switch {
		case bytes.Equal(old, r.Data):
			return nil
		case old == nil:
			return fillRow(tx, j, r)
		}
		if err := cutRows(tx, j, r.Seq); err != nil {
			return err
		}
	} else if r.Seq > last+1 {
		if err := tx.Bucket(rowGapsBucket(j)).Put(number(last+1), number(r.Seq-1)); err != nil {
			return err
		}
	}
	if err := setLastRow(tx, j, r.Seq); err != nil {
		return err
	}
	return tx.Bucket(rowsBucket(j)).Put(number(r.Seq), r.Data)
}

// fillRow puts one row into the gap that contains it; elsewhere it changes nothing.
func fillRow(tx *bolt.Tx, j Journal, r Row) error {
	holes := tx.Bucket(rowGapsBucket(j))
	c := holes.Cursor()
	k, v := c.Seek(number(r.Seq))
	if k == nil || parseNumber(k) != r.Seq {
		k, v = c.Prev()
	}
	g := Gap{parseNumber(k), parseNumber(v)}
	if k == nil || r.Seq < g.First || r.Seq > g.Last {
		return nil
	}
	if err := holes.Delete(number(g.First)); err != nil {
		return err
	}
	for _, rest := range []Gap{{g.First, r.Seq - 1}, {r.Seq + 1, g.Last}} {
		if rest.First > rest.Last {
			continue
		}
		if err := holes.Put(number(rest.First), number(rest.Last)); err != nil {
			return err
		}
	}
	return tx.Bucket(rowsBucket(j)).Put(number(r.Seq), r.Data)
}

// cutRows deletes every row from a sequence number on.
func cutRows(tx *bolt.Tx, j Journal, from uint64) error {
	rows, holes := tx.Bucket(rowsBucket(j)), tx.Bucket(rowGapsBucket(j))
	for last := lastRow(tx, j); last >= from; last-- {
		if err := rows.Delete(number(last)); err != nil {
			return err
		}
	}
	c := holes.Cursor()
	var gaps []Gap
	for k, v := c.First(); k != nil; k, v = c.Next() {
		gaps = append(gaps, Gap{parseNumber(k), parseNumber(v)})
	}
	for _, g := range gaps {
		switch {
		case g.First >= from:
			if err := holes.Delete(number(g.First)); err != nil {
				return err
			}
		case g.Last >= from:
			if err := holes.Put(number(g.First), number(from-1)); err != nil {
				return err
			}
		}
	}
	return setLastRow(tx, j, from-1)
}
