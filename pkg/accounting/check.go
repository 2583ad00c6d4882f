package accounting

import (
	"errors"
	"fmt"
)

// ErrInvariant is wrapped by what Check finds.
var ErrInvariant = errors.New("ledger is not sound")

// Check recomputes what must always hold of a ledger: the identity of every bucket,
// what is held by buckets, liens and accounts, the sums of the tree, and refunds within
// what was spent. It answers the first breach. O(everything).
func (l *Ledger) Check() error {
	held := map[BucketID]Credits{}
	own := map[NodeID]Credits{}
	for id, n := range l.liens.All() {
		var sum Credits
		for _, p := range n.Parts {
			if p.Held < 0 || p.Spent < 0 || p.Refunded < 0 || p.Refunded > p.Spent || p.Bucket == 0 && p.Held != 0 {
				return fmt.Errorf("%w: lien %s: part of bucket %d: held %s, spent %s, refunded %s", ErrInvariant, id, p.Bucket, p.Held, p.Spent, p.Refunded)
			}
			held[p.Bucket] += p.Held
			sum += p.Held
		}
		if n.State != Open && sum != 0 {
			return fmt.Errorf("%w: lien %s ended and holds %s", ErrInvariant, id, sum)
		}
		own[n.Chain[0]] += sum
	}
	if err := l.checkBuckets(held); err != nil {
		return err
	}
	return l.checkNodes(own)
}

func (l *Ledger) checkBuckets(held map[BucketID]Credits) error {
	inOrder := 0
	for id, b := range l.buckets.All() {
		if b.Avail < 0 || b.Held < 0 || b.Spent < 0 || b.Expired < 0 || b.Void < 0 {
			return fmt.Errorf("%w: bucket %d has a part below zero", ErrInvariant, id)
		}
		if sum := b.Avail + b.Held + b.Spent + b.Expired + b.Void; sum != b.Amount {
			return fmt.Errorf("%w: bucket %d of %s has parts of %s", ErrInvariant, id, b.Amount, sum)
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

func (l *Ledger) checkNodes(held map[NodeID]Credits) error {
	type sums struct{ held, owes, spent Credits }
	below := map[NodeID]sums{}
	for id, n := range l.nodes.All() {
		if n.Held < 0 || n.Debt < 0 || n.Owes < 0 || n.Spent < 0 || n.Period < 0 {
			return fmt.Errorf("%w: account %s has a sum below zero", ErrInvariant, id)
		}
		for _, up := range l.above(id) {
			s := below[up]
			s.held, s.owes = s.held+held[id], s.owes+n.Owes
			s.spent += n.Own - held[id]
			below[up] = s
		}
		if l.debtors.Has(id) != (n.Owes > 0) {
			return fmt.Errorf("%w: account %s among the debtors", ErrInvariant, id)
		}
	}
	for id, n := range l.nodes.All() {
		if s := below[id]; s != (sums{n.Held, n.Debt, n.Spent}) {
			return fmt.Errorf("%w: account %s: held, debt and spent are %v, those below sum to %v", ErrInvariant, id, sums{n.Held, n.Debt, n.Spent}, s)
		}
	}
	return nil
}
