// Package accounts keeps the accounts and their users (associations), what they used, and what
// the running jobs add to that.
//
// Usage of an association is a value and a rate: a job adds its rate when it starts and removes
// it when it ends, so a running job counts while it runs and nothing is written meanwhile. Usage
// of an account is summed from its users when it is read. Usage of deleted users stays with the
// account, under no user. Usage decays until nothing is left; then it is dropped. Every replica
// drops it at the same command, since the time follows from the usage and the half-life alone.
package accounts

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/cow"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// Accounts is the tables of accounts. It has one writer; any goroutine may read a clone.
type Accounts struct {
	accounts     table.Table[string, *cluster.Account]
	associations table.Table[cluster.AssociationKey, *cluster.Association]
	usages       table.Table[cluster.AssociationKey, *cluster.AccountUsage]
	charges      table.Table[cluster.JobID, *cluster.Charge] // of running jobs
	version      uint64                                      // the log index of the last change, or more
	half         time.Duration                               // half-life of usage

	// Indexes.
	homes  cow.Map[home, struct{}]
	fading cow.Map[decayed, struct{}]
	tree   *cluster.AccountTree // nil after a change, until Tree is called

	// Indexes that a clone does not have.
	queued map[cluster.LimitScope]int64 // active jobs by what they count for
	names  map[string]string            // of resources
	faults []error                      // what must never happen; Check returns it
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

// New returns empty tables.
func New(h *table.Hasher, half time.Duration) Accounts {
	return Accounts{
		half: half, queued: map[cluster.LimitScope]int64{}, names: map[string]string{},
		accounts:     table.New(&accountSchema, h),
		associations: table.New(&associationSchema, h),
		usages:       table.New(&usageSchema, h),
		charges:      table.New(&chargeSchema, h),
		fading:       newDecayIndex(),
		homes: cow.New[home, struct{}](func(a, b home) int {
			return compareWords(a.user, b.user, a.account, b.account, a.partition, b.partition)
		}),
	}
}

// compareAssociations orders associations by account, then user. Each change of a table calls it
// several times, so it compares no more than it must.
func compareAssociations(a, b cluster.AssociationKey) int {
	return compareWords(a.Account, b.Account, a.User, b.User, a.Partition, b.Partition)
}

// compareWords compares three pairs of words, in that order.
func compareWords(a1, b1, a2, b2, a3, b3 string) int {
	if a1 != b1 {
		return strings.Compare(a1, b1)
	}
	if a2 != b2 {
		return strings.Compare(a2, b2)
	}
	return strings.Compare(a3, b3)
}

// Clone returns tables that later writes to x do not change. O(1).
func (x *Accounts) Clone(h *table.Hasher) Accounts {
	return Accounts{
		x.accounts.Clone(h), x.associations.Clone(h), x.usages.Clone(h), x.charges.Clone(h), x.version,
		x.half, x.homes.Clone(), x.fading.Clone(), x.tree, nil, nil, nil,
	}
}

// Digest returns the digest of the tables. O(1).
func (x *Accounts) Digest() uint64 {
	return x.accounts.Digest() ^ x.associations.Digest() ^ x.usages.Digest() ^ x.charges.Digest()
}

// Encode writes the tables into a snapshot.
func (x *Accounts) Encode(w *table.Writer) {
	x.accounts.Encode(w)
	x.associations.Encode(w)
	x.usages.Encode(w)
	x.charges.Encode(w)
}

// Readers returns what reads the tables from a snapshot. holds reports whether a job has an
// allocation.
func (x *Accounts) Readers(holds func(cluster.JobID) bool) table.Readers {
	return table.Readers{
		table.Accounts: x.readAccount, table.Associations: x.readAssociation, table.Usages: x.readUsage,
		table.Charges: func(c *codec.Coder) { x.readCharge(c, holds) },
	}
}

func (x *Accounts) readAccount(c *codec.Coder) {
	if _, a := x.accounts.Decode(c); !c.Failed() && a.Validate() != nil {
		c.Fail("account %q is not well formed", a.Name)
	}
}

func (x *Accounts) readAssociation(c *codec.Coder) {
	_, a := x.associations.Decode(c)
	switch {
	case c.Failed():
	case a.Validate() != nil || !x.accounts.Has(a.Account):
		c.Fail("user %q of account %q is not well formed", a.User, a.Account)
	default:
		x.homes.Set(homeOf(a.AssociationKey), struct{}{})
	}
}

func (x *Accounts) readUsage(c *codec.Coder) {
	_, u := x.usages.Decode(c)
	if c.Failed() {
		return
	}
	for i := range u.Raw {
		x.intern(&u.Raw[i].Resource)
		if i > 0 && u.Raw[i].Resource <= u.Raw[i-1].Resource {
			c.Fail("the usage of %q in account %q is not in order", u.User, u.Account)
		}
	}
	x.fade(u)
}

func (x *Accounts) readCharge(c *codec.Coder, holds func(cluster.JobID) bool) {
	id, charge := x.charges.Decode(c)
	if c.Failed() {
		return
	}
	for i := range charge.Amounts {
		x.intern(&charge.Amounts[i].Resource)
	}
	if !holds(id) {
		c.Fail("job %d is charged but does not run", id)
	}
}

// Connected reports whether every account is reached from the root. O(accounts).
func (x *Accounts) Connected() bool {
	want := x.accounts.Len() + x.associations.Len()
	if t := x.Tree(); t != nil && !x.accounts.Has(cluster.RootAccount) {
		want++
	}
	return x.Tree() == nil || len(x.Tree().Nodes) == want
}

// intern lets equal names of resources share memory.
func (x *Accounts) intern(name *string) {
	if known, found := x.names[*name]; found {
		*name = known
	} else if x.names != nil {
		x.names[*name] = *name
	}
}

// Version grows with each change of accounts; 0 before the first.
func (x *Accounts) Version() uint64 { return x.version }

// SetVersion sets the version that a snapshot holds.
func (x *Accounts) SetVersion(version uint64) { x.version = version }

// Len returns the number of accounts. O(1).
func (x *Accounts) Len() int { return x.accounts.Len() }

// Has reports whether an account is defined. O(log n).
func (x *Accounts) Has(account string) bool { return x.accounts.Has(account) }

// Get returns an account. O(log n).
func (x *Accounts) Get(account string) (*cluster.Account, bool) { return x.accounts.Get(account) }

// All yields the accounts by name.
func (x *Accounts) All() iter.Seq[*cluster.Account] { return x.accounts.Values() }

// Tree returns the accounts as a tree; nil if there are none. O(1), or after a change of
// accounts O(accounts + users).
func (x *Accounts) Tree() *cluster.AccountTree {
	if x.tree == nil && x.accounts.Len() > 0 {
		x.tree = cluster.NewAccountTree(x.accounts.Values(), x.associations.Values())
	}
	return x.tree
}

// View returns what a scheduling pass sees of accounts. The caller of a clone must have called
// Tree on the original before. O(1).
func (x *Accounts) View() *cluster.AccountView {
	return &cluster.AccountView{
		Tree: x.tree,
		Used: x.usages.Values(),
		Usage: func(key cluster.AssociationKey) *cluster.AccountUsage {
			u, _ := x.usages.Get(key)
			return u
		},
		Running: x.charges.All(),
	}
}

// Chain returns the payers of a user's jobs in an account: the user, the account and all above
// it. With user "" it begins with the account. O(depth).
func (x *Accounts) Chain(account, user string) accounting.PayerPath {
	var c accounting.PayerPath
	if user != "" {
		c = append(c, accounting.PayerID(account+"/"+user))
	}
	c = append(c, accounting.PayerID(account))
	x.Above(account, func(a *cluster.Account) bool {
		if a.Parent != "" && x.accounts.Has(a.Parent) {
			c = append(c, accounting.PayerID(a.Parent))
		}
		return true
	})
	return c
}

// Above yields an account and those above it, as far as they are defined, nearest first.
func (x *Accounts) Above(name string, yield func(*cluster.Account) bool) {
	for {
		a, known := x.accounts.Get(name)
		if !known || !yield(a) {
			return
		}
		name = a.Parent
	}
}

// Coordinates reports whether a user is a coordinator of an account or of one above it.
func (x *Accounts) Coordinates(user, account string) (yes bool) {
	x.Above(account, func(a *cluster.Account) bool {
		_, yes = slices.BinarySearch(a.Coordinators, user)
		return !yes
	})
	return yes
}

// DefaultOf returns the association whose account a user's jobs get if they name none;
// the zero key for none. O(associations of the user).
func (x *Accounts) DefaultOf(user string) cluster.AssociationKey {
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

// Member reports whether a user is in an account, if only for one partition. O(log n).
func (x *Accounts) Member(account, user string) bool {
	for k := range x.homes.From(home{user: user, account: account}) {
		return k.user == user && k.account == account
	}
	return false
}

// Association returns the association of a user's jobs in an account and a partition.
// O(log n).
func (x *Accounts) Association(key cluster.AssociationKey) (*cluster.Association, bool) {
	if a, known := x.associations.Get(key); known {
		return a, true
	}
	return x.associations.Get(key.WithoutPartition())
}

// Partitions returns the partitions of a user's associations in an account; "" means all.
func (x *Accounts) Partitions(user, account string) (names []string) {
	for k := range x.homes.From(home{user: user, account: account}) {
		if k.user != user || k.account != account {
			break
		}
		names = append(names, k.partition)
	}
	return names
}

// AccountsOf returns the accounts of a user, from at most that many associations.
func (x *Accounts) AccountsOf(user string, most int) (names []string) {
	n := 0
	for k := range x.homes.From(home{user: user}) {
		if k.user != user || n == most {
			break
		}
		n++
		names = append(names, k.account)
	}
	return slices.Compact(names)
}

// Queued returns how many active jobs count for a scope.
func (x *Accounts) Queued(scope cluster.LimitScope) int64 { return x.queued[scope] }

// Count adds jobs of a specification to each of their scopes.
func (x *Accounts) Count(spec *cluster.JobSpec, n int64) {
	x.Tree().Scopes(spec, func(scope cluster.LimitScope) {
		if x.queued[scope] += n; x.queued[scope] == 0 {
			delete(x.queued, scope)
		}
	})
}

// Recount counts the active jobs by scope again. O(jobs × depth).
func (x *Accounts) Recount(active iter.Seq[*cluster.Job]) {
	x.queued = map[cluster.LimitScope]int64{}
	for j := range active {
		x.Count(j.Spec, 1)
	}
}

// CountChange updates the counts for a job that changes from old to j. old is nil for a new job.
// O(depth).
func (x *Accounts) CountChange(old, j *cluster.Job) {
	switch {
	case old == nil:
		x.Count(j.Spec, 1)
	case j.State.Final():
		x.Count(old.Spec, -1)
	case old.Spec != j.Spec && (old.Spec.QOS != j.Spec.QOS || old.Spec.Association() != j.Spec.Association()):
		x.Count(old.Spec, -1)
		x.Count(j.Spec, 1)
	}
}
