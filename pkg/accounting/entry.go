package accounting

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/cluster"
)

// AccountKind is the type of a book account.
type AccountKind uint8

// The book accounts. There is one Bucket, Held and Debt account for each bucket or payer.
const (
	InBucket  AccountKind = iota + 1 // a bucket's available credits
	HeldFrom                         // a bucket's credits held by liens
	Revenue                          // consumed
	External                         // source of purchases
	Promotion                        // source of grants and promotions
	Breakage                         // expired unused
	Voided                           // withdrawn
	Owed                             // negative: what a payer owes
)

// String returns the word in journals.
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

// EntryKind is the reason of a movement.
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

// String returns the word in statements.
func (k EntryKind) String() string {
	words := [...]string{"", "grant", "repay", "lien", "charge", "overshoot", "release", "refund", "expire", "void"}
	if int(k) < len(words) {
		return words[k]
	}
	return "unknown"
}

// Hash is a SHA-256 digest.
type Hash [sha256.Size]byte

// Entry is one movement: Amount leaves Debit and arrives in Credit, so that every entry balances.
// Entries are never changed; a correction is a new entry.
type Entry struct {
	Seq       uint64 // 1 for the first, without gaps
	At        cluster.Instant
	Effective cluster.Instant // of the event; earlier than the booking for late reports
	Kind      EntryKind
	Debit     BookAccount
	Credit    BookAccount
	Amount    Credits
	Node      PayerID // the account concerned: it pays, receives or loses
	Lien      LienID
	Corrects  uint64 // sequence number; 0 for none
	Late      bool   // effective in a closed period, booked after it
	Key       string
	Note      string
	Form      uint8 // of the encoding, and of the rules by which the entry was made
	Justification
	Prev Hash
	Hash Hash
}

// Form is the newest form of entries. A ledger writes the first until [Ledger.Write], so that all
// replicas write, and charge, the same. A rule that moves money differently applies from a later
// form on (docs/adr/0014).
const Form = 1

// SetFormat makes the ledger write entries in a form, and follow its rules, from now on. It never goes
// back to an older form.
func (l *Ledger) SetFormat(form uint8) { l.form = max(l.form, form) }

// Format returns the form in which entries are written.
func (l *Ledger) Format() uint8 { return l.form }

// entryFields are the hashed fields: all but Prev and Hash.
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
	justificationFields(c, &e.Justification)
	codec.String(c, &e.Note)
}

func bookAccount(c *codec.Coder, a *BookAccount) {
	codec.Uint(c, &a.Kind)
	codec.Uint(c, &a.Bucket)
	nodeID(c, &a.Node)
}

// Sum returns the hash that the entry must carry: of Prev, the form and the encoded fields.
func (e *Entry) Sum() Hash { return e.sum(new(codec.Coder)) }

// sum is Sum with a reused buffer.
func (e *Entry) sum(c *codec.Coder) Hash {
	*c = codec.Writer(append(append(c.Written()[:0], e.Prev[:]...), codec.FormByte(e.Form)))
	entryFields(c, e)
	return sha256.Sum256(c.Written())
}

// AppendRow appends the journal row of the entry: Hash and the data that it covers.
func (e *Entry) AppendRow(b []byte) []byte {
	c := codec.Writer(append(append(append(b, e.Hash[:]...), e.Prev[:]...), codec.FormByte(e.Form)))
	entryFields(&c, e)
	return c.Written()
}

// ReadRow reads what AppendRow wrote, and rejects trailing bytes. It does not compare the hashes,
// which Audit does. Errors wrap ErrDamaged, ErrNewer or codec.ErrEarlier.
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

// readForm returns the form of a form byte, up to the newest. The error wraps ErrDamaged, ErrNewer
// or codec.ErrEarlier.
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

// book writes an entry without a justification.
func (l *Ledger) book(kind EntryKind, from, to BookAccount, amount Credits) {
	l.bookBy(kind, from, to, amount, Justification{})
}

// bookBy writes an entry and links it to the chain. It writes none for an amount of 0.
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

// about is the context of the current command's entries.
type about struct {
	node      PayerID
	lien      LienID
	corrects  uint64
	effective cluster.Instant
	key       string
	note      string
	repaid    Credits // debts netted by the command
	lost      Credits // credits returned to buckets that are over
	bill      BillKind
	final     bool // the charge is the last one for the counters
}

// of sets the attempt and the payer of the entries that follow.
func (a *about) of(n *Lien) { a.node, a.lien = n.payer(), n.ID }
