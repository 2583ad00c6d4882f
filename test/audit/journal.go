package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// The journal of credits, read by itself: nothing here comes from the programs'
// own packages. A row is the entry's SHA-256, the one before it, a version, and
// the fields that hash is of, after that one before and the version: numbers as
// varints, text after its length. From version 2 on an entry says its grounds (grounds.go),
// from version 3 on also when a lien was placed, from version 4 on why somebody asked for it.

// Kinds of entries and of book accounts, as numbered in rows.
const (
	granted = iota + 1
	repaid
	setAside
	captured
	overshot
	released
	refunded
	expired
	taken
)

const (
	inBucket  = 1
	heldFrom  = 2
	owed      = 8
	lastBooks = owed
)

// side is a book account of an entry.
type side struct {
	kind, bucket uint64
	node         string
}

// attempt names one run of a job.
type attempt struct{ job, number uint64 }

// entry is one row.
type entry struct {
	seq           uint64
	at, effective int64
	kind          uint64
	from, to      side
	amount        int64
	node          string
	of            attempt
	corrects      uint64
	late          bool
	key           string
	bare          bool // it says nothing of its grounds
	grounds
}

// rowReader takes a row apart.
type rowReader struct {
	rest []byte
	bad  bool
}

func (r *rowReader) unsigned() uint64 {
	u, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.rest = r.rest[n:]
	return u
}

func (r *rowReader) signed() int64 {
	i, n := binary.Varint(r.rest)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.rest = r.rest[n:]
	return i
}

func (r *rowReader) text() string {
	n := r.unsigned()
	if n > uint64(len(r.rest)) {
		r.bad = true
		return ""
	}
	text := string(r.rest[:n])
	r.rest = r.rest[n:]
	return text
}

func (r *rowReader) side() side { return side{r.unsigned(), r.unsigned(), r.text()} }

// readRow reads a row that follows the one with hash before.
func readRow(row, before []byte) (e entry, hash []byte, err error) {
	const sum = sha256.Size
	switch {
	case len(row) < 2*sum+2:
		return e, nil, errors.New("it is too short")
	case !bytes.Equal(row[sum:2*sum], before):
		return e, nil, errors.New("it does not follow the one before")
	case sha256.Sum256(row[sum:]) != [sum]byte(row):
		return e, nil, errors.New("its hash is wrong")
	case row[2*sum] < 1 || row[2*sum] > 4:
		return e, nil, fmt.Errorf("version %d", row[2*sum])
	}
	r := rowReader{rest: row[2*sum+1:]}
	e = entry{
		seq: r.unsigned(), at: r.signed(), effective: r.signed(), kind: r.unsigned(), from: r.side(), to: r.side(),
		amount: r.signed(), node: r.text(), of: attempt{r.unsigned(), r.unsigned()}, corrects: r.unsigned(), late: r.unsigned() == 1, key: r.text(),
	}
	if e.bare = row[2*sum] == 1; !e.bare {
		e.grounds = r.grounds()
	}
	if row[2*sum] >= 3 && e.cause.there {
		e.cause.since = r.signed()
	}
	if row[2*sum] >= 4 {
		r.text() // why; it moves nothing
	}
	if r.bad || len(r.rest) > 0 {
		return e, nil, errors.New("it cannot be read")
	}
	return e, row[:sum], nil
}

// purse is what the entries say of one bucket.
type purse struct {
	amount, available, held, spent, expired, void int64
}

// share is what they say of one payer: what it holds, spent and owes by itself.
type share struct{ held, spent, debt int64 }

// bill is what they say of one attempt.
type bill struct {
	payer                       string
	placed, released            int64 // set aside, and given back of it
	captured, overshot          int64 // charged: of what was set aside, and beyond
	returned                    int64
	captures, releases, refunds int // entries
	bare                        bool
	counted                     int64 // charged for what was counted, less what was given back of it
	rates                       []rate
	stretches                   []stretch        // that it came to last
	into                        map[uint64]int64 // by bucket, less what came back
}

func (b *bill) holds() int64 { return b.placed - b.released - b.captured }

// charged is 0 of no bill.
func (b *bill) charged() int64 {
	if b == nil {
		return 0
	}
	return b.captured + b.overshot - b.returned
}

// Book is what a journal comes to.
type Book struct {
	entries []entry
	head    []byte
	purses  map[uint64]*purse
	shares  map[string]*share
	bills   map[attempt]*bill
	terms   map[uint64]*terms    // of buckets
	sums    [lastBooks + 1]int64 // by kind of book account
}

// ReadBook adds a journal up. The first row that cannot be is the error.
func ReadBook(rows [][]byte) (*Book, error) {
	b := &Book{head: make([]byte, sha256.Size), purses: map[uint64]*purse{}, shares: map[string]*share{}, bills: map[attempt]*bill{}, terms: map[uint64]*terms{}}
	for i, row := range rows {
		e, hash, err := readRow(row, b.head)
		if err == nil {
			err = b.add(e)
		}
		if err != nil {
			return nil, fmt.Errorf("entry %d of the journal: %w", i+1, err)
		}
		b.head = hash
	}
	return b, nil
}

