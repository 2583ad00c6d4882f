package accounting

import (
	"errors"
	"fmt"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/cluster"
)

// ErrJournal is wrapped by every error in a journal.
var ErrJournal = errors.New("journal is not whole")

// Audit recomputes a journal from its first entry: the hash chain, the balance of every bucket,
// lien and account, and from the justification of each entry whether the payer was allowed to pay
// and what each charge comes to. It shares no state with the ledger that wrote the journal. The
// zero Audit is ready to use. Memory: buckets, accounts and open liens.
type Audit struct {
	seq     uint64
	at      cluster.Instant
	head    Hash
	buckets map[BucketID]*auditedBucket
	nodes   map[PayerID]*auditedNode
	liens   map[LienID]*auditedLien // those with a balance, or that may still be charged
	puts    map[putKey]Credits      // amounts in liens from buckets whose scope limits the amount per lien
	outside map[AccountKind]Credits
	owed    Credits // ever
	owes    owing
	prices  *Ledger     // nil: prices are not checked
	coder   codec.Coder // reused for hashing
}

// auditedBucket is a bucket as the journal describes it.
type auditedBucket struct {
	amount, avail, held, spent, expired, void Credits
	terms                                     *Grant // nil when the journal does not name it
}

// auditedNode is the own part of an account as the journal describes it.
type auditedNode struct{ held, spent, owes Credits }

// Add takes the next entry. An error names the first wrong entry by its number: a gap, a time that
// goes back, a broken chain, a movement that does not match its kind, or one out of an empty
// balance. After an error the audit has ended.
func (a *Audit) Add(e *Entry) error {
	fault := func(what string) error { return fmt.Errorf("%w: entry %d: %s", ErrJournal, a.seq+1, what) }
	switch {
	case e.Seq != a.seq+1:
		return fault(fmt.Sprintf("its number is %d", e.Seq))
	case e.Prev != a.head:
		return fault("it does not follow the one before")
	case e.sum(&a.coder) != e.Hash:
		return fault("its hash is of something else")
	case e.At < a.at:
		return fault("its time is before that of the one before")
	case e.Effective > e.At:
		return fault("it is about a time to come")
	case e.Amount <= 0 || e.Amount > maxTotal:
		return fault("its amount is impossible")
	case !e.formed():
		return fault(fmt.Sprintf("a %s does not go from %s to %s", e.Kind, e.Debit.Kind, e.Credit.Kind))
	}
	if a.buckets == nil {
		a.buckets, a.nodes, a.liens = map[BucketID]*auditedBucket{}, map[PayerID]*auditedNode{}, map[LienID]*auditedLien{}
		a.outside, a.puts = map[AccountKind]Credits{}, map[putKey]Credits{}
	}
	if what := a.move(e); what != "" {
		return fault(what)
	}
	a.seq, a.at, a.head = e.Seq, e.At, e.Hash
	return nil
}

// EntryChain checks only that entries are consecutive. Seq and Head are those of the last entry, or
// of the one before the first. It is for a journal whose beginning is lost.
type EntryChain struct {
	Seq  uint64
	Head Hash

	coder codec.Coder // reused for hashing
}

// Add takes the next entry.
func (c *EntryChain) Add(e *Entry) error {
	switch {
	case e.Seq != c.Seq+1:
		return fmt.Errorf("%w: entry %d: its number is %d", ErrJournal, c.Seq+1, e.Seq)
	case e.Prev != c.Head:
		return fmt.Errorf("%w: entry %d: it does not follow the previous entry", ErrJournal, e.Seq)
	case e.sum(&c.coder) != e.Hash:
		return fmt.Errorf("%w: entry %d: hash mismatch", ErrJournal, e.Seq)
	}
	c.Seq, c.Head = e.Seq, e.Hash
	return nil
}

