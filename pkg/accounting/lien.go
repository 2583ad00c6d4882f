package accounting

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/cluster"
)

// LienID identifies a lien: there is one for each attempt of a job.
type LienID struct {
	Job     cluster.JobID
	Attempt cluster.Attempt
}

// String returns job.attempt.
func (id LienID) String() string { return fmt.Sprintf("%d.%d", id.Job, id.Attempt) }

// CompareLiens orders liens by job and attempt.
func CompareLiens(a, b LienID) int {
	if a.Job != b.Job {
		return cmp.Compare(a.Job, b.Job)
	}
	return cmp.Compare(a.Attempt, b.Attempt)
}

// LienState is the state of a lien. Settled and Released are final; Provisional becomes Settled.
type LienState uint8

// The states.
const (
	Open LienState = iota
	Provisional
	Settled
	Unused // released before anything was charged
)

// String returns the word in statements.
func (s LienState) String() string {
	words := [...]string{"open", "provisional", "settled", "void"}
	if int(s) < len(words) {
		return words[s]
	}
	return "unknown"
}

// Claim is a request for a lien.
type Claim struct {
	ID        LienID
	Chain     PayerPath // the payer's path, leaf first; in a lien only the payer
	Partition string
	QOS       string
	Rates     []Rate  // from a quote, the requested type first
	Amount    Credits // of the quote, or of the lien window
	Floating  bool    // at the prices of its run time
	// Partitions are those that the attempt may run in, if there are several; else it is Partition.
	Partitions []string
}

// PaysIn reports whether the lien pays for a run in a partition.
func (c *Claim) PaysIn(partition string) bool {
	return len(c.Partitions) == 0 || slices.Contains(c.Partitions, partition)
}

// places returns the partitions that a bucket's scope must include.
func (c *Claim) places() []string {
	if len(c.Partitions) > 0 {
		return c.Partitions
	}
	return []string{c.Partition}
}

// Part is a lien's amount from one bucket. Parts are in spending order, those of an overshoot last.
// A part with bucket 0 is debt.
type Part struct {
	Bucket   BucketID
	Held     Credits
	Spent    Credits
	Refunded Credits // of Spent
}

// Lien is money reserved for one attempt, and its use.
type Lien struct {
	Claim
	State    LienState
	Since    cluster.Instant
	Ended    cluster.Instant
	Parts    []Part
	Segments []Segment
	Adjusted Credits // corrections charged or refunded, in addition to the counters

	// Unproven means that the end was never reported: it was settled at its last counter.
	Unproven bool

	// CutShort means that a bucket with cut-off expired under the lien and other buckets did not
	// replace all of it: the attempt may run only as long as the lien lasts.
	CutShort bool

	Recent // of what the parts spent, except debt

	terms  uint64 // hash of Claim
	hashed uint64 // in the digest
}

// Lien finds a lien. The caller must not change it. O(log n).
func (l *Ledger) Lien(id LienID) (Lien, bool) {
	n, found := l.liens.Get(id)
	if !found {
		return Lien{}, false
	}
	return *n, true
}

// payer returns the account that pays.
func (n *Lien) payer() PayerID { return n.Chain[0] }

// sum adds up the parts.
func (n *Lien) sum() (held, spent, refunded Credits) {
	for _, p := range n.Parts {
		held, spent, refunded = held+p.Held, spent+p.Spent, refunded+p.Refunded
	}
	return held, spent, refunded
}

// CreateLien reserves the whole amount or nothing. A Shortfall names the account that binds.
func (l *Ledger) CreateLien(s Stamp, c Claim) (Receipt, error) {
	return l.once(s, printOf(l, s, opPlace, &c, claimFields), func() (Receipt, error) {
		if err := c.possible(); err != nil {
			return Receipt{}, err
		}
		if l.liens.Has(c.ID) {
			return Receipt{}, fmt.Errorf("%w: %s", ErrLien, c.ID)
		}
		if err := l.known(c.Chain); err != nil {
			return Receipt{}, err
		}
		n := Lien{Claim: c, Since: l.now}
		n.Chain, n.Rates, n.Partitions = PayerPath{c.Chain[0]}, slices.Clone(c.Rates), slices.Clone(c.Partitions)
		warnings, err := l.setAside(&n, c.Chain, c.Amount)
		if err != nil {
			return Receipt{}, err
		}
		l.putLien(&n)
		return Receipt{Lien: c.ID, Held: c.Amount, Warnings: warnings}, nil
	})
}

func (c *Claim) possible() error {
	switch {
	case !usable(c.Amount):
		return fmt.Errorf("%w: a lien of %s", ErrAmount, c.Amount)
	case len(c.Rates) == 0 || len(c.Rates) > maxList || c.ID.Job == 0:
		return fmt.Errorf("%w: a lien needs a job and 1 to %d prices", ErrInvalid, maxList)
	case len(c.Partition) > maxText || len(c.QOS) > maxText || slices.ContainsFunc(c.Partitions, func(x string) bool { return len(x) > maxText }):
		return fmt.Errorf("%w: a partition or QOS has at most %d bytes", ErrInvalid, maxText)
	case len(c.Partitions) > maxList:
		return fmt.Errorf("%w: a lien is for at most %d partitions", ErrInvalid, maxList)
	}
	for _, r := range c.Rates {
		if r.Price < 0 || r.Price > MaxAmount || len(r.GPUType) > maxText {
			return fmt.Errorf("%w: a price of %s for GPU type %.32q", ErrAmount, r.Price, r.GPUType)
		}
	}
	return nil
}

