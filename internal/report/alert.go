package report

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"
)

// Alert is a condition to report. Its ID is the same every time it is found, so that it is sent
// once.
type Alert struct {
	ID     string `json:"id"`
	Rule   string `json:"type"` // spend.anomaly usage.anomaly budget.used rental.used bucket.expires account.debt
	Scope  string `json:"scope"`
	Period string `json:"period"`
	Value  string `json:"value"`
	Limit  string `json:"limit"`
	Text   string `json:"text"`
	Body   string `json:"-"` // of a mail about a job: sentences in place of the fields above
}

// Series holds the totals of a scope on consecutive days; the last day is checked.
type Series struct {
	Scope  string // account, account/user; "" for the whole cluster
	Days   []int64
	Before bool // the scope was active before the first day
}

// Least and Most are the minimum number of days of history for an anomaly, and the maximum that count.
const (
	Least = 7
	Most  = 30
)

// unit is the unit of a series.
type unit struct {
	rule, name string
	digits     int
	write      func(int64) int64
}

// Anomalies returns the scopes whose last day exceeds 130 % of the mean of the previous days, at
// most 30, since the scope was first active. The comparison is strict, in integers, and only above
// a floor. Days without activity count. Units are micro-credits if spent is true, else GPU
// milliseconds.
func Anomalies(all []Series, period Period, spent bool, floor int64) []Alert {
	u := unit{"usage.anomaly", "GPU hours", 3, hours}
	if spent {
		u = unit{"spend.anomaly", "credits", 6, func(n int64) int64 { return n }}
	}
	var out []Alert
	for _, s := range all {
		if len(s.Days) == 0 {
			continue
		}
		today, before := s.Days[len(s.Days)-1], s.Days[:len(s.Days)-1]
		before = before[max(0, len(before)-Most):]
		for !s.Before && len(before) > 0 && before[0] == 0 {
			before = before[1:]
		}
		n, sum := int64(len(before)), int64(0)
		for _, d := range before {
			sum += d
		}
		if n < Least || today <= max(floor, 0) || !exceeds(today, max(sum, 0), n) { // refunds may exceed the spending
			continue
		}
		out = append(out, u.alert(s.Scope, period, today, sum/n))
	}
	return out
}

// exceeds reports whether today is more than 1.3 × sum / n. No value is negative.
func exceeds(today, sum, n int64) bool {
	high, low := bits.Mul64(uint64(today), uint64(10*n))
	mostHigh, mostLow := bits.Mul64(uint64(sum), 13)
	return high > mostHigh || high == mostHigh && low > mostLow
}

func (u unit) alert(scope string, period Period, today, mean int64) Alert {
	value, usual := decimal(u.write(today), u.digits), decimal(u.write(mean), u.digits)
	return Alert{
		ID: strings.Join([]string{u.rule, scope, period.Name}, ":"), Rule: u.rule, Scope: scope, Period: period.Name, Value: value, Limit: usual,
		Text: fmt.Sprintf("%s: %s %s on %s, more than 130 %% of the daily mean of %s", named(scope), value, u.name, period.Name, usual),
	}
}

func named(scope string) string {
	if scope == "" {
		return "the whole cluster"
	}
	return scope
}

// Standing is the present state of budgets, buckets and debts.
type Standing struct {
	Budgets []BudgetStanding
	Buckets []Expiring
	Debts   []Owing
	Rentals []RentalStanding
}

// BudgetStanding is a budget with its use.
type BudgetStanding struct {
	Node, Window string // ever day month
	Limit, Used  int64
}

// Expiring is a bucket that expires.
type Expiring struct {
	Bucket    uint64
	Owner     string
	Available int64
	Expires   time.Time
}

// Owing is an account in debt.
type Owing struct {
	Node   string
	Amount int64
}

// RentalStanding is the state of a budget for leased cloud nodes in this month, in millionths of the currency.
type RentalStanding struct {
	Account                 string // "" is the cluster
	Currency                string
	Limit, Spent, Committed int64
}

// rentalFull is the percentage of a rental budget from which on practically no lease fits into the rest.
const rentalFull = 99

// alerts returns the alert of a rental budget, if it is used to 80 % or more.
func (r *RentalStanding) alerts(now time.Time) []Alert {
	used := capped(r.Spent, r.Committed)
	for _, step := range [...]int64{rentalFull, 80} {
		if r.Limit <= 0 || used < portion(r.Limit, step, 100) {
			continue
		}
		of := cmp.Or(r.Account, "cluster")
		return []Alert{{
			ID: fmt.Sprintf("rental.used:%s:%s:%d", r.Account, now.Format("2006-01"), step), Rule: "rental.used", Scope: r.Account, Period: now.Format(time.DateOnly),
			Value: decimal(used, 6), Limit: decimal(r.Limit, 6),
			Text: fmt.Sprintf("%s: %d %% of the rental budget of this month is used: %s %s spent and %s committed of %s",
				of, step, decimal(r.Spent, 6), r.Currency, decimal(r.Committed, 6), decimal(r.Limit, 6)),
		}}
	}
	return nil
}

