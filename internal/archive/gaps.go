package archive

import (
	"bytes"

	bolt "go.etcd.io/bbolt"
)

// Gap is a range of sequence numbers, both ends included, whose records are missing.
type Gap struct{ First, Last uint64 }

// Gaps lists what is missing, ascending.
func (a *Archive) Gaps() ([]Gap, error) {
	if err := a.Sync(); err != nil {
		return nil, err
	}
	var gaps []Gap
	err := a.view(func(tx *bolt.Tx) error {
		gaps = gapsOf(tx)
		return nil
	})
	return gaps, err
}

// Expect declares that records up to seq exist, so that missing ones are a gap.
func (a *Archive) Expect(seq uint64) error {
	if err := a.Sync(); err != nil {
		return err
	}
	return a.update(func(tx *bolt.Tx) error {
		meta := tx.Bucket(bucketMeta)
		last := parseNumber(meta.Get(keySeq))
		if seq <= last {
			return nil
		}
		if err := tx.Bucket(bucketGaps).Put(number(last+1), number(seq)); err != nil {
			return err
		}
		return meta.Put(keySeq, number(seq))
	})
}

func gapsOf(tx *bolt.Tx) []Gap {
	var gaps []Gap
	c := tx.Bucket(bucketGaps).Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		gaps = append(gaps, Gap{parseNumber(k), parseNumber(v)})
	}
	return gaps
}

// gapAround finds the gap that contains a sequence number.
func gapAround(tx *bolt.Tx, seq uint64) (Gap, bool) {
	c := tx.Bucket(bucketGaps).Cursor()
	key := number(seq)
	k, v := c.Seek(key)
	if k == nil || !bytes.Equal(k, key) {
		if k, v = c.Prev(); k == nil {
			return Gap{}, false
		}
	}
	g := Gap{parseNumber(k), parseNumber(v)}
	return g, g.First <= seq && seq <= g.Last
}

func inGap(tx *bolt.Tx, seq uint64) bool {
	_, ok := gapAround(tx, seq)
	return ok
}

// fill puts one record into the gap that contains it; elsewhere it changes nothing.
func fill(tx *bolt.Tx, r *Record) error {
	g, ok := gapAround(tx, r.Seq)
	if !ok {
		return nil
	}
	gaps := tx.Bucket(bucketGaps)
	if err := gaps.Delete(number(g.First)); err != nil {
		return err
	}
	for _, rest := range []Gap{{g.First, r.Seq - 1}, {r.Seq + 1, g.Last}} {
		if rest.First > rest.Last {
			continue
		}
		if err := gaps.Put(number(rest.First), number(rest.Last)); err != nil {
			return err
		}
	}
	return insert(tx, r)
}
