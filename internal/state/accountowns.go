package state

import (
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// owns refuses to let go of who has credits or debts, or may come to have some by a bill
// that changes: the next one of that name would have them.
func (d *draft) owns(id accounting.NodeID) *command.Refusal {
	if d.credits == nil {
		return nil
	}
	var left accounting.Credits
	for b := range d.credits.BucketsOf(id) {
		left += b.Avail
	}
	switch owes := d.credits.Node(id).Owes; {
	case left > 0:
		return hinting(refusef(command.Conflict, "%s has %s credits left", id, left), "gctl credit balance %s --buckets lists them, gctl credit void takes one back", id)
	case owes > 0:
		return hinting(refusef(command.Conflict, "%s owes %s credits", id, owes), "a grant to it pays them")
	}
	if bill, open := d.openBill(id); open {
		n, _ := d.credits.Lien(bill)
		return hinting(refusef(command.Conflict, "a node of job %d of %s was lost, and its bill may change until %s", bill.Job, id, n.Ended.Add(amendable).Time().Format("2006-01-02T15:04:05Z")), "delete it after that")
	}
	return nil
}

// openBill is the last provisional bill of a payer. O(provisional bills) for the first
// payer of a draft.
func (d *draft) openBill(id accounting.NodeID) (accounting.LienID, bool) {
	if d.bills == nil {
		d.bills = map[accounting.NodeID]accounting.LienID{}
		for _, bill := range d.credits.Provisionals(cluster.Never) {
			n, _ := d.credits.Lien(bill)
			d.bills[n.Chain[0]] = bill
		}
	}
	bill, open := d.bills[id]
	return bill, open
}
