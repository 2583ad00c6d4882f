package order

import (
	"slices"

	"github.com/greylag/greylag/pkg/cluster"
)

// Demotion moves the charged jobs of accounts over a soft budget to the lowest tier of the policy,
// until the account is back within its budget. No other job is preempted for them.
type Demotion struct {
	snap   *cluster.Snapshot
	lowest int32 // tier
}

func newDemotion(snap *cluster.Snapshot) Demotion {
	d := Demotion{snap: snap}
	for i, q := range snap.Policy.QOS {
		if i == 0 || q.Tier < d.lowest {
			d.lowest = q.Tier
		}
	}
	return d
}

// OverBudget names the nearest account of a job that is over its budget, or the user in one; ""
// when the job keeps the tier of its QOS. O(1) while no account is over its budget, else O(depth).
func (d *Demotion) OverBudget(spec *cluster.JobSpec) string {
	if len(d.snap.OverBudget) == 0 || spec.Request.TotalGPUs() == 0 || !slices.ContainsFunc(spec.AllPartitions(), d.snap.Policy.Credits.Charges) {
		return ""
	}
	if name := spec.Account + "/" + spec.Owner.User; d.over(name) {
		return name
	}
	name := ""
	tree := d.snap.Accounts.Tree
	tree.ScopesOfAccount(spec.Account, func(s cluster.LimitScope) {
		if name == "" && d.over(s.Account) {
			name = s.Account
		}
	})
	return name
}

func (d *Demotion) over(name string) bool {
	_, found := slices.BinarySearch(d.snap.OverBudget, name)
	return found
}

// tier returns the tier of a job whose QOS has the tier own.
func (d *Demotion) tier(spec *cluster.JobSpec, own int32) int32 {
	if own > d.lowest && d.OverBudget(spec) != "" {
		return d.lowest
	}
	return own
}

// SameBudgets reports whether the same jobs are demoted in two snapshots.
func SameBudgets(a, b *cluster.Snapshot) bool {
	if !slices.Equal(a.OverBudget, b.OverBudget) {
		return false
	}
	return len(b.OverBudget) == 0 || a.Accounts.Tree == b.Accounts.Tree
}

// Tiers returns a function that returns the tier of a job of the snapshot, and the account that is
// over its budget where that is not the tier of its QOS.
func Tiers(snap *cluster.Snapshot) func(*cluster.Job) (tier int32, over string) {
	r := NewRanking(snap)
	return func(j *cluster.Job) (int32, string) { return r.Tier(j.Spec), r.OverBudget(j.Spec) }
}
