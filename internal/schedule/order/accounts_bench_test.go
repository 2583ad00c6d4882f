package order

import (
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/pkg/cluster"
)

// start is the instant of the snapshots.
const start = cluster.Instant(1_000_000 * time.Second)

// manyAccounts returns a snapshot with 1,000 accounts of 10 users each, all with usage, 10,000 running jobs and a
// pending one. Every account has a limit.
func manyAccounts() (*cluster.Snapshot, *cluster.Job) {
	policy := cluster.DefaultPolicy()
	var accounts []*cluster.Account
	var users []*cluster.Association
	var used []*cluster.AccountUsage
	snap := &cluster.Snapshot{Index: 1, Now: start, Policy: &policy}
	charges := map[cluster.JobID]*cluster.Charge{}
	for i := range 1000 {
		name := fmt.Sprintf("a%04d", i)
		accounts = append(accounts, &cluster.Account{Name: name, Parent: "root", Shares: int64(1 + i%7), Limits: []cluster.Limit{{Kind: cluster.GrpTRES, Resource: "gpu", Value: 100}}})
		for u := range 10 {
			key := cluster.AssociationKey{Account: name, User: fmt.Sprintf("u%05d", 10*i+u)}
			users = append(users, &cluster.Association{AssociationKey: key, Shares: 1})
			used = append(used, &cluster.AccountUsage{AssociationKey: key, Billed: cluster.Usage{Value: int64(1+i*u) << 30, Rate: 1000, At: start - 1e12}})
			id := cluster.JobID(len(used))
			charges[id] = &cluster.Charge{AssociationKey: key, QOS: "standard", Amounts: []cluster.Amount{{Resource: "cpu", Count: 8}, {Resource: "gpu", Count: 1}, {Resource: "gpu:h100", Count: 1}, {Resource: "node", Count: 1}}}
			spec := &cluster.JobSpec{Account: name, Owner: cluster.Identity{User: key.User}, QOS: "standard", TimeLimit: time.Hour}
			snap.Active = append(snap.Active, &cluster.Job{ID: id, Spec: spec, State: cluster.Running, Started: start})
		}
	}
	snap.Accounts = &cluster.AccountView{
		Tree: cluster.NewAccountTree(slices.Values(accounts), slices.Values(users)), Used: slices.Values(used),
		Running: iter.Seq2[cluster.JobID, *cluster.Charge](func(yield func(cluster.JobID, *cluster.Charge) bool) {
			for id := range cluster.JobID(len(charges)) {
				if !yield(id+1, charges[id+1]) {
					return
				}
			}
		}),
	}
	pending := &cluster.Job{ID: 20_000, State: cluster.Pending, Spec: &cluster.JobSpec{
		Account: "a0007", Owner: cluster.Identity{User: "u00070"}, QOS: "standard", Request: cluster.Request{Nodes: 1, GPUsPerNode: 1},
	}}
	return snap, pending
}

// BenchmarkAccounts measures what accounts add to a pass with one job: its fair-share factor and its limits.
func BenchmarkAccounts(b *testing.B) {
	snap, pending := manyAccounts()
	b.Run("priority", func(b *testing.B) {
		for b.Loop() {
			newPriorities(snap).of(pending)
		}
	})
	b.Run("limits", func(b *testing.B) {
		for b.Loop() {
			if o, limited := eligible.NewLimits(snap).First(pending); limited {
				b.Fatal(o)
			}
		}
	})
	p, l := newPriorities(snap), eligible.NewLimits(snap)
	b.Run("next-job", func(b *testing.B) {
		for b.Loop() {
			p.of(pending)
			l.First(pending)
		}
	})
}
