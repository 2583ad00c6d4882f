package accounting

import (
	"crypto/sha256"
	"errors"
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
	Seq       uint64 // 1 for the first, without gaps
	At        cluster.Instant
	Effective cluster.Instant // what it is about; differs for late facts
	Kind      EntryKind
	Debit     BookAccount
	Credit    BookAccount
	Amount    Credits
	Node      PayerID // the account that it is about: who pays, is granted or loses
	Lien      LienID
	Corrects  uint64 // sequence number; 0 for none
	Late      bool   // effective in a closed period, booked after it
	Key       string
	Note      string
	Form      uint8 // of the encoding, and the rules by which the entry was made
	Justification
	Prev Hash
	Hash Hash
}

// Form is the newest form of entries. A ledger writes the first until [Ledger.Write], so that
// all replicas write, and charge, the same. A rule that moves money otherwise holds from a
// later form on (docs/adr/0014).
const Form = 1

// Write makes the ledger write entries in a form, and follow its rules, from now on; never in
// an older one than before.
func (l *Ledger) Write(form uint8) { l.form = max(l.form, form) }

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
	groundsFields(c, &e.Justification)
	codec.String(c, &e.Note)
}

func bookAccount(c *codec.Coder, a *BookAccount) {
	codec.Uint(c, &a.Kind)
	codec.Uint(c, &a.Bucket)
	nodeID(c, &a.Node)
}

// Sum is the hash that the entry must carry: of Prev, the form and the encoded fields.
func (e *Entry) Sum() Hash { return e.sum(new(codec.Coder)) }

// sum is Sum with memory that is used again.
func (e *Entry) sum(c *codec.Coder) Hash {
	*c = codec.Writer(append(append(c.Written()[:0], e.Prev[:]...), codec.FormByte(e.Form)))
	entryFields(c, e)
	return sha256.Sum256(c.Written())
}

// AppendRow appends the entry as it is kept in a journal: Hash and what it is of.
func (e *Entry) AppendRow(b []byte) []byte {
	c := codec.Writer(append(append(append(b, e.Hash[:]...), e.Prev[:]...), codec.FormByte(e.Form)))
	entryFields(&c, e)
	return c.Written()
}

// ReadRow reads what AppendRow wrote, and nothing that follows it. It does not compare
// the hashes, which Audit does. Errors wrap ErrDamaged, ErrNewer or codec.ErrEarlier.
func ReadRow(row []byte) (Entry, error) {
	var e Entry
	const head = 2 * len(e.Hash)
	if len(row) <= head {
		return Entry{}, fmt.Errorf("%w: %d bytes are no entry", ErrDamaged, len(row))
	}
	form, err := readForm(row[head], Form)
	if err != nil {
		return Entry{}, fmt.Errorf("entry: %w", err)
	}
	copy(e.Hash[:], row)
	copy(e.Prev[:], row[len(e.Hash):])
	e.Form = form
	c := codec.Reader(row[head+1:])
	entryFields(&c, &e)
	if err := c.Err(); err != nil {
		return Entry{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return e, nil
}

// readForm returns the form that a form byte says, up to the newest. The error wraps
// ErrDamaged, ErrNewer or codec.ErrEarlier.
func readForm(b byte, newest uint8) (uint8, error) {
	form, err := codec.FormOf(b)
	switch {
	case errors.Is(err, codec.ErrEarlier):
		return 0, err
	case err != nil:
		return 0, fmt.Errorf("%w: %w", ErrDamaged, err)
	case form > newest:
		return 0, fmt.Errorf("%w: form %d", ErrNewer, form)
	}
	return form, nil
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
		Node: l.about.node, Lien: l.about.lien, Corrects: l.about.corrects, Key: l.about.key,
		Note: l.about.note, Form: l.form, Justification: by, Prev: l.head,
	})
	e := &l.entries[len(l.entries)-1]
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
