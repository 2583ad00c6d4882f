package leases

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// minBilled is the shortest time that a launched instance costs.
const minBilled = time.Minute

// Amount returns the price of an hour for a time, rounded up, at most MaxInt64.
func Amount(price int64, d time.Duration) int64 {
	if price <= 0 || d <= 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(price), uint64(d))
	low, carried := bits.Add64(low, uint64(time.Hour)-1, 0)
	if high += carried; high >= uint64(time.Hour) {
		return math.MaxInt64
	}
	whole, _ := bits.Div64(high, low, uint64(time.Hour))
	return int64(min(whole, math.MaxInt64))
}

// sum adds amounts that are not negative, at most MaxInt64.
func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// MonthOf returns the start of the month (UTC) of an instant.
func MonthOf(at cluster.Instant) cluster.Instant {
	t := at.Time()
	return cluster.InstantOf(time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC))
}

// costOf returns what a lease has cost when its instance has ended. said is what the cloud says; -1 for nothing. The
// cloud refuses a price above the maximum: a cost that only such a price could cause is not believed, unless the list of
// the cloud has shown that price.
func costOf(l *cluster.Lease, said int64) int64 {
	if l.Launched == 0 {
		return 0
	}
	ran := max(l.Ended.Sub(l.Launched), minBilled)
	if l.Joined != 0 { // a late end is one that was noticed late: the node powers itself off
		ran = max(min(ran, l.Lifetime), minBilled)
	}
	if said >= 0 && said <= Amount(max(l.MaxPrice, l.Price), ran+time.Hour) {
		return said
	}
	if l.Interrupted && l.Offer.Market == cluster.Spot && ran < time.Hour {
		return 0
	}
	return Amount(cmp.Or(l.Price, l.Offer.Price, l.MaxPrice), ran)
}

// chain yields an account, those above it, and "" for the cluster.
func (e *Env) chain(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if name != "" && !yield(name) {
			return
		}
		more := true
		e.Accounts.Above(name, func(a *cluster.Account) bool {
			more = a.Name == name || yield(a.Name)
			return more
		})
		if more {
			yield("")
		}
	}
}

// spend adds what a lease that is GONE has cost to its account, those above it, and the cluster.
func (x *Leases) spend(e *Env, l *cluster.Lease) {
	if l.Cost == 0 {
		return
	}
	for name := range e.chain(l.Account) {
		key := account{l.Month, l.Currency, name}
		old, _ := x.spent.Get(key)
		x.spent.Set(key, sum(old, l.Cost))
	}
}

// limits returns the budgets in force by account; "" is the cluster.
func limits(p *cluster.BurstPolicy) map[string]int64 {
	all := make(map[string]int64, len(p.Budgets)+1)
	for _, b := range p.Budgets {
		all[b.Account] = b.Monthly
	}
	all[""] = p.MonthlyLimit
	return all
}

// committed returns the worst-case costs of the live leases of a month in the policy's currency, by account with those above
// it, and the cluster. O(leases × accounts above them).
func (x *Leases) committed(e *Env, month cluster.Instant) map[string]int64 {
	all := map[string]int64{}
	for l := range x.Live() {
		if l.Month == month && l.Currency == e.Policy.Burst.Currency {
			for name := range e.chain(l.Account) {
				all[name] = sum(all[name], l.Reserved)
			}
		}
	}
	return all
}

// Left returns what may still be committed in this month, by account with a budget; under "" for the cluster.
func (x *Leases) Left(e *Env) map[string]int64 {
	month := MonthOf(e.Now)
	committed, left := x.committed(e, month), limits(&e.Policy.Burst)
	for name, limit := range left {
		spent, _ := x.spent.Get(account{month, e.Policy.Burst.Currency, name})
		left[name] = max(0, limit-min(limit, sum(spent, committed[name])))
	}
	return left
}

// overBudget returns which budget a cost exceeds; "" if none.
func (x *Leases) overBudget(e *Env, of string, cost int64) string {
	left := x.Left(e)
	for name := range e.chain(of) {
		most, limited := left[name]
		switch {
		case !limited || cost <= most:
		case name == "":
			return fmt.Sprintf("worst-case cost %s exceeds the %s left in the budget of the cluster this month", e.money(cost), e.money(most))
		default:
			return fmt.Sprintf("worst-case cost %s exceeds the %s left in the budget of account %s this month", e.money(cost), e.money(most), name)
		}
	}
	return ""
}

func (e *Env) money(amount int64) string {
	return cluster.FormatMoney(amount) + " " + e.Policy.Burst.Currency
}

// Spend is what leases of one month cost an account and those below it. Money is in millionths of the currency.
type Spend struct {
	Account   string // "" is the cluster
	Spent     int64  // by leases that are GONE
	Committed int64  // for the others
	Limit     int64
	Limited   bool // it has a budget
}

// SpendOf returns the costs of the month of an instant in the policy's currency, by account: those that have costs or a
// budget. O(leases ×
// accounts above them + accounts).
func (x *Leases) SpendOf(e *Env, at cluster.Instant) []Spend {
	month := MonthOf(at)
	rows := map[string]Spend{}
	currency := e.Policy.Burst.Currency
	for k, amount := range x.spent.From(account{month: month, currency: currency}) {
		if k.month != month || k.currency != currency {
			break
		}
		rows[k.name] = Spend{Account: k.name, Spent: amount}
	}
	for name, amount := range x.committed(e, month) {
		row := rows[name]
		row.Account, row.Committed = name, amount
		rows[name] = row
	}
	for name, limit := range limits(&e.Policy.Burst) {
		row := rows[name]
		row.Account, row.Limit, row.Limited = name, limit, true
		rows[name] = row
	}
	list := make([]Spend, 0, len(rows))
	for _, row := range rows {
		list = append(list, row)
	}
	slices.SortFunc(list, func(a, b Spend) int { return cmp.Compare(a.Account, b.Account) })
	return list
}

// keptMonths is for how long costs are kept.
const keptMonths = 400 * 24 * time.Hour

// Forget drops pauses and refusals that have no effect any longer, and the costs of months long ago, at most that many.
func (x *Leases) Forget(now cluster.Instant, most int) {
	pauses := x.pauses.Map.Clone()
	for key, p := range pauses.All() {
		if p.Until.Add(pauseMemory) <= now {
			x.pauses.Delete(key)
		}
	}
	refused := x.refused.Map.Clone()
	for job, r := range refused.All() {
		if r.At.Add(keptRefusal) <= now {
			x.refused.Delete(job)
		}
	}
	for ; most > 0; most-- {
		key, _, found := x.spent.First()
		if !found || key.month.Add(keptMonths) > now {
			return
		}
		x.spent.Delete(key)
	}
}