// formed reports whether the accounts match the entry's kind.
func (e *Entry) formed() bool {
	from, to := e.Debit.Kind, e.Credit.Kind
	same := e.Debit.Bucket == e.Credit.Bucket
	switch e.Kind {
	case Granted:
		return (from == External || from == Promotion) && to == InBucket
	case Repaid:
		return from == InBucket && to == Owed && e.Credit.Node == e.Node
	case SetAside:
		return from == InBucket && to == HeldFrom && same
	case Captured:
		return from == HeldFrom && to == Revenue
	case Overshoot:
		return (from == InBucket || from == Owed && e.Debit.Node == e.Node) && to == Revenue
	case Released:
		return from == HeldFrom && to == InBucket && same
	case Refunded:
		return from == Revenue && (to == InBucket || to == Owed && e.Credit.Node == e.Node)
	case Expired:
		return from == InBucket && to == Breakage
	case Taken:
		return from == InBucket && to == Voided
	}
	return false
}

// move applies an entry. It returns what is wrong, or "".
func (a *Audit) move(e *Entry) string {
	b, n := a.bucketOf(e), a.node(e.Node)
	x := e.Amount
	switch e.Kind {
	case Granted:
		if b.amount != 0 {
			return fmt.Sprintf("bucket %d is granted again", e.Credit.Bucket)
		}
		b.amount, b.avail = x, x
	case Repaid:
		b.avail, b.spent, n.spent, n.owes = b.avail-x, b.spent+x, n.spent+x, n.owes-x
	case SetAside:
		b.avail, b.held, n.held = b.avail-x, b.held+x, n.held+x
	case Captured:
		b.held, b.spent, n.held, n.spent = b.held-x, b.spent+x, n.held-x, n.spent+x
	case Released:
		b.held, b.avail, n.held = b.held-x, b.avail+x, n.held-x
	case Overshoot:
		if e.Debit.Kind == Owed {
			n.owes, a.owed = n.owes+x, a.owed+x
		} else {
			b.avail, b.spent, n.spent = b.avail-x, b.spent+x, n.spent+x
		}
	case Refunded:
		refunded(e, b, n)
	case Expired:
		b.avail, b.expired = b.avail-x, b.expired+x
	case Taken:
		b.avail, b.void = b.avail-x, b.void+x
	}
	a.outside[e.Debit.Kind] -= x
	a.outside[e.Credit.Kind] += x
	lien := a.lien(e)
	what := a.below(e, b, n, lien)
	if what == "" {
		what = a.checkEntry(e, b)
	}
	if lien.held == 0 && (lien.counted == 0 || lien.final) {
		delete(a.liens, e.Lien)
	}
	return what
}

// lien applies an entry's effect on a lien.
func (a *Audit) lien(e *Entry) *auditedLien {
	n := a.liens[e.Lien]
	if n == nil {
		if n = new(auditedLien); e.Lien.Job == 0 {
			return n
		}
		a.liens[e.Lien] = n
	}
	x := e.Amount
	switch e.Kind {
	case SetAside:
		n.held += x
		if e.For != nil {
			n.quotedBy(e)
		}
	case Captured, Released:
		n.held -= x
	}
	if e.Bill != nil && e.Bill.Kind == Counted {
		if n.counted += x; e.Kind == Refunded {
			n.counted -= 2 * x
		}
	}
	a.put(e)
	return n
}

// put records the amount in a lien from a bucket that limits it.
func (a *Audit) put(e *Entry) {
	id := max(e.Debit.Bucket, e.Credit.Bucket)
	b := a.buckets[id]
	if b == nil || b.terms == nil || b.terms.Scope.PerJob == 0 && b.terms.Scope.Permille == 0 {
		return
	}
	at := putKey{e.Lien, id}
	switch e.Kind {
	case SetAside, Overshoot:
		a.puts[at] += e.Amount
	case Released, Refunded:
		if a.puts[at] -= e.Amount; a.puts[at] == 0 {
			delete(a.puts, at)
		}
	}
}

// refunded applies a refund: of a debt, into the bucket that paid, or into a new bucket when the
// debt had been repaid.
func refunded(e *Entry, b *auditedBucket, n *auditedNode) {
	x := e.Amount
	switch {
	case e.Credit.Kind == Owed:
		n.owes -= x
	case b.amount == 0:
		b.amount, b.avail, n.spent = x, x, n.spent-x
	default:
		b.spent, b.avail, n.spent = b.spent-x, b.avail+x, n.spent-x
	}
}

