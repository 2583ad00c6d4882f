package accounting

import (
	"fmt"
	"slices"

	"github.com/greylag/greylag/pkg/cluster"
)

// Move hangs an account below others: chain begins with the account. What it and those
// below it hold, spent and owe counts for the new ancestors and no longer for the old
// ones; no money moves, and no budget refuses. What was spent in the
// present window of a budget stays where it was spent. Chains of open liens follow, so that what
// is released later is taken from where it counts now. An account that the ledger does
// not know needs no moving. O(liens) when it has liens, else O(depth).
func (l *Ledger) Move(s Stamp, chain Chain) (Receipt, error) {
	return l.once(s, printOf(l, s, opMove, &chain, chainFields), func() (Receipt, error) {
		if len(chain) == 0 || slices.Contains(chain[1:], chain[0]) || len(chain) > cluster.MaxAccountDepth+1 {
			return Receipt{}, fmt.Errorf("%w: where the account is to hang", ErrInvalid)
		}
		was, found := l.nodes.Get(chain[0])
		if !found || was.Parent == chain.parent(0) {
			return Receipt{}, nil
		}
		if err := l.known(chain[1:]); len(chain) > 1 && err != nil {
			return Receipt{}, err
		}
		old := l.above(chain[0])
		if slices.Contains(old[1:], chain[0]) {
			return Receipt{}, fmt.Errorf("%w: account %s is above itself", ErrInvalid, chain[0])
		}
		if l.depthBelow(chain[0])+len(chain) > cluster.MaxAccountDepth+1 {
			return Receipt{}, fmt.Errorf("%w: accounts below %s would be more than %d deep", ErrInvalid, chain[0], cluster.MaxAccountDepth+1)
		}
		l.open(chain[1:])
		l.shift(old[1:], was, -1)
		l.shift(chain[1:], was, 1)
		n := l.ownNode(chain[0])
		n.Parent = chain.parent(0)
		l.noteNode(chain[0], n)
		l.rehang(chain)
		return Receipt{}, nil
	})
}

// depthBelow is how many accounts are below one, one below the other. O(accounts).
func (l *Ledger) depthBelow(id NodeID) (deepest int) {
	for other := range l.nodes.All() {
		deepest = max(deepest, slices.Index(l.above(other), id))
	}
	return deepest
}

// shift adds what one node sums up to those above it, or with sign -1 takes it away.
func (l *Ledger) shift(above Chain, of *Node, sign Credits) {
	for _, id := range above {
		n := l.ownNode(id)
		n.Held, n.Spent, n.Debt = n.Held+sign*of.Held, n.Spent+sign*of.Spent, n.Debt+sign*of.Debt
		l.noteNode(id, n)
	}
}

// rehang gives every lien at or below the first account of chain its new
// ancestors.
func (l *Ledger) rehang(chain Chain) {
	hung := func(c Chain) (Chain, bool) {
		at := slices.Index(c, chain[0])
		if at < 0 {
			return nil, false
		}
		return slices.Concat(c[:at], chain), true
	}
	liens := l.liens.Clone()
	for _, was := range liens.All() {
		if c, below := hung(was.Chain); below {
			n := *was
			n.Chain, n.terms = c, 0
			l.putLien(&n)
		}
	}
}

// Withdraw takes back a lien of an attempt that never ran: everything returns to its
// buckets and the name may be used again, as when what was asked for changes.
func (l *Ledger) Withdraw(s Stamp, id LienID) (Receipt, error) {
	return l.once(s, printOf(l, s, opWithdraw, &id, lienID), func() (Receipt, error) {
		n, err := l.openLien(id)
		if err != nil {
			return Receipt{}, err
		}
		held, spent, _ := n.sum()
		if len(n.Segments) > 0 || spent > 0 {
			return Receipt{}, fmt.Errorf("%w: %s ran or was charged", ErrLien, id)
		}
		r := Receipt{Lien: id, Released: held}
		l.release(&n, r.Released)
		l.liens.Delete(id)
		l.digest -= n.hashed
		return r, nil
	})
}
