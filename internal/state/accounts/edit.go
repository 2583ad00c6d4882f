package accounts

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/schedule/words"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// Edit is what a change of accounts needs besides the accounts.
type Edit struct {
	Actor  command.Actor
	Policy *cluster.Policy
	Ledger *accounting.Ledger // read only
	// BillsChange is for how long after the end of an attempt a late report may change its bill.
	BillsChange time.Duration
}

// Draft is the accounts as edits make them, before they are in force. What other tables must do
// is in its exported fields.
type Draft struct {
	Touched map[string]struct{}  // accounts that were added, changed or deleted
	Moved   bool                 // jobs count for other scopes now
	Left    []accounting.PayerID // deleted payers, whose budgets end
	Notes   []string             // what was deleted with accounts and users

	Edit
	draft   Accounts
	members map[cluster.AssociationKey]struct{} // associations that were added, changed or deleted
	gone    []usageTransfer
	bills   map[accounting.PayerID]accounting.LienID // by payer, the last that may change; nil until needed
}

// usageTransfer is usage that passes from a deleted account or association to another.
type usageTransfer struct{ from, to cluster.AssociationKey }

// Draft makes all edits, or returns why it may not. x does not change. O(edits log n).
func (x *Accounts) Draft(edits []command.AccountEdit, with Edit, h *table.Hasher) (*Draft, *command.Refusal) {
	d := &Draft{Edit: with, draft: x.Clone(h), Touched: map[string]struct{}{}, members: map[cluster.AssociationKey]struct{}{}}
	d.draft.queued = x.queued
	for i := range edits {
		if refusal := d.edit(&edits[i]); refusal != nil {
			return nil, refusal
		}
	}
	return d, d.checkWhole()
}

// Adopt puts a draft in force at a log index.
func (x *Accounts) Adopt(d *Draft, index uint64, now cluster.Instant) {
	x.accounts, x.associations, x.homes = d.draft.accounts, d.draft.associations, d.draft.homes
	x.version, x.tree = max(x.version+1, index), nil
	for _, t := range d.gone {
		x.transfer(now, t.from, t.to)
	}
}

// edit makes one edit, or returns why it may not.
func (d *Draft) edit(e *command.AccountEdit) *command.Refusal {
	if e.Action < command.AddAccount || e.Action > command.PutAccount {
		return command.Refusef(command.InvalidArgument, "unknown action %d on accounts", e.Action)
	}
	switch {
	case e.User != "":
		return d.editUser(e)
	case e.Partition != "":
		return command.Refuse(command.InvalidArgument, "only a user of an account has associations for partitions", "write user=NAME partition=NAME")
	}
	if !d.Actor.Has(command.RoleOperator) {
		return command.WithHint(command.Refusef(command.Denied, "%s may not change account %s: requires role operator", d.Actor.Identity.User, e.Account), "coordinators may change the users of their accounts")
	}
	old, known := d.draft.accounts.Get(e.Account)
	switch {
	case e.Default != nil:
		return command.Refuse(command.InvalidArgument, "only a user has a default account", "")
	case known && e.Action == command.AddAccount:
		return command.WithHint(command.Refusef(command.Conflict, "account %s already exists", e.Account), "change it with gctl account modify")
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
		if refusal := command.CheckText("of account "+command.Sanitize(a.Name), a.Name, a.Description); refusal != nil {
			return refusal
		}
	}
	d.Moved = d.Moved || (!known || old.Parent != a.Parent) && d.draft.queued[cluster.LimitScope{Account: a.Name}] > 0
	d.putAccount(&a)
	return d.checkQOS(a.QOS, a.DefaultQOS, "account "+a.Name)
}

func wrongAccount(err error) *command.Refusal {
	return command.Refuse(command.InvalidArgument, strings.ReplaceAll(command.OneLine(err), cluster.ErrInvalidAccount.Error()+": ", ""), "")
}

func (d *Draft) putAccount(a *cluster.Account) {
	d.draft.accounts.Set(a.Name, a)
	d.Touched[a.Name] = struct{}{}
}

// changedLimits is limits without those that an edit takes away, and with those it sets.
func changedLimits(limits []cluster.Limit, e *command.AccountEdit) []cluster.Limit {
	kept := slices.DeleteFunc(slices.Clone(limits), func(l cluster.Limit) bool {
		return slices.ContainsFunc(e.Unset, func(u cluster.Limit) bool { return u.Kind == l.Kind && u.Resource == l.Resource })
	})
	return cluster.SortLimits(append(kept, e.Set...))
}

// checkQOS refuses the names of QOS that the policy does not have.
func (d *Draft) checkQOS(qos []string, preferred, of string) *command.Refusal {
	for _, name := range append(slices.Clone(qos), preferred) {
		if _, known := d.Policy.QOSNamed(name); !known && name != "" {
			return command.WithHint(command.Refusef(command.InvalidArgument, "%s: unknown qos %q", of, name), "qos: %s", QOSNames(d.Policy))
		}
	}
	return nil
}

