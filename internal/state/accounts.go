package state

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/cow"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/cluster"
)

// sharing is the tables of who shares the cluster, and what they used.
type sharing struct {
	accounts     table.Table[string, *cluster.Account]
	associations table.Table[cluster.AssociationKey, *cluster.Association]
	usages       table.Table[cluster.AssociationKey, *cluster.AccountUsage]
	charges      table.Table[cluster.JobID, *cluster.Charge] // of jobs that run
	accountsAt   uint64                                      // version: the log index of the last change, or more

	// Indexes.
	homes  cow.Map[home, none]
	fading cow.Map[faded, none]
	tree   *cluster.AccountTree // nil after a change, until it is asked for
}

// home orders associations by user.
type home struct{ user, account, partition string }

func homeOf(k cluster.AssociationKey) home { return home{k.User, k.Account, k.Partition} }

func (h home) key() cluster.AssociationKey {
	return cluster.AssociationKey{Account: h.account, User: h.user, Partition: h.partition}
}

var accountSchema = table.Schema[string, *cluster.Account]{ // never written
	Kind: table.Accounts, Compare: strings.Compare, Fields: table.Pointer(command.AccountFields),
	KeyOf: func(a **cluster.Account) string { return (*a).Name },
}

var associationSchema = table.Schema[cluster.AssociationKey, *cluster.Association]{ // never written
	Kind: table.Associations, Compare: compareAssociations, Fields: table.Pointer(command.AssociationFields),
	KeyOf: func(a **cluster.Association) cluster.AssociationKey { return (*a).AssociationKey },
}

var usageSchema = table.Schema[cluster.AssociationKey, *cluster.AccountUsage]{ // never written
	Kind: table.Usages, Compare: compareAssociations, Fields: table.Pointer(command.UsageFields),
	KeyOf: func(u **cluster.AccountUsage) cluster.AssociationKey { return (*u).AssociationKey },
}

var chargeSchema = table.Schema[cluster.JobID, *cluster.Charge]{ // never written
	Kind: table.Charges, Compare: cmp.Compare[cluster.JobID], Key: codec.Uint[cluster.JobID], Fields: table.Pointer(command.ChargeFields),
}

func newSharing(h *table.Hasher) sharing {
	return sharing{
		accounts:     table.New(&accountSchema, h),
		associations: table.New(&associationSchema, h),
		usages:       table.New(&usageSchema, h),
		charges:      table.New(&chargeSchema, h),
		fading:       newFading(),
		homes: cow.New[home, none](func(a, b home) int {
			return compareWords(a.user, b.user, a.account, b.account, a.partition, b.partition)
		}),
	}
}

// compareAssociations orders associations by account, then user. It and its like are
// called several times for each change of a table: they look no further than they must.
func compareAssociations(a, b cluster.AssociationKey) int {
	return compareWords(a.Account, b.Account, a.User, b.User, a.Partition, b.Partition)
}

// compareWords compares three pairs of words, the first first.
func compareWords(a1, b1, a2, b2, a3, b3 string) int {
	if a1 != b1 {
		return strings.Compare(a1, b1)
	}
	if a2 != b2 {
		return strings.Compare(a2, b2)
	}
	return strings.Compare(a3, b3)
}

// clone is sharing that later writes do not change. O(1).
func (x *sharing) clone(h *table.Hasher) sharing {
	c := *x
	c.accounts, c.associations = x.accounts.Clone(h), x.associations.Clone(h)
	c.usages, c.charges, c.homes = x.usages.Clone(h), x.charges.Clone(h), x.homes.Clone()
	c.fading = x.fading.Clone()
	return c
}

// shared is the accounts as a tree; nil when there are none. O(1), or after a change
// of accounts O(accounts + users).
func (x *sharing) shared() *cluster.AccountTree {
	if x.tree == nil && x.accounts.Len() > 0 {
		x.tree = cluster.NewAccountTree(x.accounts.Values(), x.associations.Values())
	}
	return x.tree
}

// above yields an account and those above it, as far as they are defined, nearest first.
func (x *sharing) above(name string, yield func(*cluster.Account) bool) {
	for {
		a, known := x.accounts.Get(name)
		if !known || !yield(a) {
			return
		}
		name = a.Parent
	}
}

// coordinates reports whether a user is a coordinator of an account or of one above it.
func (x *sharing) coordinates(user, account string) (yes bool) {
	x.above(account, func(a *cluster.Account) bool {
		_, yes = slices.BinarySearch(a.Coordinators, user)
		return !yes
	})
	return yes
}