func (b *Book) add(e entry) error {
	n := len(b.entries)
	switch {
	case e.seq != uint64(n)+1:
		return fmt.Errorf("its number is %d", e.seq)
	case n > 0 && e.at < b.entries[n-1].at:
		return errors.New("it is older than the one before")
	case e.amount <= 0 || e.effective > e.at || e.from.kind > lastBooks || e.to.kind > lastBooks:
		return fmt.Errorf("it is not possible: %+v", e)
	}
	b.entries = append(b.entries, e)
	b.sums[e.from.kind] -= e.amount
	b.sums[e.to.kind] += e.amount
	b.pay(&e)
	b.charge(&e)
	for id, p := range map[uint64]*purse{e.from.bucket: b.purses[e.from.bucket], e.to.bucket: b.purses[e.to.bucket]} {
		if id != 0 && (p.available < 0 || p.held < 0 || p.spent < 0) {
			return fmt.Errorf("it leaves bucket %d with %+v", id, *p)
		}
	}
	if s := b.share(e.node); s.held < 0 || s.spent < 0 || s.debt < 0 {
		return fmt.Errorf("it leaves %s with %+v", e.node, *s)
	}
	if bill := b.bills[e.of]; bill != nil && (bill.holds() < 0 || bill.charged() < 0) {
		return fmt.Errorf("it leaves attempt %v with %+v", e.of, *bill)
	}
	return b.judge(&e)
}

func (b *Book) purse(id uint64) *purse {
	if b.purses[id] == nil {
		b.purses[id] = &purse{}
	}
	return b.purses[id]
}

func (b *Book) share(node string) *share {
	if b.shares[node] == nil {
		b.shares[node] = &share{}
	}
	return b.shares[node]
}

// pay moves credits between what buckets have, hold and spent.
func (b *Book) pay(e *entry) {
	if e.from.bucket != 0 {
		p := b.purse(e.from.bucket)
		if e.from.kind == heldFrom {
			p.held -= e.amount
		} else {
			p.available -= e.amount
		}
		switch e.kind {
		case repaid, captured, overshot:
			p.spent += e.amount
		case expired:
			p.expired += e.amount
		case taken:
			p.void += e.amount
		}
	}
	if e.to.bucket != 0 {
		p := b.purse(e.to.bucket)
		switch {
		case e.kind == granted || e.kind == refunded && p.amount == 0:
			p.amount += e.amount // a bucket begins
		case e.kind == refunded:
			p.spent -= e.amount
		}
		if e.to.kind == heldFrom {
			p.held += e.amount
		} else {
			p.available += e.amount
		}
	}
}

// charge moves them between what payers and attempts have.
func (b *Book) charge(e *entry) {
	s, x := b.share(e.node), e.amount
	var bill *bill
	if e.of.job != 0 {
		bill = b.billOf(e)
	}
	switch {
	case e.kind == setAside:
		s.held, bill.placed = s.held+x, bill.placed+x
	case e.kind == released:
		s.held, bill.released, bill.releases = s.held-x, bill.released+x, bill.releases+1
	case e.kind == captured:
		s.held, s.spent, bill.captured, bill.captures = s.held-x, s.spent+x, bill.captured+x, bill.captures+1
	case e.kind == overshot && e.from.kind == owed:
		s.debt, bill.overshot = s.debt+x, bill.overshot+x
	case e.kind == overshot:
		s.spent, bill.overshot = s.spent+x, bill.overshot+x
	case e.kind == refunded && e.to.kind == owed:
		s.debt, bill.returned, bill.refunds = s.debt-x, bill.returned+x, bill.refunds+1
	case e.kind == refunded:
		s.spent, bill.returned, bill.refunds = s.spent-x, bill.returned+x, bill.refunds+1
	case e.kind == repaid:
		s.spent, s.debt = s.spent+x, s.debt-x
	}
}

func (b *Book) billOf(e *entry) *bill {
	if b.bills[e.of] == nil {
		b.bills[e.of] = &bill{payer: e.node, into: map[uint64]int64{}}
	}
	return b.bills[e.of]
}

// cost is price micro-credits a GPU-hour for so many GPU-milliseconds, rounded down.
func cost(price, gpuMS int64) int64 {
	x := new(big.Int).Mul(big.NewInt(price), big.NewInt(gpuMS))
	return x.Div(x, big.NewInt(3_600_000)).Int64()
}

// Expiry is credits that expired unused.
type Expiry struct {
	Amount            int64
	Effective, Booked time.Time
}

// Expired lists all credits that expired, in the order they were booked.
func (b *Book) Expired() (all []Expiry) {
	for _, e := range b.entries {
		if e.kind == expired {
			all = append(all, Expiry{e.amount, time.Unix(0, e.effective), time.Unix(0, e.at)})
		}
	}
	return all
}