// setAside moves an amount from the buckets of a path into a lien that the caller owns and stores.
func (l *Ledger) setAside(n *Lien, chain PayerPath, amount Credits) ([]Warning, error) {
	warnings, err := l.afford(chain, amount)
	if err != nil {
		return nil, err
	}
	from, got := l.sources(n, chain, amount)
	if got < amount {
		return nil, &Shortfall{Why: ErrCredits, Node: chain[0], Need: amount, Available: got}
	}
	l.open(chain)
	l.hold(n, from, got)
	return warnings, nil
}

// hold moves the chosen amounts from buckets into the lien.
func (l *Ledger) hold(n *Lien, from []source, sum Credits) {
	l.about.of(n)
	n.Parts = slices.Clone(n.Parts)
	cause := l.purpose(n)
	for _, f := range from {
		b := l.ownBucket(f.bucket)
		b.Avail, b.Held = b.Avail-f.amount, b.Held+f.amount
		l.noteBucket(b)
		l.bookBy(SetAside, inBucket(b.ID), heldFrom(b.ID), f.amount, Justification{For: cause})
		if last := len(n.Parts) - 1; last >= 0 && n.Parts[last].Bucket == b.ID {
			n.Parts[last].Held += f.amount
		} else {
			n.Parts = append(n.Parts, Part{Bucket: b.ID, Held: f.amount})
		}
		if b.Cutoff {
			l.onParts.Set(partKey{b.ID, n.ID}, none{})
		}
	}
	l.post(n.payer(), change{held: sum})
}

// Resize changes the amount of an open lien: an increase is reserved like a new lien, a decrease is
// released in reverse order, but never what is already due.
func (l *Ledger) Resize(s Stamp, id LienID, amount Credits) (Receipt, error) {
	type payload struct {
		LienID
		amount Credits
	}
	p := printOf(l, s, opResize, &payload{id, amount}, func(c *codec.Coder, x *payload) {
		lienID(c, &x.LienID)
		codec.Int(c, &x.amount)
	})
	return l.once(s, p, func() (Receipt, error) {
		if !usable(amount) {
			return Receipt{}, fmt.Errorf("%w: a lien of %s", ErrAmount, amount)
		}
		n, err := l.openLien(id)
		if err != nil {
			return Receipt{}, err
		}
		r := Receipt{Lien: id}
		if amount > n.Amount {
			more := amount - n.Amount
			n.Amount = amount
			if r.Warnings, err = l.setAside(&n, l.above(n.payer()), more); err != nil {
				return Receipt{}, err
			}
			r.Held = more
		} else {
			held, _, _ := n.sum()
			r.Released = min(n.Amount-amount, max(0, held-n.Accrued()))
			l.release(&n, r.Released)
			n.Amount -= r.Released
		}
		l.putLien(&n)
		return r, nil
	})
}

// openLien returns a copy of an open lien at current prices, to be changed and stored.
func (l *Ledger) openLien(id LienID) (Lien, error) {
	n, found := l.liens.Get(id)
	switch {
	case !found:
		return Lien{}, fmt.Errorf("%w: %s", ErrNoLien, id)
	case n.State != Open:
		return Lien{}, fmt.Errorf("%w: %s", ErrSettled, id)
	}
	c := n.copied()
	l.follow(&c)
	return c, nil
}

// release returns an amount that a lien holds, the last part first.
func (l *Ledger) release(n *Lien, amount Credits) {
	l.about.of(n)
	l.post(n.payer(), change{held: -amount})
	for i := len(n.Parts) - 1; i >= 0 && amount > 0; i-- {
		p := &n.Parts[i]
		x := min(p.Held, amount)
		if x == 0 {
			continue
		}
		p.Held, amount = p.Held-x, amount-x
		b := l.ownBucket(p.Bucket)
		b.Held -= x
		l.book(Released, heldFrom(b.ID), inBucket(b.ID), x)
		l.giveBack(b, x)
		l.noteBucket(b)
		l.unmark(n, b)
	}
}

// end sets a lien's final state, or Provisional.
func (l *Ledger) end(n *Lien, state LienState) {
	if n.State == Open {
		n.Ended = l.now
	} else {
		l.ended.Delete(n.endedKey())
	}
	n.State = state
	l.ended.Set(n.endedKey(), none{})
}

func (n *Lien) endedKey() endedKey { return endedKey{n.State != Provisional, n.Ended, n.ID} }

// Forget drops at most most liens that ended before an instant, oldest first. They can no longer be
// refunded, and their IDs no longer refused. It returns how many. O(most × log n).
func (l *Ledger) Forget(before cluster.Instant, most int) int {
	var old []endedKey
	for k := range l.ended.From(endedKey{final: true, at: math.MinInt64}) {
		if len(old) == most || k.at >= before {
			break
		}
		old = append(old, k)
	}
	for _, k := range old {
		n, _ := l.liens.Delete(k.lien)
		l.digest -= n.hashed
		l.ended.Delete(k)
	}
	return len(old)
}
