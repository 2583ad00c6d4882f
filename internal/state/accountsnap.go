package state

import (
	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/cluster"
)

// encode writes accounts, their users, usage and charges.
func (x *sharing) encode(w *table.Writer) {
	x.accounts.Encode(w)
	x.associations.Encode(w)
	x.usages.Encode(w)
	x.charges.Encode(w)
}

func (x *restoring) readAccount(c *codec.Coder) {
	if _, a := x.accounts.Decode(c); !c.Failed() && a.Validate() != nil {
		c.Fail("account %q is not well formed", a.Name)
	}
}

func (x *restoring) readAssociation(c *codec.Coder) {
	_, a := x.associations.Decode(c)
	switch {
	case c.Failed():
	case a.Validate() != nil || !x.accounts.Has(a.Account):
		c.Fail("user %q of account %q is not well formed", a.User, a.Account)
	default:
		x.homes.Set(homeOf(a.AssociationKey), none{})
	}
}

func (x *restoring) readUsage(c *codec.Coder) {
	_, u := x.usages.Decode(c)
	if c.Failed() {
		return
	}
	for i := range u.Raw {
		x.words.share(&u.Raw[i].Resource)
		if i > 0 && u.Raw[i].Resource <= u.Raw[i-1].Resource {
			c.Fail("the usage of %q in account %q is not in order", u.User, u.Account)
		}
	}
	x.fade(u)
}

func (x *restoring) readCharge(c *codec.Coder) {
	id, charge := x.charges.Decode(c)
	if c.Failed() {
		return
	}
	for i := range charge.Amounts {
		x.words.share(&charge.Amounts[i].Resource)
	}
	if !x.holding.Has(id) {
		c.Fail("job %d is charged but does not run", id)
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
