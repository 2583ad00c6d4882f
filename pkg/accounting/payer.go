package accounting

import (
	"fmt"
	"time"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/cluster"
)

// PayerID names an organisation, a project or a user; by convention "org", "org/project" and
// "org/project/user".
type PayerID string

// PayerPath is a payer and its ancestors, the leaf first.
type PayerPath []PayerID

// Window is the period of a budget.
type Window uint8

// The windows, in UTC.
const (
	Ever Window = iota
	Daily
	Monthly
)

// Budget limits what a payer and all its descendants may hold, spend and owe.
type Budget struct {
	Limit  Credits // 0: none
	Hard   bool    // refuse; else warn
	Window Window
}

// Payer holds one account's sums, which include those of its descendants.
type Payer struct {
	Parent PayerID // "" at the top
	Budget Budget
	Held   Credits
	Spent  Credits // paid from buckets, in total
	Debt   Credits // consumed and not paid
	Owes   Credits // the payer's own part of Debt
	Own    Credits // the payer's own part of Held and Spent
	Recent         // part of Spent

	epoch  uint64 // of the ledger, when it was stored
	hashed uint64 // in the digest
}

// Recent is the recent spending, net of refunds.
type Recent struct {
	Start cluster.Instant // the day of the last change
	Day   Credits         // in that day
	Month Credits         // in the month of that day
}

// turn drops spending before the current day and month.
func (r *Recent) turn(day, month cluster.Instant) {
	if r.Start < day {
		r.Start, r.Day, r.Month = day, 0, r.in(Monthly, month)
	}
}

// in returns the spending of the window that contains an instant.
func (r *Recent) in(w Window, now cluster.Instant) Credits {
	switch {
	case w == Daily && r.Start == Daily.start(now):
		return r.Day
	case w == Monthly && r.Start >= Monthly.start(now):
		return r.Month
	}
	return 0
}

// Used returns what counts against the budget at an instant: held and owed amounts, and spending in
// the budget's window. A refund lowers it only if it was spent in that window: a refund of
// yesterday's spending adds nothing to today's budget.
func (n *Payer) Used(now cluster.Instant) Credits {
	spent := n.Spent
	if w := n.Budget.Window; w != Ever {
		spent = n.in(w, now)
	}
	return n.Held + spent + n.Debt
}

// start returns the beginning of the window that contains an instant.
func (w Window) start(now cluster.Instant) cluster.Instant {
	y, m, d := now.Time().Date()
	switch w {
	case Daily:
		return cluster.InstantOf(time.Date(y, m, d, 0, 0, 0, 0, time.UTC))
	case Monthly:
		return cluster.InstantOf(time.Date(y, m, 1, 0, 0, 0, 0, time.UTC))
	}
	return 0
}

// Payer returns an account's sums; the zero Payer if it has none yet. O(log n).
func (l *Ledger) Payer(id PayerID) Payer {
	if n, found := l.nodes.Get(id); found {
		return *n
	}
	return Payer{}
}

// maxChain bounds a path: a user, the accounts, and the root where it is defined.
const maxChain = cluster.MaxAccountDepth + 2

// known checks a path against the recorded parents.
func (l *Ledger) known(c PayerPath) error {
	if len(c) == 0 || len(c) > maxChain {
		return fmt.Errorf("%w: a chain has 1 to %d accounts", ErrInvalid, maxChain)
	}
	for i, id := range c {
		if id == "" || len(id) > maxNode {
			return fmt.Errorf("%w: an account has a name of 1 to %d bytes", ErrInvalid, maxNode)
		}
		for _, other := range c[:i] {
			if other == id {
				return fmt.Errorf("%w: account %s is above itself", ErrInvalid, id)
			}
		}
		if n, found := l.nodes.Get(id); found && n.Parent != c.parent(i) {
			return fmt.Errorf("%w: %s is below %q", ErrParent, id, n.Parent)
		}
	}
	return nil
}

