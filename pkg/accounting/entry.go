package accounting

import (
	"crypto/sha256"
	"fmt"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/cluster"
)

// AccountKind is what a book account stands for.
type AccountKind uint8

// The book accounts. Bucket, held and debt have one for each bucket or node.
const (
	InBucket  AccountKind = iota + 1 // what a bucket has available
	HeldFrom                         // what liens hold from a bucket
	Revenue                          // consumed
	External                         // where purchases come from
	Promotion                        // where grants and promotions come from
	Breakage                         // expired unused
	Voided                           // taken back
	Owed                             // below zero by what a node owes
)

// String is the word in journals.
func (k AccountKind) String() string {
	words := [...]string{"", "bucket", "held", "revenue", "external", "promotion", "breakage", "voided", "owed"}
	if int(k) < len(words) {
		return words[k]
	}
	return "unknown"
}

// BookAccount is one side of an entry.
type BookAccount struct {
	Kind   AccountKind
	Bucket BucketID // of InBucket and HeldFrom
	Node   PayerID  // of Owed
}

// EntryKind is why money moved.
type EntryKind uint8

// The kinds of entries.
const (
	Granted EntryKind = iota + 1
	Repaid
	SetAside
	Captured
	Overshoot
	Released
	Refunded
	Expired
	Taken
)

// String is the word in statements.
func (k EntryKind) String() string {
	words := [...]string{"", "grant", "repay", "lien", "charge", "overshoot", "release", "refund", "expire", "void"}
	if int(k) < len(words) {
		return words[k]
	}
	return "unknown"
}

// Hash is a SHA-256 digest.
type Hash [sha256.Size]byte

// Entry is one movement: Amount leaves Debit and arrives in Credit, so that entries
// sum to zero by their form. Entries are never changed; a correction is another one.
type Entry struct {
	Seq           uint64 // 1 for the first, without gaps
	At            cluster.Instant
	Effective     cluster.Instant // what it is about; differs for late facts
	Kind          EntryKind
	Debit         BookAccount
	Credit        BookAccount
	Amount        Credits
	Node          PayerID // the account that it is about: who pays, is granted or loses
	Lien          LienID
	Corrects      uint64 // sequence number; 0 for none
	Late          bool   // effective in a closed period, booked after it
	Key           string
	Note          string // from form 4 on
	Form          uint8  // of the encoding
	Justification        // from form 2 on
	Prev          Hash
	Hash          Hash
}

// The forms of entries: one of the first says nothing of its grounds, and before the third
// what floats is charged at the price of its start; those of the fourth have notes; from the fifth on
// as much is set aside as the bill will come to, where before it was what the counters came to and the
// rest of the time, and what expires is booked at once. In the sixth they are as in the fifth: from
// it on it is remembered what was given back in vain, accounts have other limits, and ends of which the log
// hears late are billed as nodes counted (internal/state). A ledger writes the newest that it was told to, so that all replicas write, and
// charge, the same (Write).
const (
	formBare     = 1
	formFloating = 3
	formNoted    = 4
	formCovered  = 5
	formLost     = 6
	// Form is the newest.
	Form = 6
)

// Write has entries written in a form from now on; never in an older one than before. What
// floats and runs follows the prices that change from now on: what it was charged stays.
func (l *Ledger) Write(form uint8) {
	if l.form < formFloating && form >= formFloating {
		l.floats = l.now
	}
	l.form = max(l.form, min(form, Form))
}

// Writes is the form in which entries are written.
func (l *Ledger) Writes() uint8 { return l.form }

// entryFields are those that are hashed: all but Prev and Hash.
func entryFields(c *codec.Coder, e *Entry) {
	codec.Uint(c, &e.Seq)
	codec.Int(c, &e.At)
	codec.Int(c, &e.Effective)
	codec.Uint(c, &e.Kind)
	bookAccount(c, &e.Debit)
	bookAccount(c, &e.Credit)
	codec.Int(c, &e.Amount)
	nodeID(c, &e.Node)
	lienID(c, &e.Lien)
	codec.Uint(c, &e.Corrects)
	codec.Bool(c, &e.Late)
	codec.String(c, &e.Key)
	if e.Form > formBare {
		groundsFields(c, &e.Justification)
	}
	if e.Form >= formFloating && e.For != nil {
		codec.Int(c, &e.For.Since)
	}
	if e.Form >= formNoted {
		codec.String(c, &e.Note)
	}
}

