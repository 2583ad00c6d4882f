package accounting

import (
	"crypto/sha256"
	"encoding/binary"

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
	Node   NodeID   // of Owed
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
	Lien      LienID
	Corrects  uint64 // sequence number; 0 for none
	Late      bool   // effective in a closed period, booked after it
	Key       string
	Prev      Hash
	Hash      Hash
}

// AppendCanonical appends the encoding that is hashed: fixed fields in big-endian
// order, strings with their lengths, and neither Prev nor Hash.
func (e *Entry) AppendCanonical(b []byte) []byte {
	b = append(b, 1) // the version
	b = binary.BigEndian.AppendUint64(b, e.Seq)
	b = binary.BigEndian.AppendUint64(b, uint64(e.At))
	b = binary.BigEndian.AppendUint64(b, uint64(e.Effective))
	b = append(b, byte(e.Kind))
	for _, a := range [2]*BookAccount{&e.Debit, &e.Credit} {
		b = append(b, byte(a.Kind))
		b = binary.BigEndian.AppendUint64(b, uint64(a.Bucket))
		b = appendText(b, string(a.Node))
	}
	b = binary.BigEndian.AppendUint64(b, uint64(e.Amount))
	b = binary.BigEndian.AppendUint64(b, uint64(e.Lien.Job))
	b = binary.BigEndian.AppendUint32(b, uint32(e.Lien.Attempt))
	b = binary.BigEndian.AppendUint64(b, e.Corrects)
	late := byte(0)
	if e.Late {
		late = 1
	}
	return appendText(append(b, late), e.Key)
}

func appendText(b []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(text))), text...)
}

// Sum is the hash that the entry must carry: of Prev and the canonical encoding.
func (e *Entry) Sum() Hash {
	var space [256]byte
	b := append(space[:0], e.Prev[:]...)
	return sha256.Sum256(e.AppendCanonical(b))
}

// book writes an entry and links it to the chain. Amounts of 0 are no entries.
func (l *Ledger) book(kind EntryKind, from, to BookAccount, amount Credits) {
	if amount == 0 {
		return
	}
	l.seq++
	e := Entry{
		Seq: l.seq, At: l.now, Effective: l.now, Kind: kind, Debit: from, Credit: to, Amount: amount,
		Lien: l.about.lien, Corrects: l.about.corrects, Key: l.about.key, Prev: l.head,
	}
	if l.about.effective != 0 {
		e.Effective = l.about.effective
	}
	e.Late = e.Effective < l.closed
	e.Hash = e.Sum()
	l.head = e.Hash
	l.entries = append(l.entries, e)
}

// about is what the entries of the command under way are about.
type about struct {
	lien      LienID
	corrects  uint64
	effective cluster.Instant
	key       string
}
