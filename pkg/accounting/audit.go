package accounting

import (
	"errors"
	"fmt"

	"github.com/greylag/greylag/pkg/cluster"
)

// ErrJournal is wrapped by every fault of a journal.
var ErrJournal = errors.New("journal is not whole")

// Audit recomputes a journal from its first entry. The zero Audit is ready.
type Audit struct {
	seq      uint64
	at       cluster.Instant
	head     Hash
	balances map[BookAccount]Credits
}

// Add takes the next entry. The first that is wrong is named by its number: a gap, a
// time that goes back, a broken chain, or an account that paid what it did not have.
func (a *Audit) Add(e *Entry) error {
	fault := func(what string) error { return fmt.Errorf("%w: entry %d: %s", ErrJournal, a.seq+1, what) }
	switch {
	case e.Seq != a.seq+1:
		return fault(fmt.Sprintf("it says that it is number %d", e.Seq))
	case e.Prev != a.head:
		return fault("it does not follow the one before")
	case e.Sum() != e.Hash:
		return fault("its hash is of something else")
	case e.At < a.at:
		return fault("its time is before that of the one before")
	case e.Amount <= 0 || e.Amount > maxBucket:
		return fault("its amount is impossible")
	case e.Debit == e.Credit:
		return fault("it moves nothing")
	}
	if a.balances == nil {
		a.balances = map[BookAccount]Credits{}
	}
	if stored := e.Debit.Kind == InBucket || e.Debit.Kind == HeldFrom; stored && a.balances[e.Debit] < e.Amount {
		return fault(fmt.Sprintf("%s of bucket %d has %s and pays %s", e.Debit.Kind, e.Debit.Bucket, a.balances[e.Debit], e.Amount))
	}
	if e.Credit.Kind == Owed && a.balances[e.Credit]+e.Amount > 0 {
		return fault(fmt.Sprintf("account %s gets back more than it owes", e.Credit.Node))
	}
	a.balances[e.Debit] -= e.Amount
	a.balances[e.Credit] += e.Amount
	a.seq, a.at, a.head = e.Seq, e.At, e.Hash
	return nil
}

// Balance is what a book account has after the entries so far.
func (a *Audit) Balance(b BookAccount) Credits { return a.balances[b] }

// Against compares the journal with a ledger: its head, every bucket and every debt.
func (a *Audit) Against(l *Ledger) error {
	if a.seq != l.seq || a.head != l.head {
		return fmt.Errorf("%w: it ends at entry %d, the ledger at %d", ErrJournal, a.seq, l.seq)
	}
	for id, b := range l.buckets.All() {
		if avail, held := a.balances[inBucket(id)], a.balances[heldFrom(id)]; avail != b.Avail || held != b.Held {
			return fmt.Errorf("%w: bucket %d has %s and holds %s, the journal says %s and %s", ErrJournal, id, b.Avail, b.Held, avail, held)
		}
	}
	for id, n := range l.nodes.All() {
		if owed := -a.balances[BookAccount{Kind: Owed, Node: id}]; owed != n.Owes {
			return fmt.Errorf("%w: account %s owes %s, the journal says %s", ErrJournal, id, n.Owes, owed)
		}
	}
	return nil
}
