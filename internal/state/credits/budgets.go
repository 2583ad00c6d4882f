package credits

import (
	"maps"
	"slices"

	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// indexSoftBudget updates the index for a budget that was set. O(log n).
func (x *Credits) indexSoftBudget(id accounting.PayerID) {
	if b := x.ledger.Payer(id).Budget; b.Limit > 0 && !b.Hard {
		x.soft.Set(id, none{})
	} else {
		x.soft.Delete(id)
	}
}

// OverBudget returns the accounts that exceed a soft budget now, ordered by name. Jobs that are
// charged to them, or to their descendants, go last. A user in an account is "account/user". O(soft
// budgets × log n).
func (x *Credits) OverBudget(p *cluster.Policy, now cluster.Instant) []string {
	if !p.Credits.On {
		return nil
	}
	var over []string
	for id := range x.soft.All() {
		if n := x.ledger.Payer(id); n.Used(now) > n.Budget.Limit {
			over = append(over, string(id))
		}
	}
	return over
}

// Prices returns the present and future prices of a GPU-hour, by type, the latest first. O(prices
// ever set).
func (x *Credits) Prices(now cluster.Instant) []cluster.Price {
	var all []cluster.Price
	done := ""                         // the type whose present price was found
	for p := range x.ledger.Prices() { // by type, the newest first
		if p.GPUType == done && len(all) > 0 {
			continue
		}
		all = append(all, cluster.Price{Type: p.GPUType, Hour: int64(p.Price), From: p.From})
		if p.From <= now {
			done = p.GPUType
		}
	}
	return all
}

// Price returns the present price of a GPU-hour of a type; 0 without a price.
func (x *Credits) Price(kind string, at cluster.Instant) int64 {
	p, err := x.ledger.Price(kind, at)
	if err != nil {
		return 0
	}
	return int64(p)
}

// FollowAccounts moves the payers of accounts that were added or changed to where the accounts are
// now, all at once: in between they are not a tree. The accounts at the top are below root while
// root is defined. The budgets of deleted payers end. Every payer that waits is queued.
func (x *Credits) FollowAccounts(e *Env, touched map[string]struct{}, deleted []accounting.PayerID) {
	moved := maps.Clone(touched)
	if _, root := moved[cluster.RootAccount]; root {
		for a := range e.Accounts.All() {
			if a.Parent == cluster.RootAccount {
				moved[a.Name] = none{}
			}
		}
	}
	var chains []accounting.PayerPath
	for _, name := range slices.Sorted(maps.Keys(moved)) {
		if e.Accounts.Has(name) {
			chains = append(chains, e.Accounts.Chain(name, ""))
		}
	}
	if _, err := x.ledger.Move(logStamp(e.Now), chains...); err != nil {
		x.fault("accounts %v: %w", slices.Sorted(maps.Keys(moved)), err)
	}
	for _, id := range deleted {
		var chain accounting.PayerPath
		for at := id; at != ""; at = x.ledger.Payer(at).Parent {
			chain = append(chain, at)
		}
		if x.ledger.Payer(id).Budget == (accounting.Budget{}) {
			continue
		}
		if _, err := x.ledger.SetBudget(logStamp(e.Now), chain, accounting.Budget{}); err != nil {
			x.fault("account %s: end its budget: %w", id, err)
		}
		x.indexSoftBudget(id)
	}
	x.RetryAll()
}
