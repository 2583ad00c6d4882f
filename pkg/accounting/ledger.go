package accounting

import (
	"fmt"
	"time"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/cluster"
)

// Ledger holds all credits of a cluster. It has one writer at a time; others may read a clone
// meanwhile.
type Ledger struct {
	now     cluster.Instant
	seq     uint64
	head    Hash
	closed  cluster.Instant // everything before it is in closed periods
	today   cluster.Instant // start of the current day
	month   cluster.Instant // and month
	bucket  BucketID        // the newest entry's
	total   Credits         // total ever granted or owed
	digest  uint64          // of the records
	epoch   uint64          // of the records that no clone shares
	form    uint8           // of new entries
	entries []Entry         // of the commands since Drain
	watched bool
	freed   []Freed // since the last call of Freed
	about   about
	coder   codec.Coder // reused for encoding
	tables
}

// New returns an empty ledger that writes the first form of entries.
func New() *Ledger { return &Ledger{tables: newTables(), form: 1} }

// Clone returns a copy; neither sees later changes of the other. O(1), plus entries that were not
// drained.
func (l *Ledger) Clone() *Ledger {
	l.epoch++
	c := *l
	c.entries, c.freed = append([]Entry(nil), l.entries...), append([]Freed(nil), l.freed...)
	c.coder = codec.Coder{}
	c.tables = l.tables.clone()
	return &c
}

// Drain returns the entries since the last call, oldest first.
func (l *Ledger) Drain() []Entry {
	e := l.entries
	l.entries = nil
	return e
}

// Head returns the sequence number and the hash of the newest entry.
func (l *Ledger) Head() (uint64, Hash) { return l.seq, l.head }

// Now returns the instant of the newest command.
func (l *Ledger) Now() cluster.Instant { return l.now }

// latest is the last instant that the ledger can reach.
const latest = cluster.Never - 1

// advance moves time forward, never back, and processes what is due.
func (l *Ledger) advance(s Stamp) {
	l.now = min(max(l.now+1, s.At), latest)
	if l.now.Sub(l.today) >= 24*time.Hour {
		l.today, l.month = Daily.start(l.now), Monthly.start(l.now)
	}
	l.sweep()
	l.about = about{key: s.Key, note: s.Note}
	l.forgetKeys(sweepAtOnce)
}

// Advance moves time forward without a command: what is due starts and expires, at most 1,000
// buckets.
func (l *Ledger) Advance(at cluster.Instant) {
	l.advance(Stamp{At: at})
	l.about = about{}
}

// Closing is a closed period and the chain's head when it was closed.
type Closing struct {
	Name string
	End  cluster.Instant // exclusive
	Seq  uint64
	Head Hash
}

// PeriodEnd returns the first instant after a month such as 2026-10, or a day such as 2026-10-31,
// in UTC. The error wraps [ErrPeriod].
func PeriodEnd(name string) (time.Time, error) {
	if at, err := time.Parse("2006-01", name); err == nil {
		return at.AddDate(0, 1, 0), nil
	}
	at, err := time.Parse(time.DateOnly, name)
	if err != nil {
		return at, fmt.Errorf("%w: %.40q is no month and no day", ErrPeriod, name)
	}
	return at.AddDate(0, 0, 1), nil
}

// ClosePeriod closes everything before end. Later reports about it are booked when they arrive,
// marked late. A period ends after the previous one, and not in the future.
func (l *Ledger) ClosePeriod(s Stamp, name string, end cluster.Instant) (Closing, error) {
	if name == "" || len(name) > maxText {
		return Closing{}, fmt.Errorf("%w: a period needs a name of at most %d bytes", ErrInvalid, maxText)
	}
	c := Closing{Name: name, End: end}
	_, err := l.once(s, printOf(l, s, opClose, &c, closingFields), func() (Receipt, error) {
		if end <= l.closed || end > l.now || l.closes.Has(name) {
			return Receipt{}, fmt.Errorf("%w: %s", ErrPeriod, name)
		}
		l.closed = end
		l.putClosing(Closing{name, end, l.seq, l.head})
		return Receipt{}, nil
	})
	c, _ = l.closes.Get(name)
	return c, err
}
