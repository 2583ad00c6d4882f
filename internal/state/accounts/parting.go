package accounts

import (
	"fmt"
	"strings"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// checkSettled refuses to delete a payer that has credits or debts, or whose bill may still
// change: the next payer of that name would get them.
func (d *Draft) checkSettled(id accounting.PayerID) *command.Refusal {
	var left accounting.Credits
	for b := range d.Ledger.BucketsOf(id) {
		left += b.Avail
	}
	switch owes := d.Ledger.Payer(id).Owes; {
	case left > 0:
		return command.WithHint(command.Refusef(command.Conflict, "%s has %s credits left", id, left), "gctl credit balance %s --buckets lists them, gctl credit void withdraws one", id)
	case owes > 0:
		return command.WithHint(command.Refusef(command.Conflict, "%s owes %s credits", id, owes), "a grant pays the debt")
	}
	if bill, open := d.openBill(id); open {
		n, _ := d.Ledger.Lien(bill)
		return command.WithHint(command.Refusef(command.Conflict, "a node of job %d of %s was lost, and its bill may change until %s", bill.Job, id, n.Ended.Add(d.BillsChange).Time().Format("2006-01-02T15:04:05Z")), "delete it after that")
	}
	return nil
}

// openBill returns the last provisional bill of a payer. O(provisional bills) for the first
// payer of a draft.
func (d *Draft) openBill(id accounting.PayerID) (accounting.LienID, bool) {
	if d.bills == nil {
		d.bills = map[accounting.PayerID]accounting.LienID{}
		for _, bill := range d.Ledger.Provisionals(cluster.Never) {
			n, _ := d.Ledger.Lien(bill)
			d.bills[n.Chain[0]] = bill
		}
	}
	bill, open := d.bills[id]
	return bill, open
}

// noteDeletedAccount notes what is deleted with an account and its users.
func (d *Draft) noteDeletedAccount(a *cluster.Account, users []cluster.AssociationKey) {
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
	for id := range d.Ledger.PayersFrom(accounting.PayerID(a.Name + "/")) {
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

// noteDeletedUser notes what is deleted with a user of an account.
func (d *Draft) noteDeletedUser(a *cluster.Association) {
	var with []string
	for _, l := range a.Limits {
		with = append(with, l.String())
	}
	if !d.elsewhere(a.AssociationKey) {
		with = append(with, d.leave(payer(a.AssociationKey))...)
	}
	d.part(a.User+" in account "+placeOf(a.AssociationKey), with)
}

// maxParting bounds the notes on one edit, and on all.
const maxParting = 20

func (d *Draft) part(who string, with []string) {
	if len(with) > maxParting {
		with = append(with[:maxParting], "more")
	}
	if len(with) > 0 && len(d.Notes) < maxParting {
		d.Notes = append(d.Notes, "deleted with "+who+": "+strings.Join(with, ", "))
	}
}

// leave ends the budget of a deleted payer, which the next of that name would get otherwise. It
// returns the budget in words.
func (d *Draft) leave(id accounting.PayerID) []string {
	d.Left = append(d.Left, id)
	b := d.Ledger.Payer(id).Budget
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

// PayerOf splits the name of a payer: an account, or a user in it.
func PayerOf(id accounting.PayerID) (account, user string) {
	account, user, _ = strings.Cut(string(id), "/")
	return account, user
}
