package accounting

import (
	"errors"
	"fmt"
)

// ErrInvariant is wrapped by every error of Check.
var ErrInvariant = errors.New("ledger is not sound")

// Check recomputes the invariants of a ledger: the identity of every bucket, the held amounts of
// buckets, liens and accounts, the sums of the account tree, and refunds within what was spent. It
// returns the first violation. O(everything).
func (l *Ledger) Check() error {
	held := map[BucketID]Credits{}
	own := map[PayerID]Credits{}
	for id, n := range l.liens.All() {
		sum, err := n.sound()
		if err != nil {
			return err
		}
		for _, p := range n.Parts {
			held[p.Bucket] += p.Held
		}
		if l.ended.Has(n.endedKey()) != (n.State != Open) {
			return fmt.Errorf("%w: lien %s among those that ended", ErrInvariant, id)
		}
		own[n.payer()] += sum
	}
	if err := l.checkBuckets(held); err != nil {
		return err
	}
	return l.checkNodes(own)
}

func (l *Ledger) checkBuckets(held map[BucketID]Credits) error {
	inOrder := 0
	for id, b := range l.buckets.All() {
		if err := b.sound(); err != nil {
			return err
		}
		if held[id] != b.Held {
			return fmt.Errorf("%w: liens hold %s of bucket %d, which says %s", ErrInvariant, held[id], id, b.Held)
		}
		if l.spend.Has(b.spendKey()) != (b.Avail > 0) {
			return fmt.Errorf("%w: bucket %d in the order of spending", ErrInvariant, id)
		}
		if b.Avail > 0 {
			inOrder++
		}
	}
	if inOrder != l.spend.Len() {
		return fmt.Errorf("%w: %d buckets have something, %d are in the order of spending", ErrInvariant, inOrder, l.spend.Len())
	}
	return nil
}

func (l *Ledger) checkNodes(held map[PayerID]Credits) error {
	type sums struct{ held, owes, spent Credits }
	lately := map[PayerID]Recent{}
	late := func(id PayerID, r Recent) {
		r.turn(l.today, l.month)
		lately[id] = Recent{l.today, lately[id].Day + r.Day, lately[id].Month + r.Month}
	}
	for _, n := range l.liens.All() {
		late(n.payer(), n.Recent)
	}
	below := map[PayerID]sums{}
	for id, n := range l.nodes.All() {
		if err := n.sound(id); err != nil {
			return err
		}
		for _, up := range l.above(id) {
			s := below[up]
			s.held, s.owes = s.held+held[id], s.owes+n.Owes
			s.spent += n.Own - held[id]
			below[up] = s
		}
		late(n.Parent, n.Recent)
		if l.debtors.Has(id) != (n.Owes > 0) {
			return fmt.Errorf("%w: account %s among the debtors", ErrInvariant, id)
		}
	}
	for id, n := range l.nodes.All() {
		if r := lately[id]; n.in(Daily, l.now) < r.Day || n.in(Monthly, l.now) < r.Month {
			return fmt.Errorf("%w: account %s: of %v lately, those below spent %v", ErrInvariant, id, n.Recent, r)
		}
		if s := below[id]; s != (sums{n.Held, n.Debt, n.Spent}) {
			return fmt.Errorf("%w: account %s: held, debt and spent are %v, those below sum to %v", ErrInvariant, id, sums{n.Held, n.Debt, n.Spent}, s)
		}
	}
	return nil
}

// The following functions check one record.

func (n *Lien) sound() (held Credits, err error) {
	for _, p := range n.Parts {
		if p.Held < 0 || p.Spent < 0 || p.Refunded < 0 || p.Refunded > p.Spent || p.Bucket == 0 && p.Held != 0 {
			return 0, fmt.Errorf("%w: lien %s: part of bucket %d: held %s, spent %s, refunded %s", ErrInvariant, n.ID, p.Bucket, p.Held, p.Spent, p.Refunded)
		}
		held += p.Held
	}
	if n.State != Open && held != 0 {
		return 0, fmt.Errorf("%w: lien %s ended and holds %s", ErrInvariant, n.ID, held)
	}
	return held, nil
}

func (b *Bucket) sound() error {
	if min(b.Avail, b.Held, b.Spent, b.Expired, b.Void) < 0 {
		return fmt.Errorf("%w: bucket %d has a part below zero", ErrInvariant, b.ID)
	}
	if sum := b.Avail + b.Held + b.Spent + b.Expired + b.Void; sum != b.Amount {
		return fmt.Errorf("%w: bucket %d of %s has parts of %s", ErrInvariant, b.ID, b.Amount, sum)
	}
	return nil
}

func (n *Payer) sound(id PayerID) error {
	if min(n.Held, n.Debt, n.Owes, n.Spent, n.Day, n.Month) < 0 {
		return fmt.Errorf("%w: account %s has a sum below zero", ErrInvariant, id)
	}
	return nil
}