func bookAccount(c *codec.Coder, a *BookAccount) {
	codec.Uint(c, &a.Kind)
	codec.Uint(c, &a.Bucket)
	nodeID(c, &a.Node)
}

// Sum is the hash that the entry must carry: of Prev, the version of the encoding and
// the encoded fields.
func (e *Entry) Sum() Hash { return e.sum(new(codec.Coder)) }

// sum is Sum with memory that is used again.
func (e *Entry) sum(c *codec.Coder) Hash {
	*c = codec.Writer(append(append(c.Written()[:0], e.Prev[:]...), e.Form))
	entryFields(c, e)
	return sha256.Sum256(c.Written())
}

// AppendRow appends the entry as it is kept in a journal: Hash and what it is of.
func (e *Entry) AppendRow(b []byte) []byte {
	c := codec.Writer(append(append(append(b, e.Hash[:]...), e.Prev[:]...), e.Form))
	entryFields(&c, e)
	return c.Written()
}

// ReadRow reads what AppendRow wrote, and nothing that follows it. It does not compare
// the hashes, which Audit does. Errors wrap ErrDamaged or ErrNewer.
func ReadRow(row []byte) (Entry, error) {
	var e Entry
	const head = 2 * len(e.Hash)
	switch {
	case len(row) <= head || row[head] == 0:
		return Entry{}, fmt.Errorf("%w: %d bytes are no entry", ErrDamaged, len(row))
	case row[head] > Form:
		return Entry{}, fmt.Errorf("%w: entry of version %d", ErrNewer, row[head])
	}
	copy(e.Hash[:], row)
	copy(e.Prev[:], row[len(e.Hash):])
	e.Form = row[head]
	c := codec.Reader(row[head+1:])
	entryFields(&c, &e)
	if err := c.Err(); err != nil {
		return Entry{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return e, nil
}

// book writes an entry that needs no grounds.
func (l *Ledger) book(kind EntryKind, from, to BookAccount, amount Credits) {
	l.bookBy(kind, from, to, amount, Justification{})
}

// bookBy writes an entry and links it to the chain. Amounts of 0 are no entries.
func (l *Ledger) bookBy(kind EntryKind, from, to BookAccount, amount Credits, by Justification) {
	if amount == 0 {
		return
	}
	l.seq++
	if l.entries == nil {
		l.entries = make([]Entry, 0, 4)
	}
	l.entries = append(l.entries, Entry{
		Seq: l.seq, At: l.now, Effective: l.now, Kind: kind, Debit: from, Credit: to, Amount: amount,
		Node: l.about.node, Lien: l.about.lien, Corrects: l.about.corrects, Key: l.about.key, Form: l.form, Prev: l.head,
	})
	e := &l.entries[len(l.entries)-1]
	if l.form > formBare {
		e.Justification = by
	}
	if l.form >= formNoted {
		e.Note = l.about.note
	}
	if l.about.effective != 0 {
		e.Effective = l.about.effective
	}
	e.Late = e.Effective < l.closed
	e.Hash = e.sum(&l.coder)
	l.head = e.Hash
}

// about is what the entries of the command under way are about.
type about struct {
	node      PayerID
	lien      LienID
	corrects  uint64
	effective cluster.Instant
	key       string
	note      string
	repaid    Credits // debts that the command netted
	lost      Credits // what it gave back to buckets that are over
	bill      BillKind
	final     bool // what is charged is the last that the counters say
}

// of makes what follows about an attempt and who pays for it.
func (a *about) of(n *Lien) { a.node, a.lien = n.payer(), n.ID }
