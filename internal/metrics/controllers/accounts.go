package controllers

import (
	"math"

	"github.com/greylag/greylag/internal/metrics"
	"github.com/greylag/greylag/internal/schedule/order"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/accounting"
)

// maxAccounts is the number of accounts above which none is reported: too many series.
const maxAccounts = 1000

var (
	classes = map[accounting.BucketClass]string{
		accounting.Promo: "promo", accounting.GrantClass: "grant", accounting.RefundClass: "refund", accounting.Purchase: "purchase",
	}
	windows = [...]string{accounting.Ever: "ever", accounting.Daily: "daily", accounting.Monthly: "monthly"}
)

// putAccounts reports accounts, never their users.
func (c *Cluster) putAccounts(sink metrics.Sink, v *state.View, s *jobSurvey) {
	rows := accountsOf(v)
	if len(rows) > maxAccounts {
		return
	}
	credits := v.Policy().Credits.On
	for i := range rows {
		x := &rows[i]
		sink.Put(c.accountGPUs, float64(s.gpus[x.Account]), x.Account)
		sink.Put(c.accountUsage, x.NormUsage, x.Account)
		sink.Put(c.accountShares, x.NormShares, x.Account)
		switch {
		case v.Policy().Scheduling.FairShare.Classic:
			sink.Put(c.fairShare, x.FairShare, x.Account)
		case !math.IsInf(x.LevelFS, 0): // without usage
			sink.Put(c.levelFS, x.LevelFS, x.Account)
		}
		if credits {
			c.putCredits(sink, v, x.Account)
		}
	}
}

// accountsOf returns the fair share of each account.
func accountsOf(v *state.View) []order.ShareRow {
	view := v.Accounts()
	if view.Tree == nil {
		return nil
	}
	all := order.ShareRows(view, &v.Policy().Scheduling.FairShare, v.Now())
	rows := all[:0]
	for i := range min(len(all), len(view.Tree.Nodes)) {
		if view.Tree.Nodes[i].User == nil {
			rows = append(rows, all[i])
		}
	}
	return rows
}

func (c *Cluster) putCredits(sink metrics.Sink, v *state.View, account string) {
	l, now := v.Credits(), v.Now()
	id := accounting.PayerID(account)
	p := l.Payer(id)
	byClass := map[accounting.BucketClass]accounting.Credits{}
	for b := range l.BucketsOf(id) {
		if b.Usable(now) {
			byClass[b.Class] += b.Avail
		}
	}
	for class, amount := range byClass {
		sink.Put(c.balance, credits(amount), account, classes[class])
	}
	sink.Put(c.aside, credits(p.Held), account)
	sink.Put(c.debt, credits(p.Debt), account)
	sink.Put(c.charged, credits(p.Spent), account)
	if p.Budget.Limit > 0 {
		sink.Put(c.budget, float64(p.Used(now))/float64(p.Budget.Limit), account, windows[p.Budget.Window])
	}
}

// credits converts an amount of micro-credits.
func credits(x accounting.Credits) float64 { return float64(x) / float64(accounting.One) }
