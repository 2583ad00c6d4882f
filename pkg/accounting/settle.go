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

// charge takes an amount from a lien: first what it holds, then other buckets; the rest becomes
// debt of the leaf. n is the caller's, to be stored. It returns the amount charged: less only where
// the total of all debts would overflow.
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

// overshoot charges what a lien does not hold to other buckets, as far as possible, to be posted.
func (l *Ledger) overshoot(n *Lien, amount Credits, bill Bill) (got Credits) {
	from, got := l.sources(n, l.above(n.payer()), amount)
	left := amount
	for _, f := range from {
		left -= f.amount
		b := l.ownBucket(f.bucket)
		b.Avail, b.Spent = b.Avail-f.amount, b.Spent+f.amount
		l.noteBucket(b)
		l.bookBy(Overshoot, inBucket(b.ID), BookAccount{Kind: Revenue}, f.amount, Justification{For: l.purpose(n), Bill: bill.leaves(left)})
		n.Parts = append(n.Parts, Part{Bucket: b.ID, Spent: f.amount})
	}
	return got
}

// owe makes consumption that was not paid a debt of the leaf, to be posted.
func (l *Ledger) owe(n *Lien, amount Credits, bill *Bill) {
	if amount == 0 {
		return
	}
	l.total += amount
	l.bookBy(Overshoot, BookAccount{Kind: Owed, Node: n.payer()}, BookAccount{Kind: Revenue}, amount, Justification{Bill: bill})
	n.Parts = append(n.Parts, Part{Spent: amount})
}

// capture turns held amounts of the parts into spent ones, in order; left is what they could not
// pay.
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

// ChargeAccrued charges the increase of the counters since the last charge. The lien stays open.
func (l *Ledger) ChargeAccrued(s Stamp, id LienID) (Receipt, error) {
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

// catchUp charges the difference between the counters and what was charged, or refunds it when a
// late proof of the end lowers it.
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
	Total       int64 // GPU-milliseconds of the last segment; -1: by its counter
	Provisional bool  // the end was lost: the last counter is all that is known
}

// Settle charges what is due, releases the rest in reverse order to its buckets, and ends the lien.
// A lien that never ran is released. It refuses a settled one.
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

// total sets the last segment's GPU-milliseconds, within what is possible.
func (n *Lien) total(gpuMS int64, now cluster.Instant) {
	if last := len(n.Segments) - 1; last >= 0 && gpuMS >= 0 {
		g := &n.Segments[last]
		g.Base, g.Count = 0, 0
		g.Excess = g.count(gpuMS, n.most(last, now))
	}
}

// Amend corrects a provisional settlement by a late report, within 24 h, and makes it final: an
// increase is charged to the same buckets as far as possible, a decrease is refunded. -1 makes it
// final unchanged, at any time.
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

// again puts back into a lien what its own buckets still have and may pay, in their order.
func (l *Ledger) again(n *Lien, amount Credits) {
	l.about.of(n)
	cause := l.purpose(n)
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

// Refund is a refund of an attempt's spending.
type Refund struct {
	Lien      LienID
	Amount    Credits
	Corrects  uint64          // the entry that it is about; 0 for none
	Effective cluster.Instant // the time it is about; 0: now
}

// Refund returns credits in reverse order to the exact buckets, debt first; credits of a bucket
// that is over expire at once. It is limited to what was spent and not refunded.
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

// unspend returns the effect of a refund on recent spending: the latest spending is refunded first,
// so the current day and month change only by what was spent in them, and not at all if the refund
// is about an earlier time.
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

// forgive refunds an amount that was charged as debt: an open debt is reduced, and a debt that was repaid
// meanwhile becomes a bucket of the debtor.
func (l *Ledger) forgive(n *Lien, x Credits, bill *Bill) {
	leaf, _ := l.nodes.Get(n.payer())
	owed := min(x, leaf.Owes)
	l.bookBy(Refunded, BookAccount{Kind: Revenue}, BookAccount{Kind: Owed, Node: n.payer()}, owed, Justification{Bill: bill.leaves(bill.Left + x - owed)})
	l.post(n.payer(), change{debt: -owed})
	if rest := x - owed; rest > 0 {
		b := l.mint(Grant{Owner: n.Chain, Class: RefundClass, Amount: rest, Effective: l.now})
		l.bookBy(Refunded, BookAccount{Kind: Revenue}, inBucket(b.ID), rest, Justification{Terms: &b.Grant, Bill: bill})
		l.post(n.payer(), change{spent: -rest}) // paid at a time that no lien records
		l.repay(b)
		l.noteBucket(b)
	}
}

// Correct charges an attempt beyond its counters, from its account's buckets; the
// opposite is a Refund.
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

// Accrued returns the uncharged amount of an open lien's counters.
func (n *Lien) Accrued() Credits {
	_, spent, _ := n.sum()
	return max(0, n.Due()-(spent-n.Adjusted))
}

// OldestProvisional returns the lien that was settled provisionally first, and when. O(log n).
func (l *Ledger) OldestProvisional() (LienID, cluster.Instant, bool) {
	k, _, found := l.ended.First()
	return k.lien, k.at, found && !k.final
}

// EndedLiens returns the number of remembered liens that are not open. O(1).
func (l *Ledger) EndedLiens() int { return l.ended.Len() }

// Provisionals returns the liens that were settled provisionally before an instant, oldest first.
// O(those).
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
