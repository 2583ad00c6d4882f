package accounting

import (
	"fmt"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/cluster"
)

// amendable is how long after a provisional settlement a late report may change it.
const amendable = 24 * time.Hour

// charge takes an amount out of a lien: what it holds first, then other buckets, and
// what nobody has becomes debt of the leaf. n is the caller's, to be stored. It answers
// what was charged: less only where all debts together would pass what can be counted.
func (l *Ledger) charge(n *Lien, amount Credits, r *Receipt) (charged Credits) {
	l.about.of(n)
	bill := l.billOf(n)
	left := l.capture(n, amount, bill)
	captured := amount - left
	var got, owed Credits
	if left > 0 {
		got = l.overshoot(n, left, bill)
		owed = min(left-got, maxTotal-l.total)
		l.owe(n, owed, bill.leaves(left-got-owed))
	}
	paid := captured + got
	n.turn(l.today, l.month)
	n.Day, n.Month = n.Day+paid, n.Month+paid
	l.post(n.payer(), change{held: -captured, spent: paid, debt: owed, day: paid, month: paid})
	r.Debt += owed
	r.Charged += captured + got + owed
	return captured + got + owed
}

// overshoot charges what a lien does not hold to other buckets, as far as there are any,
// to be posted.
func (l *Ledger) overshoot(n *Lien, amount Credits, bill Bill) (got Credits) {
	from, got := l.sources(n, l.above(n.payer()), amount)
	left := amount
	for _, f := range from {
		left -= f.amount
		b := l.ownBucket(f.bucket)
		b.Avail, b.Spent = b.Avail-f.amount, b.Spent+f.amount
		l.noteBucket(b)
		l.bookBy(Overshoot, inBucket(b.ID), BookAccount{Kind: Revenue}, f.amount, Justification{For: l.cause(n), Bill: bill.leaves(left)})
		n.Parts = append(n.Parts, Part{Bucket: b.ID, Spent: f.amount})
	}
	return got
}

// owe makes what was consumed and nobody paid a debt of the leaf, to be posted.
func (l *Ledger) owe(n *Lien, amount Credits, bill *Bill) {
	if amount == 0 {
		return
	}
	l.total += amount
	l.bookBy(Overshoot, BookAccount{Kind: Owed, Node: n.payer()}, BookAccount{Kind: Revenue}, amount, Justification{Bill: bill})
	n.Parts = append(n.Parts, Part{Spent: amount})
}

// capture turns what the parts hold into what they spent, in order; left is what they
// could not pay.
func (l *Ledger) capture(n *Lien, amount Credits, bill Bill) (left Credits) {
	left = amount
	for i := range n.Parts {
		p := &n.Parts[i]
		x := min(p.Held, left)
		if x == 0 {
			continue
		}
		b := l.ownBucket(p.Bucket)
		p.Held, p.Spent, left = p.Held-x, p.Spent+x, left-x
		b.Held, b.Spent = b.Held-x, b.Spent+x
		l.noteBucket(b)
		l.bookBy(Captured, heldFrom(b.ID), BookAccount{Kind: Revenue}, x, Justification{Bill: bill.leaves(left)})
		l.unmark(n, b)
	}
	return left
}

// Roll charges what the counters have come to since the last time. The lien stays open.
func (l *Ledger) Roll(s Stamp, id LienID) (Receipt, error) {
	return l.once(s, printOf(l, s, opRoll, &id, lienID), func() (Receipt, error) {
		n, err := l.openLien(id)
		if err != nil {
			return Receipt{}, err
		}
		r := Receipt{Lien: id}
		l.catchUp(&n, &r)
		l.putLien(&n)
		return r, nil
	})
}

