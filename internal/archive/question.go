package archive

import (
	"bytes"
	"encoding/binary"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/greylag/greylag/pkg/cluster"
)

// Question selects finished jobs that existed in an interval, oldest end first.
type Question struct {
	Users    []string           // any of these; nil: all
	Accounts []string           // any of these; nil: all
	States   []cluster.JobState // any of these; nil: all
	Since    cluster.Instant    // ended at or after
	Until    cluster.Instant    // submitted before; 0: no bound
	EndedBy  cluster.Instant    // ended before; 0: no bound
	Through  uint64             // no record with a higher number; 0: no bound
	After    Position           // continue after the last position of the page before
	Limit    int                // most records
}

const (
	// maxLanes is how many names are searched side by side. With more of them all records of the
	// interval are read.
	maxLanes = 64
	// maxLooks is how many entries one page reads, so that no transaction is long: while one is
	// open, bbolt cannot reuse freed pages.
	maxLooks = 50_000
)

// Through is the highest sequence number on disk once all that was appended before is there: an
// answer that begins now may lack higher ones.
func (a *Archive) Through() (seq uint64, err error) {
	if err := a.Sync(); err != nil {
		return 0, err
	}
	_, seq = a.Watermark()
	return seq, nil
}

// Answer returns one page of finished jobs and its last position; more reports that others may
// follow, even when the page is empty. It reads the entries of the named users or accounts in the
// interval, and beyond it those of hours in which a job ended that was submitted before Until:
// O(log n + those).
func (a *Archive) Answer(q Question) (list []Record, next Position, more bool, err error) {
	if err := a.Sync(); err != nil {
		return nil, Position{}, false, err
	}
	err = a.view(func(tx *bolt.Tx) error {
		s := newSearch(tx, &q)
		list, err = s.run()
		next, more = s.at, s.more
		return err
	})
	return list, next, more, a.wrap(err)
}

// search builds one page of an answer.
type search struct {
	tx    *bolt.Tx
	q     *Question
	lanes []*laneCursor
	at    Position
	more  bool
}

// laneCursor is a position among the entries of one name in an index; key is nil after the last.
type laneCursor struct {
	c          *bolt.Cursor
	prefix     []byte
	key, value []byte
}

func newSearch(tx *bolt.Tx, q *Question) *search {
	s := &search{tx: tx, q: q, at: q.After}
	bucket, names := bucketEnded, []string(nil)
	switch {
	case len(q.Users) > 0 && len(q.Users) <= maxLanes:
		bucket, names = bucketUsers, q.Users
	case len(q.Accounts) > 0 && len(q.Accounts) <= maxLanes:
		bucket, names = bucketAccounts, q.Accounts
	}
	prefixes := [][]byte{nil}
	if names != nil {
		prefixes = nil
		for _, name := range names {
			prefixes = append(prefixes, lane(name))
		}
		slices.SortFunc(prefixes, bytes.Compare)
		prefixes = slices.CompactFunc(prefixes, bytes.Equal)
	}
	from := Position{q.Since, 0}
	if q.After != (Position{}) {
		from = Position{q.After.Ended, q.After.Seq + 1}
	}
	for _, prefix := range prefixes {
		l := &laneCursor{c: tx.Bucket(bucket).Cursor(), prefix: prefix}
		l.seek(from)
		s.lanes = append(s.lanes, l)
	}
	return s
}

// seek moves to the first entry at or after a position.
func (l *laneCursor) seek(p Position) {
	l.stand(l.c.Seek(stamp(bytes.Clone(l.prefix), p.Ended, p.Seq)))
}

func (l *laneCursor) stand(key, value []byte) {
	l.key, l.value = key, value
	if !bytes.HasPrefix(key, l.prefix) || len(key) != len(l.prefix)+16 {
		l.key = nil
	}
}

func (l *laneCursor) position() Position {
	end := l.key[len(l.prefix):]
	return Position{cluster.Instant(binary.BigEndian.Uint64(end)), binary.BigEndian.Uint64(end[8:])}
}

// first returns the cursor with the oldest entry; nil when none is left.
func (s *search) first() *laneCursor {
	var best *laneCursor
	for _, l := range s.lanes {
		if l.key != nil && (best == nil || bytes.Compare(l.key[len(l.prefix):], best.key[len(best.prefix):]) < 0) {
			best = l
		}
	}
	return best
}

func (s *search) run() ([]Record, error) {
	var list []Record
	for looks := 0; ; looks++ {
		l := s.first()
		if l == nil {
			return list, nil
		}
		p := l.position()
		switch {
		case s.q.EndedBy != 0 && p.Ended >= s.q.EndedBy:
			return list, nil
		case len(list) >= s.q.Limit || looks >= maxLooks:
			s.more = true
			return list, nil
		case s.skip(p):
			continue
		}
		s.at = p
		e, err := readEntry(l.value)
		if err != nil {
			return nil, err
		}
		if s.wanted(p.Seq, e) {
			r, err := recordAt(s.tx, p.Seq)
			if err != nil {
				return nil, err
			}
			if s.named(&r) {
				list = append(list, r)
			}
		}
		l.stand(l.c.Next())
	}
}

// skip moves all cursors over hours in which no job ended that was submitted before Until, and
// reports whether it moved them.
func (s *search) skip(p Position) bool {
	if s.q.Until == 0 || p.Ended < s.q.Until {
		return false
	}
	hour := hourOf(p.Ended)
	c := s.tx.Bucket(bucketHours).Cursor()
	k, v := c.Seek(number(hour))
	for k != nil && cluster.Instant(parseNumber(v)) >= s.q.Until {
		k, v = c.Next()
	}
	if k != nil && parseNumber(k) <= hour {
		return false
	}
	for _, l := range s.lanes {
		if k == nil {
			l.key = nil
		} else if l.key != nil && hourOf(l.position().Ended) < parseNumber(k) {
			l.seek(Position{Ended: startOf(parseNumber(k))})
		}
	}
	return true
}

func (s *search) wanted(seq uint64, e entry) bool {
	q := s.q
	return (q.Through == 0 || seq <= q.Through) && (q.Until == 0 || e.submitted < q.Until) &&
		(q.States == nil || slices.Contains(q.States, e.state))
}

func (s *search) named(r *Record) bool {
	return (s.q.Users == nil || slices.Contains(s.q.Users, r.User)) && (s.q.Accounts == nil || slices.Contains(s.q.Accounts, r.Account))
}
