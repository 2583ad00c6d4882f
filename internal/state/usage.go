package state

import (
	"slices"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/fairshare"
)

// What a user of an account uses is kept as a value and a rate: a job adds its rate
// when it starts and takes it away when it ends, so that a running job counts while it
// runs and nothing has to be written meanwhile. Accounts are summed up from their
// users when somebody reads. What was used by users who are gone stays with the
// account, under no user.

// runs reports whether a job uses what it was allocated.
func runs(j *cluster.Job) bool {
	return j != nil && j.State.Holds() && j.State != cluster.Completing
}

// meter keeps counts and usage in step with a job that changes from old to j. old is
// nil for a new job. O(depth), and when it starts or ends O(resources log n).
func (s *State) meter(old, j *cluster.Job) {
	switch {
	case old == nil:
		s.count(j.Spec, 1)
	case j.State.Final():
		s.count(old.Spec, -1)
	case old.Spec != j.Spec && (old.Spec.QOS != j.Spec.QOS || old.Spec.Association() != j.Spec.Association()):
		s.count(old.Spec, -1)
		s.count(j.Spec, 1)
	}
	switch before, after := runs(old), runs(j); {
	case after && !before:
		s.beginCharge(j)
	case before && !after:
		s.endCharge(j.ID)
	}
}

// beginCharge notes what a job counts for from now on: what it was allocated, at the
// weights in force.
func (s *State) beginCharge(j *cluster.Job) {
	amounts := j.Alloc.Amounts(&j.Spec.Request, func(node string, gpu int32) string {
		if n, known := s.nodes.Get(node); known && int(gpu) < len(n.GPUs) {
			return n.GPUs[gpu].Type
		}
		return ""
	})
	for i := range amounts {
		s.words.share(&amounts[i].Resource)
	}
	j.TRES = amounts
	qos, _ := s.policy.QOSNamed(j.Spec.QOS)
	c := &cluster.Charge{
		AssociationKey: s.shared().Resolve(j.Spec.Association()), QOS: j.Spec.QOS,
		Rate: s.policy.Scheduling.FairShare.Bill(amounts, qos.UsageExtra), Amounts: amounts,
	}
	s.charges.Set(j.ID, c)
	s.use(c, 1)
}

// endCharge ends what beginCharge began.
func (s *State) endCharge(id cluster.JobID) {
	c, known := s.charges.Get(id)
	if !known {
		s.fault("job %d runs and counts for nobody", id)
		return
	}
	s.charges.Delete(id)
	s.use(c, -1)
}

// rechargeRunning lets each job that runs count for the association that it belongs to
// now. What it used before stays where it was. O(running jobs).
func (s *State) rechargeRunning() {
	all := s.charges.Map.Clone()
	for id, old := range all.All() {
		j, _ := s.holding.Get(id)
		key := s.shared().Resolve(j.Spec.Association())
		if key == old.AssociationKey {
			continue
		}
		s.endCharge(id)
		c := *old
		c.AssociationKey = key
		s.charges.Set(id, &c)
		s.use(&c, 1)
	}
}

// use adds the rate of a charge to its user's usage, or with sign -1 takes it away.
func (s *State) use(c *cluster.Charge, sign int64) {
	half := s.policy.Scheduling.FairShare.HalfLife
	old, known := s.usages.Get(c.AssociationKey)
	u := &cluster.AccountUsage{AssociationKey: c.AssociationKey}
	if known {
		u.Billed, u.Raw = old.Billed, slices.Clone(old.Raw)
	}
	u.Billed = fairshare.Rebase(u.Billed, s.now, half)
	u.Billed.Rate += sign * c.Rate
	for _, a := range c.Amounts {
		s.useOne(u, a.Resource, sign*a.Count, half)
	}
	s.useOne(u, cluster.ResourceWall, sign, half)
	s.putUsage(old, u)
	s.forgetUsage(fewFaded)
}

// useOne changes the rate at which one resource is used.
func (s *State) useOne(u *cluster.AccountUsage, resource string, rate int64, half time.Duration) {
	r := resourceOf(u, resource)
	r.Usage = fairshare.Rebase(r.Usage, s.now, half)
	r.Usage.Rate += rate
}

// resourceOf is the place of a resource in a usage that may be written.
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

// putUsage replaces a usage, which is nil when there was none.
func (s *State) putUsage(old, u *cluster.AccountUsage) {
	if old != nil {
		s.unfade(old)
	}
	s.usages.Set(u.AssociationKey, u)
	s.fade(u)
}

// dropUsage takes a usage out of the tables.
func (s *State) dropUsage(u *cluster.AccountUsage) {
	s.usages.Delete(u.AssociationKey)
	s.unfade(u)
}

// transferUsage adds what somebody used who is gone to what they were part of. Nothing of
// theirs runs any more.
func (s *State) transferUsage(from, to cluster.AssociationKey) {
	gone, known := s.usages.Get(from)
	if !known {
		return
	}
	half := s.policy.Scheduling.FairShare.HalfLife
	s.dropUsage(gone)
	old, _ := s.usages.Get(to)
	u := &cluster.AccountUsage{AssociationKey: to}
	if old != nil {
		u.Billed, u.Raw = old.Billed, slices.Clone(old.Raw)
	}
	u.Billed = s.sum(u.Billed, gone.Billed, half)
	for _, r := range gone.Raw {
		into := resourceOf(u, r.Resource)
		into.Usage = s.sum(into.Usage, r.Usage, half)
	}
	s.putUsage(old, u)
}

// sum is two usages as one, as they are now.
func (s *State) sum(a, b cluster.Usage, half time.Duration) cluster.Usage {
	a, b = fairshare.Rebase(a, s.now, half), fairshare.Rebase(b, s.now, half)
	if a.Value += b.Value; a.Value < 0 {
		a.Value = 1<<63 - 1
	}
	a.Rate += b.Rate
	a.At = s.now
	return a
}

// forgetOtherwise brings all usage up to now under the half-life that ends now.
// O(users).
func (s *State) forgetOtherwise(half time.Duration) {
	all := s.usages.Map.Clone()
	for _, old := range all.All() {
		u := &cluster.AccountUsage{AssociationKey: old.AssociationKey, Raw: slices.Clone(old.Raw)}
		u.Billed = fairshare.Rebase(old.Billed, s.now, half)
		for i := range u.Raw {
			u.Raw[i].Usage = fairshare.Rebase(u.Raw[i].Usage, s.now, half)
		}
		s.putUsage(old, u)
	}
}

// accountView is what a scheduling pass sees of accounts.
func (v *View) accountView() *cluster.AccountView {
	return &cluster.AccountView{
		Tree: v.tree,
		Used: v.usages.Values(),
		Usage: func(key cluster.AssociationKey) *cluster.AccountUsage {
			u, _ := v.usages.Get(key)
			return u
		},
		Running: v.charges.All(),
	}
}

// Accounts is the accounts, their users and what they used, at the instant of the
// view. O(1).
func (v *View) Accounts() *cluster.AccountView { return v.accountView() }

// AccountsVersion grows with each change of accounts; 0 before the first.
func (v *View) AccountsVersion() uint64 { return v.accountsAt }

// Coordinates reports whether a user is a coordinator of an account or of one above
// it. O(depth log n).
func (v *View) Coordinates(user, account string) bool { return v.coordinates(user, account) }
