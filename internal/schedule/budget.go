package schedule

import (
	"fmt"
	"slices"

	"github.com/greylag/greylag/pkg/cluster"
)

// budgetDemotion says which jobs go last because their account, or one above it, is over a
// soft budget: those that are paid for. They are in the lowest tier of the policy, and
// no others are ended for them, until the account is back within its budget.
type budgetDemotion struct {
	snap *cluster.Snapshot
	tier int32
}

func newLowered(snap *cluster.Snapshot) budgetDemotion {
	l := budgetDemotion{snap: snap}
	for i, q := range snap.Policy.QOS {
		if i == 0 || q.Tier < l.tier {
			l.tier = q.Tier
		}
	}
	return l
}

// by names the account that is over its budget, or the user in one; "" when the job's
// tier is that of its QOS. The nearest is named. O(1) while none is over, else O(depth).
func (l *budgetDemotion) by(spec *cluster.JobSpec) string {
	if len(l.snap.OverBudget) == 0 || spec.Request.TotalGPUs() == 0 || !slices.ContainsFunc(partitions(spec), l.snap.Policy.Credits.Charges) {
		return ""
	}
	if name := spec.Account + "/" + spec.Owner.User; l.over(name) {
		return name
	}
	name := ""
	tree := l.snap.Accounts.Tree
	tree.ScopesOfAccount(spec.Account, func(s cluster.Scope) {
		if name == "" && l.over(s.Account) {
			name = s.Account
		}
	})
	return name
}

func (l *budgetDemotion) over(name string) bool {
	_, found := slices.BinarySearch(l.snap.OverBudget, name)
	return found
}

// tierOf is the tier in which a job waits.
func (l *budgetDemotion) tierOf(spec *cluster.JobSpec, own int32) int32 {
	if own > l.tier && l.by(spec) != "" {
		return l.tier
	}
	return own
}

// says is the end of a sentence about a job that waits.
func (l *budgetDemotion) says(spec *cluster.JobSpec) string {
	if name := l.by(spec); name != "" {
		return fmt.Sprintf("; account %s is over its budget, so its jobs wait in the lowest tier", name)
	}
	return ""
}

// sameBudgets reports whether the same jobs are lowered in two snapshots.
func sameBudgets(a, b *cluster.Snapshot) bool {
	if !slices.Equal(a.OverBudget, b.OverBudget) {
		return false
	}
	return len(b.OverBudget) == 0 || a.Accounts.Tree == b.Accounts.Tree
}

// Tiers tells in which tier each job of a snapshot waits, and the account that is over
// its budget when that is not the tier of its QOS.
func Tiers(snap *cluster.Snapshot) func(*cluster.Job) (tier int32, over string) {
	own := make(map[string]int32, len(snap.Policy.QOS))
	for _, q := range snap.Policy.QOS {
		own[q.Name] = q.Tier
	}
	l := newLowered(snap)
	return func(j *cluster.Job) (int32, string) {
		return l.tierOf(j.Spec, own[j.Spec.QOS]), l.by(j.Spec)
	}
}
