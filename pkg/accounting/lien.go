package accounting

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/greylag/greylag/pkg/cluster"
)

// LienID names a lien: there is one for each attempt of a job.
type LienID struct {
	Job     cluster.JobID
	Attempt cluster.Attempt
}

// String is job.attempt.
func (id LienID) String() string { return fmt.Sprintf("%d.%d", id.Job, id.Attempt) }

func compareLiens(a, b LienID) int {
	return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Attempt, b.Attempt))
}

// LienState is how far a lien is. Settled and Released are ends, Provisional becomes
// Settled.
type LienState uint8

// The states.
const (
	Open LienState = iota
	Provisional
	Settled
	Unused // released before anything was charged
)

// String is the word in statements.
func (s LienState) String() string {
	words := [...]string{"open", "provisional", "settled", "void"}
	if int(s) < len(words) {
		return words[s]
	}
	return "unknown"
}

// Claim is what a lien is asked for with.
type Claim struct {
	ID        LienID
	Chain     Chain
	Partition string
	QOS       string
	Rates     []Rate  // from a quote, the wanted type first
	Amount    Credits // of the quote, or of the window of a rolling lien
	Floating  bool    // each segment at the price of the day
}

// Part is what a lien has from one bucket. Parts are in the order they are spent;
// those of an overshoot come last. A part with bucket 0 is debt.
type Part struct {
	Bucket   BucketID
	Held     Credits
	Spent    Credits
	Refunded Credits // of Spent
}

// Lien is money set aside for one attempt, and what became of it.
type Lien struct {
	Claim
	State    LienState
	Since    cluster.Instant
	Ended    cluster.Instant
	Parts    []Part
	Segments []Segment
	Adjusted Credits // corrections that were charged or given back, beside the counters
}

// Lien finds a lien. What it points to may not be written. O(log n).
func (l *Ledger) Lien(id LienID) (Lien, bool) {
	n, found := l.liens.Get(id)
	if !found {
		return Lien{}, false
	}
	return *n, true
}

// sum adds up the parts.
func (n *Lien) sum() (held, spent, refunded Credits) {
	for _, p := range n.Parts {
		held, spent, refunded = held+p.Held, spent+p.Spent, refunded+p.Refunded
	}
	return held, spent, refunded
}

// Place sets the amount aside: all of it or nothing. A Shortfall names the account
// that binds.
func (l *Ledger) Place(s Stamp, c Claim) (Receipt, error) {
	return l.once(s, c, func() (Receipt, error) {
		switch {
		case !usable(c.Amount):
			return Receipt{}, fmt.Errorf("%w: a lien of %s", ErrAmount, c.Amount)
		case len(c.Rates) == 0 || c.ID.Job == 0:
			return Receipt{}, fmt.Errorf("%w: a lien needs a job and prices", ErrInvalid)
		case l.liens.Has(c.ID):
			return Receipt{}, fmt.Errorf("%w: %s", ErrLien, c.ID)
		}
		if err := l.known(c.Chain); err != nil {
			return Receipt{}, err
		}
		c.Chain, c.Rates = slices.Clone(c.Chain), slices.Clone(c.Rates)
		n := Lien{Claim: c, Since: l.now}
		warnings, err := l.setAside(&n, c.Amount)
		if err != nil {
			return Receipt{}, err
		}
		l.liens.Set(c.ID, &n)
		return Receipt{Lien: c.ID, Held: c.Amount, Warnings: warnings}, nil
	})
}

// setAside moves an amount from buckets into a lien that the caller owns and stores.
func (l *Ledger) setAside(n *Lien, amount Credits) ([]Warning, error) {
	warnings, err := l.afford(n.Chain, amount)
	if err != nil {
		return nil, err
	}
	from, got := l.sources(n, amount)
	if got < amount {
		return nil, &Shortfall{Why: ErrCredits, Node: n.Chain[0], Need: amount, Available: got}
	}
	l.open(n.Chain)
	l.hold(n, from, got)
	return warnings, nil
}

// hold moves what was chosen from buckets into the lien.
func (l *Ledger) hold(n *Lien, from []source, sum Credits) {
	l.about.lien = n.ID
	n.Parts = slices.Clone(n.Parts)
	for _, f := range from {
		was, _ := l.buckets.Get(f.bucket)
		b := *was
		b.Avail, b.Held = b.Avail-f.amount, b.Held+f.amount
		l.keep(&b)
		l.book(SetAside, inBucket(b.ID), heldFrom(b.ID), f.amount)
		if last := len(n.Parts) - 1; last >= 0 && n.Parts[last].Bucket == b.ID {
			n.Parts[last].Held += f.amount
		} else {
			n.Parts = append(n.Parts, Part{Bucket: b.ID, Held: f.amount})
		}
		if b.Cutoff {
			l.onParts.Set(partKey{b.ID, n.ID}, none{})
		}
	}
	l.post(n.Chain, change{held: sum})
}

// Resize makes the amount of an open lien another: more is set aside like a new lien,
// less is given back in reverse, but never what is due already.
func (l *Ledger) Resize(s Stamp, id LienID, amount Credits) (Receipt, error) {
	type payload struct {
		ID     LienID
		Amount Credits
	}
	return l.once(s, payload{id, amount}, func() (Receipt, error) {
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
			if r.Warnings, err = l.setAside(&n, more); err != nil {
				return Receipt{}, err
			}
			r.Held = more
		} else {
			held, _, _ := n.sum()
			r.Released = min(n.Amount-amount, max(0, held-n.Accrued()))
			l.release(&n, r.Released)
			n.Amount -= r.Released
		}
		l.liens.Set(id, &n)
		return r, nil
	})
}

// openLien is a copy of an open lien, to be written and stored.
func (l *Ledger) openLien(id LienID) (Lien, error) {
	n, found := l.liens.Get(id)
	switch {
	case !found:
		return Lien{}, fmt.Errorf("%w: %s", ErrNoLien, id)
	case n.State != Open:
		return Lien{}, fmt.Errorf("%w: %s", ErrSettled, id)
	}
	c := *n
	c.Parts, c.Segments = slices.Clone(n.Parts), slices.Clone(n.Segments)
	return c, nil
}

// release gives back an amount of what a lien holds, the last part first.
func (l *Ledger) release(n *Lien, amount Credits) {
	l.about.lien = n.ID
	l.post(n.Chain, change{held: -amount})
	for i := len(n.Parts) - 1; i >= 0 && amount > 0; i-- {
		p := &n.Parts[i]
		x := min(p.Held, amount)
		if x == 0 {
			continue
		}
		p.Held, amount = p.Held-x, amount-x
		was, _ := l.buckets.Get(p.Bucket)
		b := *was
		b.Held -= x
		l.book(Released, heldFrom(b.ID), inBucket(b.ID), x)
		l.giveBack(&b, x)
		l.keep(&b)
		if p.Held == 0 {
			l.onParts.Delete(partKey{b.ID, n.ID})
		}
	}
}

// Forget drops liens that ended before an instant, at most most of them; they can no
// longer be refunded, nor their names be refused. It returns how many. O(liens).
func (l *Ledger) Forget(before cluster.Instant, most int) int {
	var old []LienID
	for id, n := range l.liens.All() {
		if len(old) == most {
			break
		}
		if (n.State == Settled || n.State == Unused) && n.Ended < before {
			old = append(old, id)
		}
	}
	for _, id := range old {
		l.liens.Delete(id)
	}
	return len(old)
}
