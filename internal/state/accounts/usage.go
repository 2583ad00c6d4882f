package accounts

import (
	"fmt"
	"slices"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/fairshare"
)

// Begin adds the charge of a job that starts. O(resources log n).
func (x *Accounts) Begin(now cluster.Instant, id cluster.JobID, c *cluster.Charge) {
	for i := range c.Amounts {
		x.intern(&c.Amounts[i].Resource)
	}
	x.charges.Set(id, c)
	x.use(now, c, 1)
}

// End removes the charge of a job that ends. O(resources log n).
func (x *Accounts) End(now cluster.Instant, id cluster.JobID) {
	c, known := x.charges.Delete(id)
	if !known {
		x.faults = append(x.faults, fmt.Errorf("job %d runs and has no charge", id))
		return
	}
	x.use(now, c, -1)
}

// ResetUsageRates has each running job count for its present association. What it used before stays
// where it was. job returns a job with an allocation. O(running jobs).
func (x *Accounts) ResetUsageRates(now cluster.Instant, job func(cluster.JobID) (*cluster.Job, bool)) {
	all := x.charges.Map.Clone()
	for id, old := range all.All() {
		j, _ := job(id)
		key := x.Tree().Resolve(j.Spec.Association())
		if key == old.AssociationKey {
			continue
		}
		x.End(now, id)
		c := *old
		c.AssociationKey = key
		x.Begin(now, id, &c)
	}
}

// use adds the rate of a charge to its association's usage, or with sign -1 removes it.
func (x *Accounts) use(now cluster.Instant, c *cluster.Charge, sign int64) {
	old, known := x.usages.Get(c.AssociationKey)
	u := &cluster.AccountUsage{AssociationKey: c.AssociationKey}
	if known {
		u.Billed, u.Raw = old.Billed, slices.Clone(old.Raw)
	}
	u.Billed = fairshare.Rebase(u.Billed, now, x.half)
	u.Billed.Rate += sign * c.Rate
	for _, a := range c.Amounts {
		x.useOne(now, u, a.Resource, sign*a.Count)
	}
	x.useOne(now, u, cluster.ResourceWall, sign)
	x.putUsage(old, u)
	x.Forget(now, fewFaded)
}

// useOne changes the rate at which one resource is used.
func (x *Accounts) useOne(now cluster.Instant, u *cluster.AccountUsage, resource string, rate int64) {
	r := resourceOf(u, resource)
	r.Usage = fairshare.Rebase(r.Usage, now, x.half)
	r.Usage.Rate += rate
}

// resourceOf returns the place of a resource in u, which may be written.
func resourceOf(u *cluster.AccountUsage, resource string) *cluster.ResourceUsage {
	i, found := slices.BinarySearchFunc(u.Raw, resource, func(r cluster.ResourceUsage, name string) int {
		switch {
		case r.Resource < name:
			return -1
		case r.Resource > name:
			return 1
		}
		return 0
	})
	if !found {
		u.Raw = slices.Insert(u.Raw, i, cluster.ResourceUsage{Resource: resource})
	}
	return &u.Raw[i]
}

// putUsage replaces a usage; old is nil for a new one.
func (x *Accounts) putUsage(old, u *cluster.AccountUsage) {
	if old != nil {
		x.unfade(old)
	}
	x.usages.Set(u.AssociationKey, u)
	x.fade(u)
}

// dropUsage removes a usage.
func (x *Accounts) dropUsage(u *cluster.AccountUsage) {
	x.usages.Delete(u.AssociationKey)
	x.unfade(u)
}

// transfer adds the usage of a deleted association, which has no running job, to another.
func (x *Accounts) transfer(now cluster.Instant, from, to cluster.AssociationKey) {
	gone, known := x.usages.Get(from)
	if !known {
		return
	}
	x.dropUsage(gone)
	old, _ := x.usages.Get(to)
	u := &cluster.AccountUsage{AssociationKey: to}
	if old != nil {
		u.Billed, u.Raw = old.Billed, slices.Clone(old.Raw)
	}
	u.Billed = x.sum(now, u.Billed, gone.Billed)
	for _, r := range gone.Raw {
		into := resourceOf(u, r.Resource)
		into.Usage = x.sum(now, into.Usage, r.Usage)
	}
	x.putUsage(old, u)
}

// sum returns two usages as one, at now.
func (x *Accounts) sum(now cluster.Instant, a, b cluster.Usage) cluster.Usage {
	a, b = fairshare.Rebase(a, now, x.half), fairshare.Rebase(b, now, x.half)
	if a.Value += b.Value; a.Value < 0 {
		a.Value = 1<<63 - 1
	}
	a.Rate += b.Rate
	a.At = now
	return a
}

// SetHalfLife changes the half-life, after all usage decayed until now under the old one.
// O(users log users).
func (x *Accounts) SetHalfLife(now cluster.Instant, half time.Duration) {
	if half == x.half {
		return
	}
	all := x.usages.Map.Clone()
	for key, old := range all.All() {
		u := &cluster.AccountUsage{AssociationKey: old.AssociationKey, Raw: slices.Clone(old.Raw)}
		u.Billed = fairshare.Rebase(old.Billed, now, x.half)
		for i := range u.Raw {
			u.Raw[i].Usage = fairshare.Rebase(u.Raw[i].Usage, now, x.half)
		}
		x.usages.Set(key, u)
	}
	x.half, x.fading = half, newDecayIndex()
	for u := range x.usages.Values() {
		x.fade(u)
	}
}
