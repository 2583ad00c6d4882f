package order

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// TestFairnessUpdate updates factors as users appear, use something and are removed: they equal those of a new
// computation, or update returns false.
func TestFairnessUpdate(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	policy := cluster.DefaultPolicy()
	rules := &policy.Scheduling.FairShare
	snap, _ := manyAccounts()
	var members []*cluster.AccountUsage
	for u := range snap.Accounts.Used {
		if len(members) < 50 {
			members = append(members, u)
		}
	}
	for _, tree := range []*cluster.AccountTree{nil, snap.Accounts.Tree} {
		var f *fairness
		kept := 0
		used := slices.Clone(members)
		for step := range 200 {
			now := start.Add(time.Duration(step) * time.Hour)
			switch k := r.IntN(len(used)); r.IntN(4) {
			case 0:
				key := cluster.AssociationKey{User: fmt.Sprintf("unknown%d", step)}
				used = slices.Insert(used, k, &cluster.AccountUsage{AssociationKey: key, Billed: cluster.Usage{Value: r.Int64N(1 << 40), At: now}})
			case 1:
				used = slices.Delete(used, k, k+1)
			default:
				u := *used[k]
				u.Billed = cluster.Usage{Value: r.Int64N(1 << 40), Rate: r.Int64N(1000), At: now}
				used[k] = &u
			}
			view := &cluster.AccountView{Tree: tree, Used: slices.Values(slices.Clone(used))}
			want := newFairness(view, rules, now)
			if f == nil || !f.update(view, rules, now) {
				f = newFairness(view, rules, now)
				continue
			}
			kept++
			for _, u := range used {
				if got := f.of(u.AssociationKey); got != want.of(u.AssociationKey) {
					t.Fatalf("step %d: %v has %g, want %g", step, u.AssociationKey, got, want.of(u.AssociationKey))
				}
			}
		}
		if kept < 50 {
			t.Errorf("updated %d times of 200", kept)
		}
	}
}
