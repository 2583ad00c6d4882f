package state

import (
	"maps"
	"slices"
	"strings"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/schedule/words"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// draft is the accounts as edits make them, before they are in force.
type draft struct {
	*State
	sharing
	actor   command.Actor
	touched map[string]none                 // accounts
	members map[cluster.AssociationKey]none // users of accounts
	gone    []usageTransfer
	moved   bool                 // jobs count elsewhere now
	left    []accounting.PayerID // payers who are gone
	notes   []string             // what went with whom

	bills map[accounting.PayerID]accounting.LienID // by payer, the last that may change; nil until asked for
}

// usageTransfer is usage that passes from who is gone to whom they were part of.
type usageTransfer struct{ from, to cluster.AssociationKey }

// edit makes one edit, or says why not.
func (d *draft) edit(e *command.AccountEdit) *command.Refusal {
	if e.Action < command.AddAccount || e.Action > command.PutAccount {
		return command.Refusef(command.InvalidArgument, "unknown action %d on accounts", e.Action)
	}
	switch {
	case e.User != "":
		return d.editUser(e)
	case e.Partition != "":
		return command.Refuse(command.InvalidArgument, "only a user of an account has associations for partitions", "write user=NAME partition=NAME")
	}
	if !d.actor.Has(command.RoleOperator) {
		return command.WithHint(command.Refusef(command.Denied, "%s may not change account %s: that needs the role operator", d.actor.Identity.User, e.Account), "coordinators may change the users of their accounts")
	}
	old, known := d.sharing.accounts.Get(e.Account)
	switch {
	case e.Default != nil:
		return command.Refuse(command.InvalidArgument, "only a user has a default account", "")
	case known && e.Action == command.AddAccount:
		return command.WithHint(command.Refusef(command.Conflict, "account %s exists already", e.Account), "change it with gctl account modify")
	case !known && (e.Action == command.ModifyAccount || e.Action == command.DeleteAccount) && e.Account != cluster.RootAccount:
		return command.WithHint(command.Refusef(command.NotFound, "there is no account %s", e.Account), "gctl account list shows them")
	case e.Action == command.DeleteAccount:
		return d.dropAccount(e.Account)
	}
	a := cluster.Account{Name: e.Account, Parent: cluster.RootAccount, Shares: 1}
	if e.Account == cluster.RootAccount {
		a.Parent = ""
	}
	if known && e.Action == command.ModifyAccount {
		a = *old
	}
	if e.Parent != nil && *e.Parent != "" {
		a.Parent = *e.Parent
	}
	assign(&a.Description, e.Description)
	assign(&a.Shares, e.Shares)
	assign(&a.Coordinators, e.Coordinators)
	assign(&a.QOS, e.QOS)
	assign(&a.DefaultQOS, e.DefaultQOS)
	a.Limits = changedLimits(a.Limits, e)
	if err := a.Validate(); err != nil {
		return wrongAccount(err)
	}
	if !known || e.Description != nil {
		if refusal := d.showable("of account "+command.Sanitize(a.Name), a.Name, a.Description); refusal != nil {
			return refusal
		}
	}
	d.moved = d.moved || (!known || old.Parent != a.Parent) && d.queued[cluster.Scope{Account: a.Name}] > 0
	d.putAccount(&a)
	return d.checkQOS(a.QOS, a.DefaultQOS, "account "+a.Name)
}

func wrongAccount(err error) *command.Refusal {
	return command.Refuse(command.InvalidArgument, strings.ReplaceAll(command.OneLine(err), cluster.ErrInvalidAccount.Error()+": ", ""), "")
}

func (d *draft) putAccount(a *cluster.Account) {
	d.sharing.accounts.Set(a.Name, a)
	if d.touched == nil {
		d.touched = map[string]none{}
	}
	d.touched[a.Name] = none{}
}

// changedLimits is limits without those that an edit takes away, and with those it sets.
func changedLimits(limits []cluster.Limit, e *command.AccountEdit) []cluster.Limit {
	kept := slices.DeleteFunc(slices.Clone(limits), func(l cluster.Limit) bool {
		return slices.ContainsFunc(e.Unset, func(u cluster.Limit) bool { return u.Kind == l.Kind && u.Resource == l.Resource })
	})
	return cluster.SortLimits(append(kept, e.Set...))
}

// checkQOS refuses the names of QOS that the policy does not have.
func (d *draft) checkQOS(qos []string, preferred, of string) *command.Refusal {
	for _, name := range append(slices.Clone(qos), preferred) {
		if _, known := d.policy.QOSNamed(name); !known && name != "" {
			return command.WithHint(command.Refusef(command.InvalidArgument, "%s: unknown qos %q", of, name), "qos: %s", d.qosNames())
		}
	}
	return nil
}

// dropAccount deletes an account with its users.
func (d *draft) dropAccount(name string) *command.Refusal {
	if n := d.queued[cluster.Scope{Account: name}]; n > 0 && name != cluster.RootAccount {
		return command.WithHint(command.Refusef(command.Conflict, "account %s has %s", name, words.Count(n, "unfinished job")), "gqueue --account=%s lists them; wait or cancel them", name)
	}
	a, known := d.sharing.accounts.Get(name)
	if !known {
		return nil // root, which need not be defined
	}
	var users []cluster.AssociationKey
	for key := range d.sharing.associations.From(cluster.AssociationKey{Account: name}) {
		if key.Account != name {
			break
		}
		users = append(users, key)
	}
	if refusal := d.owns(accounting.PayerID(name)); refusal != nil {
		return refusal
	}
	for id := range d.credits.NodesFrom(accounting.PayerID(name + "/")) { // deleted users too
		if !strings.HasPrefix(string(id), name+"/") {
			break
		}
		if refusal := d.owns(id); refusal != nil {
			return refusal
		}
	}
	d.partAccount(a, users)
	for _, key := range users {
		d.dropUser(key)
	}
	d.gone = append(d.gone, usageTransfer{cluster.AssociationKey{Account: name}, cluster.AssociationKey{Account: a.Parent}})
	d.sharing.accounts.Delete(name)
	if d.touched == nil {
		d.touched = map[string]none{}
	}
	d.touched[name] = none{}
	return nil
}

// payer is who pays in the ledger for a user of an account.
func payer(key cluster.AssociationKey) accounting.PayerID {
	return accounting.PayerID(key.Account + "/" + key.User)
}

// elsewhere reports whether the user is in the account by another association too.
func (d *draft) elsewhere(key cluster.AssociationKey) bool {
	for k := range d.sharing.associations.From(cluster.AssociationKey{Account: key.Account, User: key.User}) {
		if k.Account != key.Account || k.User != key.User {
			break
		}
		if k != key {
			return true
		}
	}
	return false
}

// dropUser takes a user out of an account. Another of their accounts becomes the
// default one when this was.
func (d *draft) dropUser(key cluster.AssociationKey) {
	a, _ := d.sharing.associations.Get(key)
	d.sharing.associations.Delete(key)
	d.sharing.homes.Delete(homeOf(key))
	d.member(key)
	heir := cluster.AssociationKey{Account: key.Account}
	if key.Partition != "" && d.sharing.associations.Has(key.Everywhere()) {
		heir = key.Everywhere()
	}
	d.gone = append(d.gone, usageTransfer{key, heir})
	if !a.Default {
		return
	}
	for k := range d.sharing.homes.From(home{user: key.User}) {
		if k.user == key.User {
			d.makeDefault(k.key(), true)
		}
		return
	}
}

func (d *draft) member(key cluster.AssociationKey) {
	if d.members == nil {
		d.members = map[cluster.AssociationKey]none{}
	}
	d.members[key] = none{}
}

func (d *draft) makeDefault(key cluster.AssociationKey, yes bool) {
	old, _ := d.sharing.associations.Get(key)
	a := *old
	a.Default = yes
	d.sharing.associations.Set(key, &a)
	d.member(key)
}

// editUser changes a user of an account.
func (d *draft) editUser(e *command.AccountEdit) *command.Refusal {
	key := cluster.AssociationKey{Account: e.Account, User: e.User, Partition: e.Partition}
	old, known := d.sharing.associations.Get(key)
	operator := d.actor.Has(command.RoleOperator)
	switch {
	case !operator && !d.sharing.coordinates(d.actor.Identity.User, e.Account):
		return command.Refusef(command.Denied, "%s may not change the users of account %s: that needs the role operator, or to be its coordinator", d.actor.Identity.User, e.Account)
	case !d.sharing.accounts.Has(e.Account):
		return command.WithHint(command.Refusef(command.NotFound, "there is no account %s", e.Account), "gctl account list shows them")
	case known && e.Action == command.AddAccount:
		return command.WithHint(command.Refusef(command.Conflict, "%s is in account %s already", e.User, placeOf(key)), "change that with gctl account modify")
	case !known && (e.Action == command.ModifyAccount || e.Action == command.DeleteAccount):
		return command.WithHint(command.Refusef(command.NotFound, "%s is not in account %s", e.User, placeOf(key)), "gctl account list --users shows who is")
	case e.Action == command.DeleteAccount && !operator && len(old.Ceilings) > 0 && !d.boundElsewhere(old): // and then add anew, without
		return command.WithHint(command.Refusef(command.Denied, "an operator gave %s %s in account %s: a coordinator cannot take that away", e.User, old.Ceilings[0], placeOf(key)), "ask an operator")
	case e.Action == command.DeleteAccount:
		if n := d.queued[cluster.ScopeOf(key)]; n > 0 {
			return command.WithHint(command.Refusef(command.Conflict, "%s has %s in account %s", e.User, words.Count(n, "unfinished job"), placeOf(key)), "wait or cancel them")
		}
		if refusal := d.owns(payer(key)); refusal != nil && !d.elsewhere(key) {
			return refusal
		}
		d.partUser(old)
		d.dropUser(key)
		return nil
	case e.Parent != nil || e.Description != nil || e.Coordinators != nil:
		return command.Refuse(command.InvalidArgument, "a user of an account has no parent, description or coordinators", "those are the account's")
	}
	a := cluster.Association{AssociationKey: key, Shares: 1, Default: d.sharing.defaultOf(e.User) == cluster.AssociationKey{}}
	if known {
		a.Default = old.Default
	}
	if known && e.Action == command.ModifyAccount {
		a = *old
	}
	assign(&a.Shares, e.Shares)
	assign(&a.QOS, e.QOS)
	assign(&a.DefaultQOS, e.DefaultQOS)
	a.Limits = changedLimits(a.Limits, e)
	var before []cluster.Limit
	if known {
		before = old.Ceilings
	}
	d.bound(&a, old, e)
	if err := a.Validate(); err != nil {
		return wrongAccount(err)
	}
	if !operator {
		if refusal := d.withinMeans(&a, e); refusal != nil {
			return refusal
		}
	}
	if _, there := d.policy.Partition(key.Partition); key.Partition != "" && !known && !there {
		return command.WithHint(command.Refusef(command.InvalidArgument, "user %s: unknown partition %q", a.User, key.Partition), "partitions: %s", d.partitionNames())
	}
	d.moved = d.moved || !known && d.queued[cluster.ScopeOf(key.Everywhere())] > 0
	d.sharing.associations.Set(key, &a)
	d.sharing.homes.Set(homeOf(key), none{})
	d.member(key)
	if operator && key.Partition == "" {
		d.bindDelegated(&a, before)
	}
	if e.Default != nil {
		d.setDefault(key, *e.Default)
	}
	return d.checkQOS(a.QOS, a.DefaultQOS, "user "+a.User)
}

// placeOf is an account in words, with the partition of an association that has one.
func placeOf(key cluster.AssociationKey) string {
	if key.Partition == "" {
		return key.Account
	}
	return key.Account + " on partition " + key.Partition
}

// setDefault makes an account a user's default one, or not any more.
func (d *draft) setDefault(key cluster.AssociationKey, yes bool) {
	if other := d.sharing.defaultOf(key.User); yes && other.User != "" && other != key {
		d.makeDefault(other, false)
	}
	d.makeDefault(key, yes)
}

// whole refuses what is no tree.
func (d *draft) whole() *command.Refusal {
	if d.sharing.accounts.Len() > cluster.MaxAccounts || d.sharing.associations.Len() > 4*cluster.MaxAccounts {
		return command.Refusef(command.Exhausted, "more than %d accounts", cluster.MaxAccounts)
	}
	for _, name := range slices.Sorted(maps.Keys(d.touched)) { // the same refusal everywhere
		a, known := d.sharing.accounts.Get(name)
		if !known {
			continue
		}
		if refusal := d.checkRooted(a); refusal != nil {
			return refusal
		}
	}
	if refusal := d.checkDefaultQOS(); refusal != nil {
		return refusal
	}
	return d.nothingBelow()
}

// checkDefaultQOS refuses a default QOS that the account or user which was edited may not use.
func (d *draft) checkDefaultQOS() *command.Refusal {
	check := func(of, account string, list []string, preferred string) *command.Refusal {
		d.sharing.above(account, func(a *cluster.Account) bool {
			if len(list) == 0 {
				list = a.QOS
			}
			return len(list) == 0
		})
		if len(list) == 0 {
			list = d.policy.OpenQOS()
		}
		if preferred == "" || slices.Contains(list, preferred) {
			return nil
		}
		return command.WithHint(command.Refusef(command.InvalidArgument, "%s: the default qos %s is not among its qos: %s", of, preferred, strings.Join(list, ", ")), "also grant it: qos+=%s", preferred)
	}
	for _, name := range slices.Sorted(maps.Keys(d.touched)) {
		if a, known := d.sharing.accounts.Get(name); known {
			if refusal := check("account "+name, name, a.QOS, a.DefaultQOS); refusal != nil {
				return refusal
			}
		}
	}
	byKey := func(a, b cluster.AssociationKey) int { return strings.Compare(a.String(), b.String()) }
	for _, key := range slices.SortedFunc(maps.Keys(d.members), byKey) {
		if a, known := d.sharing.associations.Get(key); known {
			if refusal := check(key.String(), key.Account, a.QOS, a.DefaultQOS); refusal != nil {
				return refusal
			}
		}
	}
	return nil
}

// checkRooted checks that an account is connected with the root.
func (d *draft) checkRooted(a *cluster.Account) *command.Refusal {
	at := a
	for range cluster.MaxAccountDepth {
		if at.Parent == cluster.RootAccount || at.Parent == "" {
			return nil
		}
		next, known := d.sharing.accounts.Get(at.Parent)
		if !known {
			return command.Refusef(command.NotFound, "account %s: there is no account %s to be its parent", at.Name, at.Parent)
		}
		if next.Name == a.Name {
			return command.Refusef(command.InvalidArgument, "account %s would be below itself", a.Name)
		}
		at = next
	}
	return command.Refusef(command.InvalidArgument, "account %s would be more than %d below the root", a.Name, cluster.MaxAccountDepth)
}

// nothingBelow refuses to delete an account that others are below. O(accounts) when
// one was deleted.
func (d *draft) nothingBelow() *command.Refusal {
	deleted := false
	for _, g := range d.gone {
		deleted = deleted || g.from.User == ""
	}
	if !deleted {
		return nil
	}
	for _, a := range d.sharing.accounts.All() {
		if a.Parent != "" && a.Parent != cluster.RootAccount && !d.sharing.accounts.Has(a.Parent) {
			return command.WithHint(command.Refusef(command.Conflict, "account %s is below account %s", a.Name, a.Parent), "delete or move it first")
		}
	}
	return nil
}
