package accounting

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/cluster"
)

// keyRetention is how long the outcome of a key is remembered, unless it is permanent.
const keyRetention = 32 * 24 * time.Hour

// MaxKey bounds a key, in bytes.
const MaxKey = 192

// Stamp is the part that all commands share.
type Stamp struct {
	At  cluster.Instant // the leader's; the ledger's time never goes back
	Key string          // the same key again changes nothing

	// Natural means that the caller issues the command once and that its object refuses a repeat by
	// itself (a lien exists, or is settled). The key is then only written into the journal: three
	// remembered keys a job for 32 days would be most of the memory of a ledger.
	Natural bool

	// Asked is a fingerprint of what the caller sent under the key; without it the ledger compares
	// the commands themselves. The same request may become another command later, for example when
	// it names a job's last attempt.
	Asked Fingerprint

	By      string // who requested it
	Note    string // the requester's reason
	Lasting bool   // a successful outcome is remembered permanently
}

// Receipt is the result of a command. Which fields are set depends on the command.
type Receipt struct {
	Again    bool            // the key was used before; this is its first receipt
	By       string          // who used it then, and
	At       cluster.Instant // when
	Bucket   BucketID
	Lien     LienID
	Held     Credits // held by the lien
	Charged  Credits // moved to revenue
	Released Credits
	Returned Credits // refunded
	Debt     Credits // created by this command
	Repaid   Credits // debt netted by this command
	Lost     Credits // of Released and Returned, what came back to buckets that are over or void
	Warnings []Warning
}

// Warning is a soft budget that is exceeded.
type Warning struct {
	Node  PayerID
	Used  Credits // held, spent and owed, including the new lien
	Limit Credits
}

// operation distinguishes the payloads of commands, so that a key of one command is not taken for a
// repeat of another. The numbers are in logs: append only.
type operation uint8

const (
	opGrant operation = iota + 1
	opVoid
	opPrice
	opBudget
	opPlace
	opResize
	opDispatch
	opRoll
	opSettle
	opAmend
	opRefund
	opCorrect
	opClose
	opMove
	opWithdraw
)

// Fingerprint distinguishes two payloads under one key. The ledger's own is the first half of the
// SHA-256 of the operation and its canonical encoding.
type Fingerprint [sha256.Size / 2]byte

// printOf returns the fingerprint of an operation and its payload.
func printOf[T any](l *Ledger, s Stamp, op operation, x *T, fields func(*codec.Coder, *T)) (p Fingerprint) {
	if s.Natural {
		return p
	}
	l.coder = codec.Writer(append(l.coder.Written()[:0], byte(op)))
	fields(&l.coder, x)
	sum := sha256.Sum256(l.coder.Written())
	copy(p[:], sum[:])
	return p
}

// outcome is the stored result of a key.
type outcome struct {
	payload Fingerprint
	at      cluster.Instant
	receipt Receipt
	refusal *refusal
	lasting bool
}

type agingKey struct {
	at  cluster.Instant
	key string
}

// once runs a command unless its key was used before. Refusals that depend on the ledger are
// remembered like successes.
func (l *Ledger) once(s Stamp, p Fingerprint, do func() (Receipt, error)) (Receipt, error) {
	if s.Key == "" || len(s.Key) > MaxKey {
		return Receipt{}, fmt.Errorf("%w: a key has 1 to %d bytes", ErrInvalid, MaxKey)
	}
	if !s.Natural {
		if record, known := l.keys.Get(s.Key); known {
			return recall(&s, p, record)
		}
	}
	if s.Asked != (Fingerprint{}) {
		p = s.Asked
	}
	l.advance(s)
	r, err := do()
	r.Repaid, r.Lost = r.Repaid+l.about.repaid, l.about.lost
	l.about = about{}
	if err != nil {
		r = Receipt{}
	}
	if s.Natural || err != nil && fresh(err) {
		return r, err
	}
	kept := r
	kept.By = s.By
	l.remember(s.Key, &outcome{p, l.now, kept, refusalOf(err), s.Lasting && err == nil})
	return r, err
}

