package accounts

import (
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/schedule/words"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// editUser changes a user of an account.
func (d *Draft) editUser(e *command.AccountEdit) *command.Refusal {
	key := cluster.AssociationKey{Account: e.Account, User: e.User, Partition: e.Partition}
	old, known := d.draft.associations.Get(key)
	switch {
	case !d.operator() && !d.draft.Coordinates(d.Actor.Identity.User, e.Account):
		return command.Refusef(command.Denied, "%s may not change the users of account %s: requires role operator or coordinator of the account", d.Actor.Identity.User, e.Account)
	case !d.draft.accounts.Has(e.Account):
		return command.WithHint(command.Refusef(command.NotFound, "there is no account %s", e.Account), "gctl account list shows them")
	case !known && (e.Action == command.ModifyAccount || e.Action == command.DeleteAccount):
		return command.WithHint(command.Refusef(command.NotFound, "%s is not in account %s", e.User, placeOf(key)), "gctl account list --users shows who is")
	case e.Action == command.DeleteAccount:
		return d.deleteUser(old)
	case known && e.Action == command.AddAccount:
		return command.WithHint(command.Refusef(command.Conflict, "%s is already in account %s", e.User, placeOf(key)), "change that with gctl account modify")
	case e.Parent != nil || e.Description != nil || e.Coordinators != nil:
		return command.Refuse(command.InvalidArgument, "a user of an account has no parent, description or coordinators", "those are the account's")
	case e.Action == command.ModifyAccount:
		return d.putUser(*old, old, e)
	case known:
		return d.putUser(cluster.Association{AssociationKey: key, Shares: 1, Default: old.Default}, old, e)
	}
	return d.addUser(key, e)
}

func (d *Draft) operator() bool { return d.Actor.Has(command.RoleOperator) }

// addUser adds a user to an account, or to it on a partition. It is the user's default account
// if there is no other.
func (d *Draft) addUser(key cluster.AssociationKey, e *command.AccountEdit) *command.Refusal {
	refusal := d.putUser(cluster.Association{AssociationKey: key, Shares: 1, Default: d.draft.DefaultOf(e.User) == cluster.AssociationKey{}}, nil, e)
	if _, exists := d.Policy.Partition(key.Partition); refusal == nil && key.Partition != "" && !exists {
		refusal = command.WithHint(command.Refusef(command.InvalidArgument, "user %s: unknown partition %q", e.User, key.Partition), "partitions: %s", PartitionNames(d.Policy))
	}
	d.Moved = d.Moved || d.draft.queued[cluster.ScopeOf(key.WithoutPartition())] > 0
	return refusal
}

// putUser stores an association with what an edit sets. old is nil for a new one.
func (d *Draft) putUser(a cluster.Association, old *cluster.Association, e *command.AccountEdit) *command.Refusal {
	assign(&a.Shares, e.Shares)
	assign(&a.QOS, e.QOS)
	assign(&a.DefaultQOS, e.DefaultQOS)
	a.Limits = changedLimits(a.Limits, e)
	var before []cluster.Limit
	if old != nil {
		before = old.Ceilings
	}
	d.bound(&a, old, e)
	if err := a.Validate(); err != nil {
		return wrongAccount(err)
	}
	if !d.operator() {
		if refusal := d.checkDelegation(&a, e); refusal != nil {
			return refusal
		}
	}
	d.draft.associations.Set(a.AssociationKey, &a)
	d.draft.homes.Set(homeOf(a.AssociationKey), struct{}{})
	d.members[a.AssociationKey] = struct{}{}
	if d.operator() && a.Partition == "" {
		d.bindDelegated(&a, before)
	}
	if e.Default != nil {
		d.setDefault(a.AssociationKey, *e.Default)
	}
	return d.checkQOS(a.QOS, a.DefaultQOS, "user "+a.User)
}

// deleteUser removes a user from an account.
func (d *Draft) deleteUser(old *cluster.Association) *command.Refusal {
	key := old.AssociationKey
	if !d.operator() && len(old.Ceilings) > 0 && !d.boundElsewhere(old) { // it could be added again without
		return command.WithHint(command.Refusef(command.Denied, "an operator gave %s %s in account %s: a coordinator cannot remove it", key.User, old.Ceilings[0], placeOf(key)), "ask an operator")
	}
	if n := d.draft.queued[cluster.ScopeOf(key)]; n > 0 {
		return command.WithHint(command.Refusef(command.Conflict, "%s has %s in account %s", key.User, words.Count(n, "unfinished job"), placeOf(key)), "wait or cancel them")
	}
	if refusal := d.checkSettled(payer(key)); refusal != nil && !d.elsewhere(key) {
		return refusal
	}
	d.noteDeletedUser(old)
	d.dropUser(key)
	return nil
}

// payer returns the payer of a user of an account.
func payer(key cluster.AssociationKey) accounting.PayerID {
	return accounting.PayerID(key.Account + "/" + key.User)
}

// elsewhere reports whether the user is in the account by another association too.
func (d *Draft) elsewhere(key cluster.AssociationKey) bool {
	for k := range d.draft.associations.From(cluster.AssociationKey{Account: key.Account, User: key.User}) {
		if k.Account != key.Account || k.User != key.User {
			break
		}
		if k != key {
			return true
		}
	}
	return false
}

// dropUser deletes an association. If it was the user's default, another one becomes it.
func (d *Draft) dropUser(key cluster.AssociationKey) {
	a, _ := d.draft.associations.Delete(key)
	d.draft.homes.Delete(homeOf(key))
	d.members[key] = struct{}{}
	heir := cluster.AssociationKey{Account: key.Account}
	if key.Partition != "" && d.draft.associations.Has(key.WithoutPartition()) {
		heir = key.WithoutPartition()
	}
	d.gone = append(d.gone, usageTransfer{key, heir})
	if !a.Default {
		return
	}
	for k := range d.draft.homes.From(home{user: key.User}) {
		if k.user == key.User {
			d.makeDefault(k.key(), true)
		}
		return
	}
}

func (d *Draft) makeDefault(key cluster.AssociationKey, yes bool) {
	old, _ := d.draft.associations.Get(key)
	a := *old
	a.Default = yes
	d.draft.associations.Set(key, &a)
	d.members[key] = struct{}{}
}

// placeOf writes an account, with the partition if there is one.
func placeOf(key cluster.AssociationKey) string {
	if key.Partition == "" {
		return key.Account
	}
	return key.Account + " on partition " + key.Partition
}

// setDefault sets whether an association is its user's default.
func (d *Draft) setDefault(key cluster.AssociationKey, yes bool) {
	if other := d.draft.DefaultOf(key.User); yes && other.User != "" && other != key {
		d.makeDefault(other, false)
	}
	d.makeDefault(key, yes)
}