// catchUp charges what the counters say beyond what was charged, and gives back what an
// end that was proven later says is too much.
func (l *Ledger) catchUp(n *Lien, r *Receipt) {
	_, spent, back := n.sum()
	if more := n.Due() - (spent - n.Adjusted); more > 0 {
		l.charge(n, more, r)
	} else if more < 0 {
		r.Returned = l.giveRefund(n, min(-more, spent-back))
		n.Adjusted += r.Returned
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
	return l.once(s, printOf(l, s, opSettle, &x, settlementFields), func() (Receipt, error) {
		n, err := l.openLien(x.Lien)
		if err != nil {
			return Receipt{}, err
		}
		n.total(x.Total, l.now)
		l.about.final = !x.Provisional
		r := Receipt{Lien: x.Lien}
		l.catchUp(&n, &r)
		r.Released, _, _ = n.sum()
		l.release(&n, r.Released)
		switch {
		case x.Provisional:
			l.end(&n, Provisional)
		case len(n.Segments) == 0:
			l.end(&n, Unused)
		default:
			l.end(&n, Settled)
		}
		l.putLien(&n)
		return r, nil
	})
}

// total sets what the last segment comes to, within what it can have.
func (n *Lien) total(gpuMS int64, now cluster.Instant) {
	if last := len(n.Segments) - 1; last >= 0 && gpuMS >= 0 {
		g := &n.Segments[last]
		g.Base, g.Count = 0, 0
		g.Excess = g.count(gpuMS, n.most(last, now))
	}
}

// Amend corrects a provisional settlement by the report that came late, within 24 h,
// and makes it final: more is charged to the same buckets as far as they have it, less
// is given back. -1 makes it final as it is, at any time.
func (l *Ledger) Amend(s Stamp, id LienID, total int64) (Receipt, error) {
	type payload struct {
		LienID
		total int64
	}
	p := printOf(l, s, opAmend, &payload{id, total}, func(c *codec.Coder, x *payload) {
		lienID(c, &x.LienID)
		codec.Int(c, &x.total)
	})
	return l.once(s, p, func() (Receipt, error) {
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
		n.total(total, l.now)
		n.Unproven, l.about.final = total < 0, true
		r := Receipt{Lien: id}
		l.again(&n, n.Accrued())
		l.catchUp(&n, &r)
		l.end(&n, Settled)
		l.putLien(&n)
		return r, nil
	})
}

func (n *Lien) copied() Lien {
	c := *n
	c.Parts = append([]Part(nil), n.Parts...)
	c.Segments = append([]Segment(nil), n.Segments...)
	return c
}

// again takes back into a lien what its own buckets still have and may pay, in their order.
func (l *Ledger) again(n *Lien, amount Credits) {
	l.about.of(n)
	cause := l.cause(n)
	for i := range n.Parts {
		p := &n.Parts[i]
		was, found := l.buckets.Get(p.Bucket)
		if !found || !was.valid(l.now) || !slices.Contains(cause.Chain, was.Owner[0]) {
			continue
		}
		x := min(was.pays(n), amount)
		if x == 0 {
			continue
		}
		b := l.ownBucket(p.Bucket)
		b.Avail, b.Held, p.Held, amount = b.Avail-x, b.Held+x, p.Held+x, amount-x
		l.noteBucket(b)
		l.bookBy(SetAside, inBucket(b.ID), heldFrom(b.ID), x, Justification{For: cause})
		l.post(n.payer(), change{held: x})
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
	return l.once(s, printOf(l, s, opRefund, &x, refundFields), func() (Receipt, error) {
		if !usable(x.Amount) || x.Effective < 0 || x.Effective > l.now {
			return Receipt{}, fmt.Errorf("%w: a refund of %s", ErrAmount, x.Amount)
		}
		was, found := l.liens.Get(x.Lien)
		if !found {
			return Receipt{}, fmt.Errorf("%w: %s", ErrNoLien, x.Lien)
		}
		if _, spent, back := was.sum(); x.Amount > spent-back {
			return Receipt{}, &Shortfall{Why: ErrRefund, Node: was.payer(), Need: x.Amount, Available: spent - back}
		}
		n := was.copied()
		l.about.corrects, l.about.effective, l.about.bill = x.Corrects, x.Effective, Returned
		r := Receipt{Lien: x.Lien, Returned: l.giveRefund(&n, x.Amount)}
		l.putLien(&n)
		return r, nil
	})
}

// giveRefund moves revenue back to where it came from, the last part first.
func (l *Ledger) giveRefund(n *Lien, amount Credits) (given Credits) {
	l.about.of(n)
	bill := l.billOf(n)
	for i := len(n.Parts) - 1; i >= 0 && given < amount; i-- {
		p := &n.Parts[i]
		x := min(p.Spent-p.Refunded, amount-given)
		if x == 0 {
			continue
		}
		given += x
		p.Refunded += x
		if p.Bucket == 0 {
			l.forgive(n, x, bill.leaves(amount-given))
			continue
		}
		b := l.ownBucket(p.Bucket)
		b.Spent -= x
		l.bookBy(Refunded, BookAccount{Kind: Revenue}, inBucket(b.ID), x, Justification{Bill: bill.leaves(amount - given)})
		l.giveBack(b, x)
		l.noteBucket(b)
		l.post(n.payer(), l.unspend(n, x))
	}
	return given
}

// unspend is what giving back an amount changes: what was spent last goes back first, so
// that of the present day and month only what was spent in them does, and nothing of them
// where the refund is about an earlier time.
func (l *Ledger) unspend(n *Lien, x Credits) change {
	n.turn(l.today, l.month)
	c := change{spent: -x}
	about := l.about.effective
	if about == 0 || about >= l.today {
		c.day = -min(x, n.Day)
	}
	if about == 0 || about >= l.month {
		c.month = -min(x, n.Month)
	}
	n.Day, n.Month = n.Day+c.day, n.Month+c.month
	return c
}

// forgive gives back what was charged as debt: what is still owed is owed no longer,
// and what was repaid meanwhile becomes a bucket of the one who owed.
func (l *Ledger) forgive(n *Lien, x Credits, bill *Bill) {
	leaf, _ := l.nodes.Get(n.payer())
	owed := min(x, leaf.Owes)
	l.bookBy(Refunded, BookAccount{Kind: Revenue}, BookAccount{Kind: Owed, Node: n.payer()}, owed, Justification{Bill: bill.leaves(bill.Left + x - owed)})
	l.post(n.payer(), change{debt: -owed})
	if rest := x - owed; rest > 0 {
		b := l.mint(Grant{Owner: n.Chain, Class: RefundClass, Amount: rest, Effective: l.now})
		l.bookBy(Refunded, BookAccount{Kind: Revenue}, inBucket(b.ID), rest, Justification{Terms: &b.Grant, Bill: bill})
		l.post(n.payer(), change{spent: -rest}) // paid at a time that no lien tells
		l.repay(b)
		l.noteBucket(b)
	}
}

// Correct charges an attempt more than its counters say, out of the buckets that its
// account has; to give back is a Refund.
func (l *Ledger) Correct(s Stamp, x Refund) (Receipt, error) {
	return l.once(s, printOf(l, s, opCorrect, &x, refundFields), func() (Receipt, error) {
		if !usable(x.Amount) || x.Effective < 0 || x.Effective > l.now {
			return Receipt{}, fmt.Errorf("%w: a correction by %s", ErrAmount, x.Amount)
		}
		was, found := l.liens.Get(x.Lien)
		if !found {
			return Receipt{}, fmt.Errorf("%w: %s", ErrNoLien, x.Lien)
		}
		n := was.copied()
		l.about.corrects, l.about.effective, l.about.bill = x.Corrects, x.Effective, Corrected
		r := Receipt{Lien: x.Lien}
		n.Adjusted += l.charge(&n, x.Amount, &r)
		l.putLien(&n)
		return r, nil
	})
}

// Accrued is what an open lien's counters have come to and was not charged yet.
func (n *Lien) Accrued() Credits {
	_, spent, _ := n.sum()
	return max(0, n.Due()-(spent-n.Adjusted))
}

// OldestProvisional is the lien that was settled provisionally first, and when. O(log n).
func (l *Ledger) OldestProvisional() (LienID, cluster.Instant, bool) {
	k, _, found := l.ended.First()
	return k.lien, k.at, found && !k.final
}

// Ended is how many liens are remembered that are not open. O(1).
func (l *Ledger) Ended() int { return l.ended.Len() }

// Provisionals are the liens that were settled provisionally before an instant, oldest
// first. O(those).
func (l *Ledger) Provisionals(before cluster.Instant) []LienID {
	var all []LienID
	for k := range l.ended.All() {
		if k.final || k.at >= before {
			break
		}
		all = append(all, k.lien)
	}
	return all
}
