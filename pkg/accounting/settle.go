package accounting

import (
	"fmt"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// amendable is how long after a provisional settlement a late report may change it.
const amendable = 24 * time.Hour

// charge takes an amount out of a lien: what it holds first, then other buckets, and
// what nobody has becomes debt of the leaf. n is the caller's, to be stored.
func (l *Ledger) charge(n *Lien, amount Credits, r *Receipt) {
	l.about.lien = n.ID
	r.Charged += amount
	left := l.capture(n, amount)
	l.post(n.Chain, change{held: -(amount - left), spent: amount - left})
	if left == 0 {
		return
	}
	from, got := l.sources(n, left)
	for _, f := range from {
		was, _ := l.buckets.Get(f.bucket)
		b := *was
		b.Avail, b.Spent = b.Avail-f.amount, b.Spent+f.amount
		l.keep(&b)
		l.book(Overshoot, inBucket(b.ID), BookAccount{Kind: Revenue}, f.amount)
		n.Parts = append(n.Parts, Part{Bucket: b.ID, Spent: f.amount})
	}
	l.post(n.Chain, change{spent: got})
	if left -= got; left > 0 {
		l.book(Overshoot, BookAccount{Kind: Owed, Node: n.Chain[0]}, BookAccount{Kind: Revenue}, left)
		n.Parts = append(n.Parts, Part{Spent: left})
		l.post(n.Chain, change{debt: left})
		r.Debt += left
	}
}

// capture turns what the parts hold into what they spent, in order; left is what they
// could not pay.
func (l *Ledger) capture(n *Lien, amount Credits) (left Credits) {
	left = amount
	for i := range n.Parts {
		p := &n.Parts[i]
		x := min(p.Held, left)
		if x == 0 {
			continue
		}
		was, _ := l.buckets.Get(p.Bucket)
		b := *was
		p.Held, p.Spent, left = p.Held-x, p.Spent+x, left-x
		b.Held, b.Spent = b.Held-x, b.Spent+x
		l.keep(&b)
		l.book(Captured, heldFrom(b.ID), BookAccount{Kind: Revenue}, x)
		if p.Held == 0 {
			l.onParts.Delete(partKey{b.ID, n.ID})
		}
	}
	return left
}

// Roll charges what the counters have come to since the last time. The lien stays open.
func (l *Ledger) Roll(s Stamp, id LienID) (Receipt, error) {
	return l.once(s, id, func() (Receipt, error) {
		n, err := l.openLien(id)
		if err != nil {
			return Receipt{}, err
		}
		r := Receipt{Lien: id}
		l.due(&n, &r)
		l.liens.Set(id, &n)
		return r, nil
	})
}

// due charges what the counters say beyond what was charged, and gives back what an
// end that was proven later says is too much.
func (l *Ledger) due(n *Lien, r *Receipt) {
	_, spent, back := n.sum()
	if more := n.Due() - (spent - n.Adjusted); more > 0 {
		l.charge(n, more, r)
	} else if more < 0 {
		r.Returned = l.giveRefund(n, min(-more, spent-back))
	}
}

// Settlement is how an attempt's lien ends.
type Settlement struct {
	Lien        LienID
	Total       int64 // GPU-milliseconds of the last segment; -1: what its counter says
	Provisional bool  // the end was lost: the last counter is all there is
}

// Settle charges what is due, gives back the rest in reverse to the buckets it came
// from, and ends the lien. A lien that never ran is void. A settled one refuses.
func (l *Ledger) Settle(s Stamp, x Settlement) (Receipt, error) {
	return l.once(s, x, func() (Receipt, error) {
		n, err := l.openLien(x.Lien)
		if err != nil {
			return Receipt{}, err
		}
		n.total(x.Total)
		r := Receipt{Lien: x.Lien}
		l.due(&n, &r)
		r.Released, _, _ = n.sum()
		l.release(&n, r.Released)
		n.Ended, n.State = l.now, Settled
		switch {
		case x.Provisional:
			n.State = Provisional
		case len(n.Segments) == 0:
			n.State = Unused
		}
		l.liens.Set(x.Lien, &n)
		return r, nil
	})
}

// total sets what the last segment comes to.
func (n *Lien) total(gpuMS int64) {
	if last := len(n.Segments) - 1; last >= 0 && gpuMS >= 0 {
		n.Segments[last].Base, n.Segments[last].Count = 0, gpuMS
	}
}

// Amend corrects a provisional settlement by the report that came late, within 24 h,
// and makes it final: more is charged to the same buckets as far as they have it, less
// is given back. -1 makes it final as it is, at any time.
func (l *Ledger) Amend(s Stamp, id LienID, total int64) (Receipt, error) {
	type payload struct {
		ID    LienID
		Total int64
	}
	return l.once(s, payload{id, total}, func() (Receipt, error) {
		was, found := l.liens.Get(id)
		switch {
		case !found:
			return Receipt{}, fmt.Errorf("%w: %s", ErrNoLien, id)
		case was.State != Provisional:
			return Receipt{}, fmt.Errorf("%w: %s", ErrSettled, id)
		case total >= 0 && l.now.Sub(was.Ended) > amendable:
			return Receipt{}, fmt.Errorf("%w: %s", ErrTooLate, id)
		}
		n := was.copied()
		n.total(total)
		r := Receipt{Lien: id}
		l.again(&n, n.Accrued())
		l.due(&n, &r)
		n.State = Settled
		l.liens.Set(id, &n)
		return r, nil
	})
}

func (n *Lien) copied() Lien {
	c := *n
	c.Parts = append([]Part(nil), n.Parts...)
	c.Segments = append([]Segment(nil), n.Segments...)
	return c
}

// again takes back into a lien what its own buckets still have, in their order.
func (l *Ledger) again(n *Lien, amount Credits) {
	l.about.lien = n.ID
	for i := range n.Parts {
		p := &n.Parts[i]
		was, found := l.buckets.Get(p.Bucket)
		if !found || !was.valid(l.now) {
			continue
		}
		b := *was
		x := min(b.Avail, amount)
		if x == 0 {
			continue
		}
		b.Avail, b.Held, p.Held, amount = b.Avail-x, b.Held+x, p.Held+x, amount-x
		l.keep(&b)
		l.book(SetAside, inBucket(b.ID), heldFrom(b.ID), x)
		l.post(n.Chain, change{held: x})
		if b.Cutoff {
			l.onParts.Set(partKey{b.ID, n.ID}, none{})
		}
	}
}

// Refund is something given back of what an attempt spent.
type Refund struct {
	Lien      LienID
	Amount    Credits
	Corrects  uint64          // the entry that it is about; 0 for none
	Effective cluster.Instant // when it should have been; 0: now
}

// Refund gives back in reverse order to the exact buckets, debt first; what belongs to
// a bucket that is over expires at once. At most what was spent and not given back.
func (l *Ledger) Refund(s Stamp, x Refund) (Receipt, error) {
	return l.once(s, x, func() (Receipt, error) {
		if !usable(x.Amount) || x.Effective > l.now {
			return Receipt{}, fmt.Errorf("%w: a refund of %s", ErrAmount, x.Amount)
		}
		was, found := l.liens.Get(x.Lien)
		if !found {
			return Receipt{}, fmt.Errorf("%w: %s", ErrNoLien, x.Lien)
		}
		if _, spent, back := was.sum(); x.Amount > spent-back {
			return Receipt{}, &Shortfall{Why: ErrRefund, Node: was.Chain[0], Need: x.Amount, Available: spent - back}
		}
		n := was.copied()
		l.about.corrects, l.about.effective = x.Corrects, x.Effective
		r := Receipt{Lien: x.Lien, Returned: l.giveRefund(&n, x.Amount)}
		l.liens.Set(x.Lien, &n)
		return r, nil
	})
}

// giveRefund moves revenue back to where it came from, the last part first.
func (l *Ledger) giveRefund(n *Lien, amount Credits) (given Credits) {
	l.about.lien = n.ID
	for i := len(n.Parts) - 1; i >= 0 && given < amount; i-- {
		p := &n.Parts[i]
		x := min(p.Spent-p.Refunded, amount-given)
		if x == 0 {
			continue
		}
		given += x
		p.Refunded += x
		if p.Bucket == 0 {
			l.forgive(n, x)
			continue
		}
		was, _ := l.buckets.Get(p.Bucket)
		b := *was
		b.Spent -= x
		l.book(Refunded, BookAccount{Kind: Revenue}, inBucket(b.ID), x)
		l.giveBack(&b, x)
		l.keep(&b)
		l.post(n.Chain, change{spent: -x})
	}
	return given
}

// forgive gives back what was charged as debt: what is still owed is owed no longer,
// and what was repaid meanwhile becomes a bucket of the one who owed.
func (l *Ledger) forgive(n *Lien, x Credits) {
	leaf, _ := l.nodes.Get(n.Chain[0])
	owed := min(x, leaf.Owes)
	l.book(Refunded, BookAccount{Kind: Revenue}, BookAccount{Kind: Owed, Node: n.Chain[0]}, owed)
	l.post(n.Chain, change{debt: -owed})
	if rest := x - owed; rest > 0 {
		l.bucket++
		b := Bucket{ID: l.bucket, Grant: Grant{Owner: n.Chain, Class: RefundClass, Amount: rest, Effective: l.now}, Avail: rest}
		l.book(Refunded, BookAccount{Kind: Revenue}, inBucket(b.ID), rest)
		l.keep(&b)
		l.post(n.Chain, change{spent: -rest})
	}
}

// Correct charges an attempt more than its counters say, out of the buckets that its
// account has; to give back is a Refund.
func (l *Ledger) Correct(s Stamp, x Refund) (Receipt, error) {
	type payload struct{ X Refund }
	return l.once(s, payload{x}, func() (Receipt, error) {
		if !usable(x.Amount) || x.Effective > l.now {
			return Receipt{}, fmt.Errorf("%w: a correction by %s", ErrAmount, x.Amount)
		}
		was, found := l.liens.Get(x.Lien)
		if !found {
			return Receipt{}, fmt.Errorf("%w: %s", ErrNoLien, x.Lien)
		}
		n := was.copied()
		l.about.corrects, l.about.effective = x.Corrects, x.Effective
		r := Receipt{Lien: x.Lien}
		l.charge(&n, x.Amount, &r)
		n.Adjusted += x.Amount
		l.liens.Set(x.Lien, &n)
		return r, nil
	})
}

// FaultRefund is what a run that the platform ended gets back: its work since the last
// checkpoint that was verified, at most most of it, at its price. work is wall time.
func FaultRefund(price Credits, gpus int64, work, most time.Duration) Credits {
	return Cost(price, millis(gpus, min(work, most).Milliseconds()))
}

// Accrued is what an open lien's counters have come to and was not charged yet.
func (n *Lien) Accrued() Credits {
	_, spent, _ := n.sum()
	return max(0, n.Due()-(spent-n.Adjusted))
}

// Provisionals are the liens that were settled provisionally before an instant. O(liens).
func (l *Ledger) Provisionals(before cluster.Instant) []LienID {
	var all []LienID
	for id, n := range l.liens.All() {
		if n.State == Provisional && n.Ended < before {
			all = append(all, id)
		}
	}
	return all
}
