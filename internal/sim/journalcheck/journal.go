package journalcheck

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// A row is the entry's SHA-256, the one before it, a byte for the form, and the fields. The hash
// covers everything after it. Numbers are varints, text follows its length.

// formOne is the byte of the only form.
const formOne = 0x41

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

// Attempt identifies one run of a job.
type Attempt struct{ Job, Number uint64 }

// Entry is one row.
type Entry struct {
	seq           uint64
	at, effective int64
	kind          uint64
	from, to      side
	amount        int64
	node          string
	of            Attempt
	corrects      uint64
	late          bool
	key           string
	justification
}

// rowReader decodes a row.
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

// readRow decodes a row that follows the one with hash before.
func readRow(row, before []byte) (e Entry, hash []byte, err error) {
	const sum = sha256.Size
	switch {
	case len(row) < 2*sum+2:
		return e, nil, errors.New("it is too short")
	case !bytes.Equal(row[sum:2*sum], before):
		return e, nil, errors.New("it does not follow the one before")
	case sha256.Sum256(row[sum:]) != [sum]byte(row):
		return e, nil, errors.New("its hash is wrong")
	case row[2*sum] != formOne:
		return e, nil, fmt.Errorf("form %d", row[2*sum])
	}
	r := rowReader{rest: row[2*sum+1:]}
	e = Entry{
		seq: r.unsigned(), at: r.signed(), effective: r.signed(), kind: r.unsigned(), from: r.side(), to: r.side(),
		amount: r.signed(), node: r.text(), of: Attempt{r.unsigned(), r.unsigned()}, corrects: r.unsigned(), late: r.unsigned() == 1, key: r.text(),
	}
	e.justification = r.justification()
	r.text() // the note, which moves nothing
	if r.bad || len(r.rest) > 0 {
		return e, nil, errors.New("it cannot be read")
	}
	return e, row[:sum], nil
}

// BucketSums is the sums of one bucket, in micro-credits.
type BucketSums struct {
	Amount, Available, Held, Spent, Expired, Void int64
}

// PayerSums is the sums of one payer without those below it: held, spent and owed.
type PayerSums struct{ Held, Spent, Debt int64 }

// Bill is the sums of one attempt.
type Bill struct {
	Payer              string
	Placed, Released   int64 // reserved, and released of it
	Captured, Overshot int64 // charged: of what was reserved, and beyond
	Returned           int64 // refunded of the charge
	GivenBack          int64 // of that, refunded for a fault or by an administrator
	counted            int64 // charged for metered time, less the refunds of it
	rates              []rate
	stretches          []stretch        // of the last bill
	into               map[uint64]int64 // by bucket, less what was refunded
}

// Holds returns what the attempt still has reserved.
func (b *Bill) Holds() int64 { return b.Placed - b.Released - b.Captured }

// Charged returns the charge less the refunds; 0 without a bill.
func (b *Bill) Charged() int64 {
	if b == nil {
		return 0
	}
	return b.Captured + b.Overshot - b.Returned
}

// Book is the sums of a journal: of buckets, payers and attempts.
type Book struct {
	entries []Entry // set by Read
	count   uint64
	latest  int64
	head    []byte
	Buckets map[uint64]*BucketSums
	Payers  map[string]*PayerSums
	Bills   map[Attempt]*Bill
	terms   map[uint64]*terms    // of buckets
	sums    [lastBooks + 1]int64 // by kind of book account
}

// New returns the book of an empty journal.
func New() *Book {
	return &Book{head: make([]byte, sha256.Size), Buckets: map[uint64]*BucketSums{}, Payers: map[string]*PayerSums{}, Bills: map[Attempt]*Bill{}, terms: map[uint64]*terms{}}
}

// Read adds up a journal. It returns an error for the first impossible row.
func Read(rows [][]byte) (*Book, error) {
	b := New()
	b.entries = make([]Entry, 0, len(rows))
	for _, row := range rows {
		e, err := b.Add(row)
		if err != nil {
			return nil, err
		}
		b.entries = append(b.entries, *e)
	}
	return b, nil
}

// Add adds one row and returns its entry. After an error the book is unusable. O(1).
func (b *Book) Add(row []byte) (*Entry, error) {
	e, hash, err := readRow(row, b.head)
	if err == nil {
		err = b.add(e)
	}
	if err != nil {
		return nil, fmt.Errorf("entry %d of the journal: %w", b.count+1, err)
	}
	b.head = append(b.head[:0], hash...)
	b.count, b.latest = e.seq, e.at
	return &e, nil
}

