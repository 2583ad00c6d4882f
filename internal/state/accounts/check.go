package accounts

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/greylag/greylag/pkg/cluster"
)

// Check returns every invariant that does not hold. O(n + jobs).
func (x *Accounts) Check(now cluster.Instant, active iter.Seq[*cluster.Job]) []error {
	c := &checker{Accounts: x, now: now, active: active, running: map[cluster.JobID]*cluster.Job{}}
	c.found = append(slices.Clone(x.faults), x.accounts.Check(), x.associations.Check(), x.usages.Check(), x.charges.Check())
	for j := range active {
		if Runs(j) {
			c.running[j.ID] = j
		}
	}
	c.checkAccounts()
	c.checkUsage()
	return c.found
}

// Runs reports whether a job uses its allocation.
func Runs(j *cluster.Job) bool {
	return j != nil && j.State.HasAllocation() && j.State != cluster.Completing
}

// checker is a check of the tables in progress.
type checker struct {
	*Accounts
	now     cluster.Instant
	active  iter.Seq[*cluster.Job]
	running map[cluster.JobID]*cluster.Job
	found   []error
}

func (x *checker) fault(format string, args ...any) {
	x.found = append(x.found, fmt.Errorf(format, args...))
}

// checkAccounts checks the tables of accounts and their indexes.
func (x *checker) checkAccounts() {
	defaults := map[string]int{}
	for key, a := range x.associations.All() {
		if key != a.AssociationKey || !x.accounts.Has(key.Account) || !x.homes.Has(homeOf(key)) {
			x.fault("user %s of account %s is not listed, or the account does not exist", key.User, key.Account)
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
		x.Above(name, func(a *cluster.Account) bool { top = a.Parent; return true })
		if name != a.Name || a.Validate() != nil || top != cluster.RootAccount && top != "" {
			x.fault("account %q is not well formed, or has no parent", name)
		}
	}
	queued := x.queued
	x.Recount(x.active)
	if !maps.Equal(queued, x.queued) {
		x.fault("jobs by scope %v, want %v", queued, x.queued)
	}
	x.queued = queued
}

// checkUsage checks that exactly the running jobs have a charge, and that each usage has the sum
// of their rates.
func (x *checker) checkUsage() {
	rates := map[cluster.AssociationKey]map[string]int64{}
	for id, c := range x.charges.All() {
		if j := x.running[id]; j == nil || x.Tree().Resolve(j.Spec.Association()) != c.AssociationKey {
			x.fault("job %d counts for %s in account %q and does not run for them", id, c.User, c.Account)
		}
		if rates[c.AssociationKey] == nil {
			rates[c.AssociationKey] = map[string]int64{}
		}
		r := rates[c.AssociationKey]
		r[""] += c.Rate
		r[cluster.ResourceWall]++
		for _, a := range c.Amounts {
			r[a.Resource] += a.Count
		}
	}
	if len(x.running) != x.charges.Len() {
		x.fault("%d jobs run, %d have a charge", len(x.running), x.charges.Len())
	}
	for key, u := range x.usages.All() {
		if key != u.AssociationKey || u.Billed.Rate != rates[key][""] || u.Billed.Value < 0 || u.Billed.At > x.now {
			x.fault("%s in account %q uses %+v a second, want %d", key.User, key.Account, u.Billed, rates[key][""])
		}
		for _, r := range u.Raw {
			if r.Usage.Rate != rates[key][r.Resource] || r.Usage.Value < 0 {
				x.fault("%s in account %q uses %d of %s, want %d", key.User, key.Account, r.Usage.Rate, r.Resource, rates[key][r.Resource])
			}
		}
	}
	forgotten := 0
	for key, u := range x.usages.All() {
		if at := x.fadesAt(u); at != cluster.Never && x.fading.Has(decayed{at, key}) {
			forgotten++
		}
	}
	if forgotten != x.fading.Len() {
		x.fault("%d usages fade, %d are listed", forgotten, x.fading.Len())
	}
}