func (c PayerPath) parent(i int) PayerID {
	if i+1 < len(c) {
		return c[i+1]
	}
	return ""
}

// open creates the missing payers of a path.
func (l *Ledger) open(c PayerPath) {
	if len(c) == 0 || l.nodes.Has(c[0]) {
		return // and so do its ancestors
	}
	for i, id := range c {
		if !l.nodes.Has(id) {
			l.putNode(id, &Payer{Parent: c.parent(i)})
		}
	}
}

// change is a movement between a payer's sums; day and month are the parts of spent in the current
// day and month.
type change struct{ held, spent, debt, day, month Credits }

// post applies a change to an account and its ancestors, and to its own part.
func (l *Ledger) post(leaf PayerID, d change) {
	if d.held == 0 && d.spent == 0 && d.debt == 0 {
		return
	}
	for id := leaf; id != ""; {
		n := l.ownNode(id)
		n.Held, n.Spent, n.Debt = n.Held+d.held, n.Spent+d.spent, n.Debt+d.debt
		if d.day != 0 || d.month != 0 {
			n.turn(l.today, l.month)
			n.Day, n.Month = n.Day+d.day, n.Month+d.month
		}
		if id == leaf {
			n.Own += d.held + d.spent
			n.Owes += d.debt
			if n.Owes > 0 {
				l.debtors.Set(id, none{})
			} else if d.debt != 0 {
				l.debtors.Delete(id)
			}
		}
		if d.held+d.spent+d.debt < 0 || d.debt < 0 {
			l.free(Freed{Node: id})
		}
		l.noteNode(id, n)
		id = n.Parent
	}
}

// afford checks budgets and debts for a new or larger lien: the first account from the leaf up that
// binds refuses.
func (l *Ledger) afford(c PayerPath, amount Credits) ([]Warning, error) {
	var warnings []Warning
	for _, id := range c {
		n, found := l.nodes.Get(id)
		if !found {
			continue
		}
		if n.Owes > 0 {
			return nil, &Shortfall{Why: ErrDebt, Node: id, Need: amount, Available: -n.Owes}
		}
		used := n.Used(l.now)
		if n.Budget.Limit == 0 || used+amount <= n.Budget.Limit {
			continue
		}
		if n.Budget.Hard {
			return nil, &Shortfall{Why: ErrBudget, Node: id, Need: amount, Available: n.Budget.Limit - used, Limit: n.Budget.Limit}
		}
		warnings = append(warnings, Warning{id, used + amount, n.Budget.Limit})
	}
	return warnings, nil
}

// SetBudget sets the budget of the first account of a path. Amounts it already holds stay, even
// above a new limit.
func (l *Ledger) SetBudget(s Stamp, c PayerPath, b Budget) (Receipt, error) {
	type payload struct {
		PayerPath
		Budget
	}
	p := printOf(l, s, opBudget, &payload{c, b}, func(c *codec.Coder, x *payload) {
		chainFields(c, &x.PayerPath)
		budgetFields(c, &x.Budget)
	})
	return l.once(s, p, func() (Receipt, error) {
		if b.Limit < 0 || b.Limit > MaxAmount || b.Window > Monthly {
			return Receipt{}, fmt.Errorf("%w: a budget of %s", ErrAmount, b.Limit)
		}
		if err := l.known(c); err != nil {
			return Receipt{}, err
		}
		l.open(c)
		n := l.ownNode(c[0])
		n.Budget = b
		l.free(Freed{Node: c[0]})
		l.noteNode(c[0], n)
		return Receipt{}, nil
	})
}

// above returns the path of a recorded payer. O(depth).
func (l *Ledger) above(id PayerID) PayerPath {
	c := make(PayerPath, 0, 8)
	for id != "" {
		n, found := l.nodes.Get(id)
		if !found {
			break
		}
		c = append(c, id)
		id = n.Parent
	}
	return c
}