// below names the balance that went below zero, if any did.
func (a *Audit) below(e *Entry, b *auditedBucket, n *auditedNode, lien *auditedLien) string {
	switch {
	case b.amount == 0 && (e.Debit.Bucket != 0 || e.Credit.Bucket != 0):
		return fmt.Sprintf("bucket %d was never granted", max(e.Debit.Bucket, e.Credit.Bucket))
	case b.avail < 0 || b.held < 0 || b.spent < 0:
		return fmt.Sprintf("bucket %d pays %s, more than it has", max(e.Debit.Bucket, e.Credit.Bucket), e.Amount)
	case lien.held < 0:
		return fmt.Sprintf("lien %s gives %s, more than it holds", e.Lien, e.Amount)
	case n.owes < 0:
		return fmt.Sprintf("account %s gets back more than it owes", e.Node)
	case n.held < 0 || n.spent < 0:
		return fmt.Sprintf("account %s gets back %s, more than it held or spent", e.Node, e.Amount)
	}
	return ""
}

// bucketOf returns the entry's bucket, or a discarded one if it has none.
func (a *Audit) bucketOf(e *Entry) *auditedBucket {
	id := max(e.Debit.Bucket, e.Credit.Bucket)
	b := a.buckets[id]
	if b == nil {
		b = new(auditedBucket)
		if id != 0 {
			a.buckets[id] = b
		}
	}
	return b
}

func (a *Audit) node(id PayerID) *auditedNode {
	n := a.nodes[id]
	if n == nil {
		n = new(auditedNode)
		a.nodes[id] = n
	}
	return n
}

// CompareWith compares the journal with a ledger: its head, every bucket, every lien with a balance,
// and every account's own part. It returns the first difference. O(ledger).
func (a *Audit) CompareWith(l *Ledger) error {
	if a.seq != l.seq || a.head != l.head {
		return fmt.Errorf("%w: it ends at entry %d, the ledger at %d", ErrJournal, a.seq, l.seq)
	}
	if len(a.buckets) != l.buckets.Len() {
		return fmt.Errorf("%w: it has %d buckets, the ledger %d", ErrJournal, len(a.buckets), l.buckets.Len())
	}
	for id, b := range l.buckets.All() {
		has := auditedBucket{amount: b.Amount, avail: b.Avail, held: b.Held, spent: b.Spent, expired: b.Expired, void: b.Void}
		says := a.buckets[id]
		if says != nil && says.terms != nil && says.terms.hash() == b.Grant.hash() {
			has.terms = says.terms
		}
		if says == nil || *says != has {
			return fmt.Errorf("%w: bucket %d has %v, the journal says %v", ErrJournal, id, has, says)
		}
	}
	for id, n := range l.nodes.All() {
		var says auditedNode
		if known := a.nodes[id]; known != nil {
			says = *known
		}
		if says.owes != n.Owes || says.held+says.spent != n.Own {
			return fmt.Errorf("%w: account %s holds and spent %s and owes %s, the journal says %s and %s", ErrJournal, id, n.Own, n.Owes, says.held+says.spent, says.owes)
		}
	}
	holding := 0
	for id, n := range l.liens.All() {
		held, _, _ := n.sum()
		if says := a.holds(id); held != says {
			return fmt.Errorf("%w: lien %s holds %s, the journal says %s", ErrJournal, id, held, says)
		}
		if held > 0 {
			holding++
		}
	}
	for id := range a.liens {
		if a.holds(id) > 0 {
			holding--
		}
	}
	if holding != 0 {
		return fmt.Errorf("%w: the ledger has %d liens more that hold something", ErrJournal, holding)
	}
	if a.owes.left > 0 && !a.full() {
		return fmt.Errorf("%w: %s of what lien %s is charged are missing", ErrJournal, a.owes.left, a.owes.lien)
	}
	return nil
}

func (a *Audit) holds(id LienID) Credits {
	if n := a.liens[id]; n != nil {
		return n.held
	}
	return 0
}
