package state

import (
	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// encodeSharing writes accounts, their users, usage and what runs.
func (v *View) encodeSharing(f *frames) {
	f.of(frameAccounts)
	if v.accountsAt > 0 {
		at := v.accountsAt
		record(f, &none{}, noKey, &at, codec.Uint)
	}
	for _, a := range v.accounts.All() {
		record(f, &none{}, noKey, a, command.AccountFields)
	}
	f.of(frameAssociations)
	for _, a := range v.associations.All() {
		record(f, &none{}, noKey, a, command.AssociationFields)
	}
	f.of(frameUsages)
	for _, u := range v.usages.All() {
		record(f, &none{}, noKey, u, command.UsageFields)
	}
	f.of(frameCharges)
	for id, c := range v.charges.All() {
		record(f, &id, codec.Uint, c, command.ChargeFields)
	}
}

func (x *restoring) readAccount(c *codec.Coder) {
	if x.accountsAt == 0 { // the first record
		codec.Record(c, &x.accountsAt, codec.Uint)
		return
	}
	a := new(cluster.Account)
	codec.Record(c, a, command.AccountFields)
	if !c.Failed() && (a.Validate() != nil || !x.accounts.Set(a.Name, a)) {
		c.Fail("account %q is not well formed", a.Name)
	}
}

func (x *restoring) readAssociation(c *codec.Coder) {
	a := new(cluster.Association)
	codec.Record(c, a, command.AssociationFields)
	if c.Failed() {
		return
	}
	if a.Validate() != nil || !x.accounts.Has(a.Account) || !x.associations.Set(a.AssociationKey, a) {
		c.Fail("user %q of account %q is not well formed", a.User, a.Account)
		return
	}
	x.homes.Set(homeOf(a.AssociationKey), none{})
}

func (x *restoring) readUsage(c *codec.Coder) {
	u := new(cluster.AccountUsage)
	codec.Record(c, u, command.UsageFields)
	if c.Failed() {
		return
	}
	for i := range u.Raw {
		x.words.share(&u.Raw[i].Resource)
		if i > 0 && u.Raw[i].Resource <= u.Raw[i-1].Resource {
			c.Fail("the usage of %q in account %q is not in order", u.User, u.Account)
		}
	}
	if !x.usages.Set(u.AssociationKey, u) {
		c.Fail("the usage of %q in account %q is there twice", u.User, u.Account)
	}
	x.fade(u)
}

func (x *restoring) readCharge(c *codec.Coder) {
	var id cluster.JobID
	charge := new(cluster.Charge)
	codec.Uint(c, &id)
	codec.Record(c, charge, command.ChargeFields)
	if c.Failed() {
		return
	}
	for i := range charge.Amounts {
		x.words.share(&charge.Amounts[i].Resource)
	}
	if !x.holding.Has(id) || !x.charges.Set(id, charge) {
		c.Fail("job %d counts and does not run", id)
	}
}

// connected reports whether every account is reached from the root.
func (x *restoring) connected() bool {
	want := x.accounts.Len() + x.associations.Len()
	if t := x.shared(); t != nil && !x.accounts.Has(cluster.RootAccount) {
		want++
	}
	return x.shared() == nil || len(x.shared().Nodes) == want
}
