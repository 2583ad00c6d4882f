package accounts

import (
	"slices"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// bound gives an association the limits that no coordinator lifts, after an edit: those that
// an operator set of it; of one that a coordinator makes for a partition, which is no way
// around them, those of the one without.
func (d *Draft) bound(a, old *cluster.Association, e *command.AccountEdit) {
	switch {
	case d.operator():
		a.Ceilings = changedLimits(a.Ceilings, e)
		a.Delegated = a.Delegated && e.Action == command.ModifyAccount
	case old != nil:
		a.Ceilings, a.Delegated = old.Ceilings, old.Delegated
	case a.Partition != "":
		a.Delegated = true
		if whole, there := d.draft.associations.Get(a.WithoutPartition()); there {
			a.Ceilings = whole.Ceilings
		}
	}
}

// boundElsewhere reports whether the association without a partition has all that binds one
// that a coordinator made.
func (d *Draft) boundElsewhere(a *cluster.Association) bool {
	return a.Delegated && d.draft.associations.Has(a.WithoutPartition())
}

// bindDelegated has what an operator sets, or takes away, of a user in an account hold for
// the associations for partitions that a coordinator made, too.
func (d *Draft) bindDelegated(whole *cluster.Association, before []cluster.Limit) {
	var all []cluster.Association
	for k, a := range d.draft.associations.From(whole.AssociationKey) {
		if k.WithoutPartition() != whole.AssociationKey {
			break
		}
		if a.Delegated {
			all = append(all, *a)
		}
	}
	for _, a := range all {
		a.Limits, a.Ceilings = rebound(a.Limits, before, whole.Ceilings), rebound(a.Ceilings, before, whole.Ceilings)
		d.draft.associations.Set(a.AssociationKey, &a)
		d.members[a.AssociationKey] = struct{}{}
	}
}

// rebound is limits under others that change: those that were the same follow, and what is
// lower stays.
func rebound(own, before, now []cluster.Limit) []cluster.Limit {
	var out []cluster.Limit
	for _, l := range own {
		if _, still := cluster.LimitOf(now, l.Kind, l.Resource); still || !slices.Contains(before, l) {
			out = append(out, l)
		}
	}
	for _, l := range now {
		if had, found := cluster.LimitOf(own, l.Kind, l.Resource); found && !slices.Contains(before, had) {
			l.Value = min(l.Value, had.Value)
		}
		out = append(out, l)
	}
	return cluster.SortLimits(out)
}

// checkDelegation keeps coordinators from giving more than their account has: a limit
// that they set may not be above the one that would hold without it, nor above one that
// an operator gave the user, and QOS must be among the account's, else among the open ones.
func (d *Draft) checkDelegation(a *cluster.Association, e *command.AccountEdit) *command.Refusal {
	var allowedQOS []string
	inherited := map[cluster.Limit]int64{}
	d.draft.Above(a.Account, func(of *cluster.Account) bool {
		if allowedQOS == nil {
			allowedQOS = of.QOS
		}
		for _, l := range of.Limits {
			key := cluster.Limit{Kind: l.Kind, Resource: l.Resource}
			if _, nearer := inherited[key]; !nearer {
				inherited[key] = l.Value
			}
		}
		return true
	})
	if allowedQOS == nil {
		allowedQOS = d.Policy.OpenQOS()
	}
	for _, q := range a.QOS {
		if !slices.Contains(allowedQOS, q) {
			return command.Refusef(command.Denied, "account %s does not have qos %s: a coordinator cannot grant it", a.Account, q)
		}
	}
	for _, l := range e.Set {
		if most, known := inherited[cluster.Limit{Kind: l.Kind, Resource: l.Resource}]; known && l.Value > most {
			l.Value = most
			return command.Refusef(command.Denied, "account %s has %s: a coordinator cannot grant more", a.Account, l)
		}
	}
	for _, c := range a.Ceilings {
		if !slices.ContainsFunc(a.Limits, func(l cluster.Limit) bool { return l.Kind == c.Kind && l.Resource == c.Resource && l.Value <= c.Value }) {
			return command.WithHint(command.Refusef(command.Denied, "an operator gave %s %s: a coordinator cannot remove it", a.User, c), "ask an operator")
		}
	}
	return nil
}