// dropAccount deletes an account with its users.
func (d *Draft) dropAccount(name string) *command.Refusal {
	if n := d.draft.queued[cluster.LimitScope{Account: name}]; n > 0 && name != cluster.RootAccount {
		return command.WithHint(command.Refusef(command.Conflict, "account %s has %s", name, words.Count(n, "unfinished job")), "gqueue --account=%s lists them; wait or cancel them", name)
	}
	a, known := d.draft.accounts.Get(name)
	if !known {
		return nil // root, which need not be defined
	}
	var users []cluster.AssociationKey
	for key := range d.draft.associations.From(cluster.AssociationKey{Account: name}) {
		if key.Account != name {
			break
		}
		users = append(users, key)
	}
	if refusal := d.checkSettled(accounting.PayerID(name)); refusal != nil {
		return refusal
	}
	for id := range d.Ledger.PayersFrom(accounting.PayerID(name + "/")) { // deleted users too
		if !strings.HasPrefix(string(id), name+"/") {
			break
		}
		if refusal := d.checkSettled(id); refusal != nil {
			return refusal
		}
	}
	d.noteDeletedAccount(a, users)
	for _, key := range users {
		d.dropUser(key)
	}
	d.gone = append(d.gone, usageTransfer{cluster.AssociationKey{Account: name}, cluster.AssociationKey{Account: a.Parent}})
	d.draft.accounts.Delete(name)
	d.Touched[name] = struct{}{}
	return nil
}

// checkWhole refuses accounts that are not a tree.
func (d *Draft) checkWhole() *command.Refusal {
	if d.draft.accounts.Len() > cluster.MaxAccounts || d.draft.associations.Len() > 4*cluster.MaxAccounts {
		return command.Refusef(command.Exhausted, "more than %d accounts", cluster.MaxAccounts)
	}
	for _, name := range slices.Sorted(maps.Keys(d.Touched)) { // the same refusal everywhere
		a, known := d.draft.accounts.Get(name)
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
func (d *Draft) checkDefaultQOS() *command.Refusal {
	check := func(of, account string, list []string, preferred string) *command.Refusal {
		d.draft.Above(account, func(a *cluster.Account) bool {
			if len(list) == 0 {
				list = a.QOS
			}
			return len(list) == 0
		})
		if len(list) == 0 {
			list = d.Policy.OpenQOS()
		}
		if preferred == "" || slices.Contains(list, preferred) {
			return nil
		}
		return command.WithHint(command.Refusef(command.InvalidArgument, "%s: the default qos %s is not among its qos: %s", of, preferred, strings.Join(list, ", ")), "also grant it: qos+=%s", preferred)
	}
	for _, name := range slices.Sorted(maps.Keys(d.Touched)) {
		if a, known := d.draft.accounts.Get(name); known {
			if refusal := check("account "+name, name, a.QOS, a.DefaultQOS); refusal != nil {
				return refusal
			}
		}
	}
	byKey := func(a, b cluster.AssociationKey) int { return strings.Compare(a.String(), b.String()) }
	for _, key := range slices.SortedFunc(maps.Keys(d.members), byKey) {
		if a, known := d.draft.associations.Get(key); known {
			if refusal := check(key.String(), key.Account, a.QOS, a.DefaultQOS); refusal != nil {
				return refusal
			}
		}
	}
	return nil
}

// checkRooted checks that an account is connected with the root.
func (d *Draft) checkRooted(a *cluster.Account) *command.Refusal {
	at := a
	for range cluster.MaxAccountDepth {
		if at.Parent == cluster.RootAccount || at.Parent == "" {
			return nil
		}
		next, known := d.draft.accounts.Get(at.Parent)
		if !known {
			return command.Refusef(command.NotFound, "account %s: its parent %s does not exist", at.Name, at.Parent)
		}
		if next.Name == a.Name {
			return command.Refusef(command.InvalidArgument, "account %s would become its own ancestor", a.Name)
		}
		at = next
	}
	return command.Refusef(command.InvalidArgument, "account %s would be more than %d levels deep", a.Name, cluster.MaxAccountDepth)
}

// nothingBelow refuses to delete an account that others are below. O(accounts) when
// one was deleted.
func (d *Draft) nothingBelow() *command.Refusal {
	deleted := false
	for _, g := range d.gone {
		deleted = deleted || g.from.User == ""
	}
	if !deleted {
		return nil
	}
	for _, a := range d.draft.accounts.All() {
		if a.Parent != "" && a.Parent != cluster.RootAccount && !d.draft.accounts.Has(a.Parent) {
			return command.WithHint(command.Refusef(command.Conflict, "account %s is a sub-account of %s", a.Name, a.Parent), "delete or move it first")
		}
	}
	return nil
}

func assign[T any](field *T, value *T) {
	if value != nil {
		*field = *value
	}
}

// QOSNames lists the QOS of a policy for a hint.
func QOSNames(p *cluster.Policy) string {
	names := make([]string, 0, len(p.QOS))
	for _, q := range p.QOS {
		names = append(names, q.Name)
	}
	return strings.Join(names, ", ")
}

// PartitionNames lists the partitions of a policy for a hint.
func PartitionNames(p *cluster.Policy) string {
	names := make([]string, 0, len(p.Partitions))
	for _, x := range p.Partitions {
		names = append(names, x.Name)
	}
	return strings.Join(names, ", ")
}
