package schedule_test

import (
	"fmt"
	"strings"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/schedule/explain"
	"github.com/greylag/greylag/internal/schedule/order"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// credit runs a line about credits: "charging", "price TYPE AMOUNT", "grant ACCOUNT AMOUNT",
// "budget ACCOUNT AMOUNT [hard] [day]", "tiers" or "why JOB".
func (x *site) credit(w []string) string {
	c := &command.ChangeCredits{Actor: operator, Class: accounting.Purchase}
	switch w[0] {
	case "charging":
		p := *x.s.View().Policy()
		p.Credits.On = true
		return x.apply(&command.ApplyPolicy{Actor: operator, Policy: p})
	case "tiers":
		return x.tiers()
	case "why":
		return x.why(w[1])
	case "price":
		c.Action, c.GPUType = command.SetPrice, w[1]
	case "grant":
		c.Action, c.Account = command.GrantCredits, w[1]
	case "budget":
		c.Action, c.Account = command.SetBudget, w[1]
		for _, word := range w[3:] {
			if c.Hard = c.Hard || word == "hard"; word == "day" {
				c.Window = accounting.Daily
			}
		}
	}
	if account, user, found := strings.Cut(c.Account, "/"); found {
		c.Account, c.User = account, user
	}
	amount, err := accounting.ParseCredits(w[2])
	if err != nil {
		x.t.Fatal(err)
	}
	c.Amount = amount
	return x.apply(c)
}

// tiers prints the tier of each pending job.
func (x *site) tiers() string {
	snap := x.s.View().Snapshot()
	tiers := order.Tiers(snap)
	var out []string
	for _, j := range snap.Pending {
		tier, over := tiers(j)
		out = append(out, strings.TrimSpace(fmt.Sprintf("%d %s %s tier %d %s", j.ID, j.Spec.Owner.User, j.Spec.QOS, tier, over)))
	}
	return strings.Join(out, "\n")
}

// why prints the obstacles of a job, the jobs ahead of it, and the changes with which it would
// start.
func (x *site) why(id string) string {
	ref, err := cluster.ParseJobRef(id)
	if err != nil {
		x.t.Fatal(err)
	}
	w, err := explain.Why(x.s.View().Snapshot(), ref.ID)
	if err != nil {
		x.t.Fatal(err)
	}
	text := fmt.Sprintf("%s\nahead %d", strings.Join(w.Causes, "\n"), w.Ahead)
	if len(w.Changes) > 0 {
		text += "\nor " + strings.Join(w.Changes, " ")
	}
	return text
}
