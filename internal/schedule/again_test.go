package schedule

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
	"weak"

	"github.com/greylag/greylag/pkg/cluster"
)

// TestFairnessAgain counts factors again as users come, use something and are forgotten:
// they are those of one who counts for the first time, or it is said that they are not.
func TestFairnessAgain(t *testing.T) {
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
				key := cluster.AssociationKey{User: fmt.Sprintf("stranger%d", step)}
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
			if f == nil || !f.again(view, rules, now) {
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
			t.Errorf("counted again %d times of 200", kept)
		}
	}
}

// TestForgetsSnapshots: a job that waits for long keeps no snapshot of a pass long ago,
// with all the jobs that there were then.
func TestForgetsSnapshots(t *testing.T) {
	snap := draw(t, "node n gpus=4\nrun 1 on=n:0-3 cpus=1 gpus=4 left=90m limit=2h\njob 2 gpus=4 limit=1h\n")
	p := NewPlanner()
	p.Pass(snap)
	var seen []weak.Pointer[cluster.Snapshot]
	for id := range cluster.JobID(3) {
		next := *snap
		next.Now, next.Index = snap.Now.Add(time.Second), snap.Index+1
		job := *snap.Pending[0]
		job.ID = 10 + id
		next.Pending = append(slices.Clone(snap.Pending), &job)
		if snap = &next; p.Pass(snap).Stats.Anew {
			t.Fatal("all was planned anew")
		}
		seen = append(seen, weak.Make(snap))
	}
	runtime.GC()
	for i, old := range seen[:len(seen)-1] {
		if old.Value() != nil {
			t.Errorf("snapshot %d of %d is kept", i, len(seen))
		}
	}
	runtime.KeepAlive(p)
}
