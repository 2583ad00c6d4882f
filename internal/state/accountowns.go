package state

import (
	"fmt"
	"strings"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// owns refuses to let go of who has credits or debts, or may come to have some by a bill
// that changes: the next one of that name would have them.
func (d *draft) owns(id accounting.PayerID) *command.Refusal {
	var left accounting.Credits
	for b := range d.credits.BucketsOf(id) {
		left += b.Avail
	}
	switch owes := d.credits.Payer(id).Owes; {
	case left > 0:
		return command.WithHint(command.Refusef(command.Conflict, "%s has %s credits left", id, left), "gctl credit balance %s --buckets lists them, gctl credit void takes one back", id)
	case owes > 0:
		return command.WithHint(command.Refusef(command.Conflict, "%s owes %s credits", id, owes), "a grant to it pays them")
	}
	if bill, open := d.openBill(id); open {
		n, _ := d.credits.Lien(bill)
		return command.WithHint(command.Refusef(command.Conflict, "a node of job %d of %s was lost, and its bill may change until %s", bill.Job, id, n.Ended.Add(amendable).Time().Format("2006-01-02T15:04:05Z")), "delete it after that")
	}
	return nil
}

// openBill is the last provisional bill of a payer. O(provisional bills) for the first
// payer of a draft.
func (d *draft) openBill(id accounting.PayerID) (accounting.LienID, bool) {
	if d.bills == nil {
		d.bills = map[accounting.PayerID]accounting.LienID{}
		for _, bill := range d.credits.Provisionals(cluster.Never) {
			n, _ := d.credits.Lien(bill)
			d.bills[n.Chain[0]] = bill
		}
	}
	bill, open := d.bills[id]
	return bill, open
}

// partAccount notes what goes with an account and its users.
func (d *draft) partAccount(a *cluster.Account, users []cluster.AssociationKey) {
	var with []string
	if n := len(users); n > 0 {
		names := make([]string, 0, 5)
		for _, key := range users[:min(n, 5)] {
			names = append(names, key.User)
		}
		if n > 5 {
			names = append(names, fmt.Sprintf("%d more", n-5))
		}
		with = append(with, "its users "+strings.Join(names, ", "))
	}
	for _, l := range a.Limits {
		with = append(with, l.String())
	}
	with = append(with, d.leave(accounting.PayerID(a.Name))...)
	for id := range d.credits.NodesFrom(accounting.PayerID(a.Name + "/")) {
		if !strings.HasPrefix(string(id), a.Name+"/") {
			break
		}
		budget := d.leave(id)
		if _, user := PayerOf(id); len(budget) > 0 {
			with = append(with, budget[0]+" of "+user)
		}
	}
	d.part("account "+a.Name, with)
}

// partUser notes what goes with a user of an account.
func (d *draft) partUser(a *cluster.Association) {
	var with []string
	for _, l := range a.Limits {
		with = append(with, l.String())
	}
	if !d.elsewhere(a.AssociationKey) {
		with = append(with, d.leave(payer(a.AssociationKey))...)
	}
	d.part(a.User+" in account "+placeOf(a.AssociationKey), with)
}

// maxParting bounds what is told of one edit, and of all.
const maxParting = 20

func (d *draft) part(who string, with []string) {
	if len(with) > maxParting {
		with = append(with[:maxParting], "more")
	}
	if len(with) > 0 && len(d.notes) < maxParting {
		d.notes = append(d.notes, "with "+who+" went "+strings.Join(with, ", "))
	}
}

// leave ends the budget of a payer who goes: the next of that name would have it. It says
// what it was.
func (d *draft) leave(id accounting.PayerID) []string {
	d.left = append(d.left, id)
	b := d.credits.Payer(id).Budget
	if b.Limit == 0 {
		return nil
	}
	text := "a budget of " + b.Limit.Short()
	switch b.Window {
	case accounting.Daily:
		text += " a day"
	case accounting.Monthly:
		text += " a month"
	}
	return []string{text}
}

// endBudget takes the budget of a payer away.
func (s *State) endBudget(id accounting.PayerID) {
	var chain accounting.PayerPath
	for at := id; at != ""; at = s.credits.Payer(at).Parent {
		chain = append(chain, at)
	}
	if s.credits.Payer(id).Budget == (accounting.Budget{}) {
		return
	}
	if _, err := s.credits.SetBudget(s.logStamp(), chain, accounting.Budget{}); err != nil {
		s.fault("account %s: end its budget: %w", id, err)
	}
	s.keepSoft(id)
}