// Alerts returns the alerts of a standing: budgets used to 50, 80 and 100 %, rental budgets used to 80 and 99 %, credits that expire
// within 30, 7 and 1 days, and debts. Of several thresholds only the last one passed counts.
func (s *Standing) Alerts(now time.Time) []Alert {
	now = now.UTC()
	today := now.Format(time.DateOnly)
	var out []Alert
	for _, b := range s.Budgets {
		window := map[string]string{"day": today, "month": now.Format("2006-01")}[b.Window]
		for _, step := range [...]int64{100, 80, 50} {
			if b.Used >= portion(b.Limit, step, 100) && b.Limit > 0 {
				out = append(out, Alert{
					ID: fmt.Sprintf("budget.used:%s:%s:%d", b.Node, window, step), Rule: "budget.used", Scope: b.Node, Period: today,
					Value: decimal(b.Used, 6), Limit: decimal(b.Limit, 6),
					Text: fmt.Sprintf("%s: %d %% of the budget is used: %s of %s credits", b.Node, step, decimal(b.Used, 6), decimal(b.Limit, 6)),
				})
				break
			}
		}
	}
	for _, b := range s.Buckets {
		for _, days := range [...]int{1, 7, 30} {
			if b.Available > 0 && b.Expires.After(now) && !b.Expires.After(now.AddDate(0, 0, days)) {
				out = append(out, Alert{
					ID: fmt.Sprintf("bucket.expires:%d:%d", b.Bucket, days), Rule: "bucket.expires", Scope: b.Owner, Period: today,
					Value: decimal(b.Available, 6), Limit: utc(b.Expires),
					Text: fmt.Sprintf("%s: %s credits of bucket %d expire on %s", b.Owner, decimal(b.Available, 6), b.Bucket, utc(b.Expires)),
				})
				break
			}
		}
	}
	for i := range s.Rentals {
		out = append(out, s.Rentals[i].alerts(now)...)
	}
	for _, d := range s.Debts {
		out = append(out, Alert{
			ID: "account.debt:" + d.Node + ":" + today, Rule: "account.debt", Scope: d.Node, Period: today, Value: decimal(d.Amount, 6), Limit: "0.000000",
			Text: fmt.Sprintf("%s: owes %s credits", d.Node, decimal(d.Amount, 6)),
		})
	}
	return out
}

// scopesOf lists the scopes in which a user's data counts.
func scopesOf(account, user string) []string {
	switch {
	case account == "":
		return []string{"", "/" + user}
	case user == "":
		return []string{"", account}
	}
	return []string{"", account, account + "/" + user}
}

// Dailies returns series of days: of spending if there was any, otherwise of GPU time. before holds
// the totals before the first day, up to the limit of history.
func Dailies(days []Day, before []Row) (all []Series, spent bool) {
	active := make(map[string]bool)
	for i := range before {
		if r := &before[i]; r.GPU > 0 {
			for _, s := range scopesOf(r.Account, r.User) {
				active[s] = true
			}
		}
	}
	sums := make(map[string][]int64)
	add := func(day int, account, user string, n int64) {
		for _, s := range scopesOf(account, user) {
			if sums[s] == nil {
				sums[s] = make([]int64, len(days))
			}
			sums[s][day] += n
		}
	}
	for i := range days {
		for k := range days[i].Credits {
			c := &days[i].Credits[k]
			if n := c.Spent(); n != 0 {
				account, user := c.Payer()
				add(i, account, user, n)
				spent = true
			}
		}
	}
	for i := range days {
		for k := range days[i].Usage {
			if r := &days[i].Usage[k]; !spent && r.GPU > 0 {
				add(i, r.Account, r.User, r.GPU)
			}
		}
	}
	for s, values := range sums {
		all = append(all, Series{s, values, active[s]})
	}
	slices.SortFunc(all, func(a, b Series) int { return cmp.Compare(a.Scope, b.Scope) })
	return all, spent
}

// AlertTable returns alerts as a table.
func AlertTable(alerts []Alert) Table {
	t := Table{Name: "alerts", Columns: texts("type", "scope", "period", "value", "limit", "text", "id")}
	for _, i := range [...]int{1, 3, 4, 6} {
		t.Columns[i].Detail = true // the text contains them
	}
	for _, a := range alerts {
		t.Rows = append(t.Rows, row(a.Rule, a.Scope, a.Period, a.Value, a.Limit, a.Text, a.ID))
	}
	return t
}