// HasKey reports whether the outcome of a key is remembered. O(log n).
func (l *Ledger) HasKey(key string) bool { return l.keys.Has(key) }

// Recall returns the first answer to an earlier request, if there is one. Called before a command
// is built, it does not depend on the current state of what the request names.
func (l *Ledger) Recall(s Stamp) (r Receipt, before bool, err error) {
	record, known := l.keys.Get(s.Key)
	if !known || s.Natural || s.Asked == (Fingerprint{}) {
		return Receipt{}, false, nil
	}
	if r, err = recall(&s, Fingerprint{}, record); errors.Is(err, ErrKey) {
		return Receipt{}, false, nil // the first caller may have sent no fingerprint: once compares the commands
	}
	return r, true, err
}

// recall returns the first answer of a key, if the payload is the same.
func recall(s *Stamp, p Fingerprint, record string) (Receipt, error) {
	was, err := readOutcome(record)
	switch {
	case err != nil:
		return Receipt{}, err
	case was.payload != p && was.payload != s.Asked:
		return Receipt{}, fmt.Errorf("%w: %s", ErrKey, s.Key)
	}
	was.receipt.Again, was.receipt.At = true, was.at
	if was.refusal != nil {
		return was.receipt, was.refusal.error()
	}
	return was.receipt, nil
}

// remember stores an outcome. It stays encoded: few are ever read again, and the encoding takes a
// third of the memory.
func (l *Ledger) remember(key string, x *outcome) {
	l.coder = codec.Writer(l.coder.Written()[:0])
	outcomeFields(&l.coder, x)
	record := string(l.coder.Written())
	l.keys.Set(key, record)
	if !x.lasting {
		l.aging.Set(agingKey{x.at, key}, none{})
	}
	l.digest += hashKey(key, record)
}

// forgetKeys drops at most most keys that are past retention.
func (l *Ledger) forgetKeys(most int) {
	for range most {
		old, _, found := l.aging.First()
		if !found || l.now.Sub(old.at) <= keyRetention {
			return
		}
		l.aging.Delete(old)
		record, _ := l.keys.Delete(old.key)
		l.digest -= hashKey(old.key, record)
	}
}

func readOutcome(record string) (outcome, error) {
	var x outcome
	c := codec.Reader([]byte(record))
	outcomeFields(&c, &x)
	if err := c.Err(); err != nil {
		return outcome{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return x, nil
}

// refusal is a remembered error with its text.
type refusal struct {
	why  uint8  // its index in remembered
	text string // "" for a Shortfall, which is stored separately
	Shortfall
}

// remembered are the errors that depend on the ledger. The indices are in snapshots: append only.
func remembered() [13]error {
	return [...]error{
		ErrCredits, ErrBudget, ErrDebt, ErrLien, ErrNoLien, ErrSettled,
		ErrNoBucket, ErrNoPrice, ErrRefund, ErrExhausted, ErrParent, ErrPeriod, ErrTooLate,
	}
}

func refusalOf(err error) *refusal {
	if err == nil {
		return nil
	}
	var r refusal
	all := remembered()
	for i, why := range all {
		if errors.Is(err, why) {
			r.why = uint8(i)
		}
	}
	if s := (*Shortfall)(nil); errors.As(err, &s) {
		r.Shortfall = *s
	} else {
		r.text = err.Error()
	}
	return &r
}

// error returns the refusal with its first text.
func (r *refusal) error() error {
	all := remembered()
	why := all[r.why]
	if r.text != "" {
		return &said{why, r.text}
	}
	s := r.Shortfall
	s.Why = why
	return &s
}

// said is an error with its stored text.
type said struct {
	why  error
	text string
}

func (s *said) Error() string { return s.text }

func (s *said) Unwrap() error { return s.why }
