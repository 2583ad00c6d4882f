package accounting

import (
	"fmt"
	"slices"

	"github.com/greylag/greylag/internal/codec"
)

// Move attaches accounts to other parents, all at once: each path begins with an account and
// continues with its new ancestors. The held, spent and owed amounts of an account and its
// descendants, and the spending of the current day and month, count for the new ancestors and no
// longer for the old ones. No money moves, and no budget refuses. Accounts unknown to the ledger
// need no move. Liens name only the payer, and need no change. O(accounts × depth).
func (l *Ledger) Move(s Stamp, chains ...PayerPath) (Receipt, error) {
	print := printOf(l, s, opMove, &chains, func(c *codec.Coder, x *[]PayerPath) {
		for i := range *x {
			chainFields(c, &(*x)[i])
		}
	})
	return l.once(s, print, func() (Receipt, error) {
		if err := l.movable(chains); err != nil {
			return Receipt{}, err
		}
		var moved []PayerPath
		for _, c := range chains {
			if was, found := l.nodes.Get(c[0]); found && was.Parent != c.parent(0) {
				moved = append(moved, c)
			}
		}
		for _, c := range moved { // detach first, so that no account is ever its own ancestor
			n := l.ownNode(c[0])
			l.shift(n.Parent, n, -1)
			n.Parent = ""
		}
		for _, c := range moved {
			l.open(c[1:])
			n := l.ownNode(c[0])
			n.Parent = c.parent(0)
			l.noteNode(c[0], n)
			l.shift(n.Parent, n, 1)
		}
		return Receipt{}, nil
	})
}

// movable checks that the accounts form a tree after all moves: each path matches the others and
// the records.
func (l *Ledger) movable(chains []PayerPath) error {
	parents := make(map[PayerID]PayerID, len(chains))
	for _, c := range chains {
		if len(c) == 0 || len(c) > maxChain {
			return fmt.Errorf("%w: where the account is to hang", ErrInvalid)
		}
		parents[c[0]] = c.parent(0)
	}
	for _, c := range chains {
		for i, id := range c {
			if id == "" || len(id) > maxNode || slices.Contains(c[:i], id) {
				return fmt.Errorf("%w: account %s is above itself or has no name", ErrInvalid, c[0])
			}
			parent, moves := parents[id]
			if n, found := l.nodes.Get(id); found && !moves {
				parent = n.Parent
			} else if !found && !moves {
				continue
			}
			if parent != c.parent(i) {
				return fmt.Errorf("%w: %s is below %q", ErrParent, id, parent)
			}
		}
	}
	return nil
}

// shift adds the sums of one payer to another and its ancestors, or with sign -1 subtracts them.
func (l *Ledger) shift(to PayerID, of *Payer, sign Credits) {
	recent := of.Recent
	recent.turn(l.today, l.month)
	for id := to; id != ""; {
		n := l.ownNode(id)
		n.turn(l.today, l.month)
		n.Held, n.Spent, n.Debt = n.Held+sign*of.Held, n.Spent+sign*of.Spent, n.Debt+sign*of.Debt
		n.Day, n.Month = n.Day+sign*recent.Day, n.Month+sign*recent.Month
		l.noteNode(id, n)
		id = n.Parent
	}
}

// Withdraw cancels the lien of an attempt that never ran: everything returns to its buckets and the
// ID may be used again, for example when the request changes.
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
