package state

import (
	"cmp"
	"maps"

	"github.com/greylag/greylag/internal/cow"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// newSoft is the set of accounts that have a soft budget, so that a pass need not check all
// accounts.
func newSoft() cow.Map[accounting.PayerID, none] {
	return cow.New[accounting.PayerID, none](cmp.Compare[accounting.PayerID])
}

// keepSoft updates the index for a budget that was set. O(log n).
func (s *State) keepSoft(id accounting.PayerID) {
	if b := s.credits.Payer(id).Budget; b.Limit > 0 && !b.Hard {
		s.soft.Set(id, none{})
	} else {
		s.soft.Delete(id)
	}
}

// findSoft builds the index. O(accounts).
func (s *State) findSoft() {
	for id := range s.credits.Nodes() {
		s.keepSoft(id)
	}
}

// overBudget returns the accounts that exceed a soft budget now, ordered by name. Jobs that are
// charged to them, or to their descendants, go last. A user in an account is "account/user". O(soft
// budgets × log n).
func (t *tables) overBudget() []string {
	if !t.policy.Credits.On {
		return nil
	}
	var over []string
	for id := range t.soft.All() {
		if n := t.credits.Payer(id); n.Used(t.now) > n.Budget.Limit {
			over = append(over, string(id))
		}
	}
	return over
}

// checkSoft compares the index with the ledger.
func (x *checking) checkSoft() {
	want, got := map[accounting.PayerID]none{}, map[accounting.PayerID]none{}
	for id, n := range x.credits.Nodes() {
		if n.Budget.Limit > 0 && !n.Budget.Hard {
			want[id] = none{}
		}
	}
	for id := range x.soft.All() {
		got[id] = none{}
	}
	if !maps.Equal(want, got) {
		x.fault("soft budgets of %v, want %v", got, want)
	}
}

// prices returns the present and future prices of a GPU-hour, by type, the latest first. O(prices
// ever set).
func (t *tables) prices() []cluster.Price {
	var all []cluster.Price
	now := ""                           // the type whose present price was found
	for p := range t.credits.Prices() { // by type, the newest first
		if p.GPUType == now && len(all) > 0 {
			continue
		}
		all = append(all, cluster.Price{Type: p.GPUType, Hour: int64(p.Price), From: p.From})
		if p.From <= t.now {
			now = p.GPUType
		}
	}
	return all
}

// priceOf returns the present price of a GPU-hour of a type; 0 without a price.
func (t *tables) priceOf(kind string) int64 {
	p, err := t.credits.Price(kind, t.now)
	if err != nil {
		return 0
	}
	return int64(p)
}
