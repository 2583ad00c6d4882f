package archive

import (
	"crypto/sha256"

	bolt "go.etcd.io/bbolt"
)

// BlobOf is a content with its digest.
func BlobOf(content []byte) Blob { return Blob{sha256.Sum256(content), content} }

// StartAt declares that no controller has records before number first: they are no gap.
func (a *Archive) StartAt(first uint64) error {
	return a.startAt(first, bucketGaps, keySeq)
}

// StartRowsAt is StartAt for the rows of a journal.
func (a *Archive) StartRowsAt(j Journal, first uint64) error {
	return a.startAt(first, rowGapsBucket(j), rowsBucket(j)) // setLastRow
}

// startAt removes the gaps before first, and raises the highest number to it.
func (a *Archive) startAt(first uint64, gaps, highest []byte) error {
	if first <= 1 {
		return nil
	}
	if err := a.Sync(); err != nil {
		return err
	}
	return a.wrap(a.update(func(tx *bolt.Tx) error {
		if err := trimGaps(tx.Bucket(gaps), first); err != nil {
			return err
		}
		meta := tx.Bucket(bucketMeta)
		if parseNumber(meta.Get(highest)) >= first-1 {
			return nil
		}
		return meta.Put(highest, number(first-1))
	}))
}

// trimGaps removes the part of gaps before first.
func trimGaps(gaps *bolt.Bucket, first uint64) error {
	var before []Gap
	c := gaps.Cursor()
	for k, v := c.First(); k != nil && parseNumber(k) < first; k, v = c.Next() {
		before = append(before, Gap{parseNumber(k), parseNumber(v)})
	}
	for _, g := range before {
		if err := gaps.Delete(number(g.First)); err != nil {
			return err
		}
		if g.Last < first {
			continue
		}
		if err := gaps.Put(number(first), number(g.Last)); err != nil {
			return err
		}
	}
	return nil
}

// Blobs returns scripts and environments in the order of their digests, after a given one, until
// they take most bytes. When it returns none, none are left.
func (a *Archive) Blobs(after []byte, most int) ([]Blob, error) {
	if err := a.Sync(); err != nil {
		return nil, err
	}
	var list []Blob
	err := a.view(func(tx *bolt.Tx) error {
		c, size := tx.Bucket(bucketBlobs).Cursor(), 0
		k, v := c.Seek(after)
		if k != nil && string(k) == string(after) {
			k, v = c.Next()
		}
		for ; k != nil && size < most; k, v = c.Next() {
			b := Blob{Content: append([]byte(nil), v...)}
			copy(b.Digest[:], k)
			list = append(list, b)
			size += len(v)
		}
		return nil
	})
	return list, a.wrap(err)
}