func (b *Book) add(e Entry) error {
	switch {
	case e.seq != b.count+1:
		return fmt.Errorf("its number is %d", e.seq)
	case e.at < b.latest:
		return errors.New("it is older than the one before")
	case e.amount <= 0 || e.effective > e.at || e.from.kind > lastBooks || e.to.kind > lastBooks:
		return fmt.Errorf("it is not possible: %+v", e)
	}
	b.sums[e.from.kind] -= e.amount
	b.sums[e.to.kind] += e.amount
	b.pay(&e)
	b.charge(&e)
	for id, p := range map[uint64]*BucketSums{e.from.bucket: b.Buckets[e.from.bucket], e.to.bucket: b.Buckets[e.to.bucket]} {
		if id != 0 && (p.Available < 0 || p.Held < 0 || p.Spent < 0) {
			return fmt.Errorf("it leaves bucket %d with %+v", id, *p)
		}
	}
	if s := b.payer(e.node); s.Held < 0 || s.Spent < 0 || s.Debt < 0 {
		return fmt.Errorf("it leaves %s with %+v", e.node, *s)
	}
	if bill := b.Bills[e.of]; bill != nil && (bill.Holds() < 0 || bill.Charged() < 0) {
		return fmt.Errorf("it leaves attempt %v with %+v", e.of, *bill)
	}
	return b.check(&e)
}

func (b *Book) bucket(id uint64) *BucketSums {
	if b.Buckets[id] == nil {
		b.Buckets[id] = &BucketSums{}
	}
	return b.Buckets[id]
}

func (b *Book) payer(node string) *PayerSums {
	if b.Payers[node] == nil {
		b.Payers[node] = &PayerSums{}
	}
	return b.Payers[node]
}

// pay moves credits between the available, held and spent of buckets.
func (b *Book) pay(e *Entry) {
	if e.from.bucket != 0 {
		p := b.bucket(e.from.bucket)
		if e.from.kind == heldFrom {
			p.Held -= e.amount
		} else {
			p.Available -= e.amount
		}
		switch e.kind {
		case repaid, captured, overshot:
			p.Spent += e.amount
		case expired:
			p.Expired += e.amount
		case taken:
			p.Void += e.amount
		}
	}
	if e.to.bucket != 0 {
		p := b.bucket(e.to.bucket)
		switch {
		case e.kind == granted || e.kind == refunded && p.Amount == 0:
			p.Amount += e.amount // a new bucket
		case e.kind == refunded:
			p.Spent -= e.amount
		}
		if e.to.kind == heldFrom {
			p.Held += e.amount
		} else {
			p.Available += e.amount
		}
	}
}

// charge moves credits between payers and attempts.
func (b *Book) charge(e *Entry) {
	s, x := b.payer(e.node), e.amount
	var bill *Bill
	if e.of.Job != 0 {
		bill = b.billOf(e)
	}
	switch {
	case e.kind == setAside:
		s.Held, bill.Placed = s.Held+x, bill.Placed+x
	case e.kind == released:
		s.Held, bill.Released = s.Held-x, bill.Released+x
	case e.kind == captured:
		s.Held, s.Spent, bill.Captured = s.Held-x, s.Spent+x, bill.Captured+x
	case e.kind == overshot && e.from.kind == owed:
		s.Debt, bill.Overshot = s.Debt+x, bill.Overshot+x
	case e.kind == overshot:
		s.Spent, bill.Overshot = s.Spent+x, bill.Overshot+x
	case e.kind == refunded && e.to.kind == owed:
		s.Debt, bill.Returned = s.Debt-x, bill.Returned+x
	case e.kind == refunded:
		s.Spent, bill.Returned = s.Spent-x, bill.Returned+x
	case e.kind == repaid:
		s.Spent, s.Debt = s.Spent+x, s.Debt-x
	}
}

func (b *Book) billOf(e *Entry) *Bill {
	if b.Bills[e.of] == nil {
		b.Bills[e.of] = &Bill{Payer: e.node, into: map[uint64]int64{}}
	}
	return b.Bills[e.of]
}

// Cost returns the price of GPU-milliseconds at a price per GPU-hour, in micro-credits, rounded
// down.
func Cost(price, gpuMS int64) int64 {
	x := new(big.Int).Mul(big.NewInt(price), big.NewInt(gpuMS))
	return x.Div(x, big.NewInt(3_600_000)).Int64()
}

// Expiry is credits that expired unused.
type Expiry struct {
	Amount            int64
	Effective, Booked time.Time
}

// Expired returns all credits that expired, in the order of their entries.
func (b *Book) Expired() (all []Expiry) {
	for _, e := range b.entries {
		if e.kind == expired {
			all = append(all, Expiry{e.amount, time.Unix(0, e.effective), time.Unix(0, e.at)})
		}
	}
	return all
}