// defaultOf is the association whose account is that of a user's jobs that name none;
// the zero key for none. O(associations of the user).
func (x *sharing) defaultOf(user string) cluster.AssociationKey {
	for k := range x.homes.From(home{user: user}) {
		if k.user != user {
			break
		}
		if a, _ := x.associations.Get(k.key()); a.Default {
			return k.key()
		}
	}
	return cluster.AssociationKey{}
}

// member reports whether a user is in an account, if only for one partition. O(log n).
func (x *sharing) member(account, user string) bool {
	for k := range x.homes.From(home{user: user, account: account}) {
		return k.user == user && k.account == account
	}
	return false
}

// association is that of a user's jobs in an account which may run in a partition.
// O(log n).
func (x *sharing) association(key cluster.AssociationKey) (*cluster.Association, bool) {
	if a, known := x.associations.Get(key); known {
		return a, true
	}
	return x.associations.Get(key.Everywhere())
}

// editAccounts changes accounts: all edits or none. O(edits log n), and when accounts
// with jobs move O(jobs).
func (s *State) editAccounts(c *command.EditAccounts) command.Result {
	if again := s.repeated(c.Request); again != nil {
		return again
	}
	if len(c.Edits) == 0 {
		return command.Refuse(command.InvalidArgument, "no account is named", "")
	}
	if c.Expect != 0 && c.Expect != s.accountsAt {
		return s.remember(c.Request, command.Refuse(command.Conflict, "somebody changed the accounts meanwhile", "look at them and try again: gctl account list"))
	}
	d := &draft{State: s, sharing: s.sharing.clone(s.hasher), actor: c.Actor}
	for i := range c.Edits {
		if refusal := d.edit(&c.Edits[i]); refusal != nil {
			return s.remember(c.Request, refusal)
		}
	}
	if refusal := d.whole(); refusal != nil {
		return s.remember(c.Request, refusal)
	}
	s.adopt(d)
	return s.remember(c.Request, &command.Done{Version: s.accountsAt, Notes: d.notes})
}

// adopt puts a draft in force.
func (s *State) adopt(d *draft) {
	usages, fading := s.usages, s.fading
	version := max(s.accountsAt+1, s.index)
	s.sharing = d.sharing
	s.usages, s.fading, s.tree, s.accountsAt = usages, fading, nil, version
	if d.moved {
		s.recountQueued()
		s.rechargeRunning()
	}
	for _, gone := range d.gone {
		s.transferUsage(gone.from, gone.to)
	}
	s.moveCredits(d)
	for _, id := range d.left {
		s.endBudget(id)
	}
	s.retryAll = true
	s.specs.clear()
	s.effects.Changed = append(s.effects.Changed, Change{Kind: PolicyChanged})
}

// recountQueued counts the active jobs by scope from scratch. O(jobs × depth).
func (s *State) recountQueued() {
	clear(s.queued)
	for _, j := range s.pending.All() {
		s.count(j.Spec, 1)
	}
	for _, j := range s.holding.All() {
		s.count(j.Spec, 1)
	}
}

// count adds jobs of a specification to what is counted in each of their scopes.
func (s *State) count(spec *cluster.JobSpec, n int64) {
	s.shared().Scopes(spec, func(scope cluster.Scope) {
		if s.queued[scope] += n; s.queued[scope] == 0 {
			delete(s.queued, scope)
		}
	})
}

// checkAccounts checks the tables of accounts and their indexes.
func (x *checking) checkAccounts() {
	defaults := map[string]int{}
	for key, a := range x.associations.All() {
		if key != a.AssociationKey || !x.accounts.Has(key.Account) || !x.homes.Has(homeOf(key)) {
			x.fault("user %s of account %s is not listed, or the account is not there", key.User, key.Account)
		}
		if a.Default {
			defaults[key.User]++
		}
	}
	for user, n := range defaults {
		if n > 1 {
			x.fault("user %s has %d default accounts", user, n)
		}
	}
	if x.homes.Len() != x.associations.Len() {
		x.fault("%d accounts of users, want %d", x.homes.Len(), x.associations.Len())
	}
	for name, a := range x.accounts.All() {
		top := ""
		x.above(name, func(a *cluster.Account) bool { top = a.Parent; return true })
		if name != a.Name || a.Validate() != nil || top != cluster.RootAccount && top != "" {
			x.fault("account %q is not well formed, or hangs on nothing", name)
		}
	}
	queued := maps.Clone(x.queued)
	x.recountQueued()
	if !maps.Equal(queued, x.queued) {
		x.fault("jobs by account and qos %v, want %v", queued, x.queued)
	}
	x.queued = queued
}
