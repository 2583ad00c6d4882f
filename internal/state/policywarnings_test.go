package state

import (
	"slices"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestDoubts: each thing that is odd about a policy on a cluster is told once, by the key
// that it is about, and a policy that fits has none.
func TestDoubts(t *testing.T) {
	x := &script{t: t, s: newState(limits{tail: 20, requests: 100, requestBytes: 1 << 20, levels: 1000}), now: 1}
	x.apply(&command.Init{ClusterID: "test"})
	doubts := func(change func(*cluster.Policy)) []cluster.PolicyFault {
		p := cluster.DefaultPolicy()
		change(&p)
		return x.s.View().PolicyWarnings(&p)
	}
	odd := func(p *cluster.Policy) {
		p.Partitions[0] = cluster.Partition{Name: "new", Nodes: []string{"n[1-3]", "m1"}, AllowAccounts: []string{"ml", "lm"}}
		p.Partitions = append(p.Partitions, cluster.Partition{Name: "none"})
		p.QOS = slices.DeleteFunc(p.QOS, func(q cluster.QOS) bool { return q.Name == "batch" })
		p.QOS[0].Limits = []cluster.Limit{{Kind: cluster.GrpTRES, Resource: "gpu:b200", Value: 1}}
		p.Scheduling.Weights = cluster.Weights{MaxAge: time.Hour}
		p.Scheduling.FairShare.Billing = []cluster.BillingWeight{{Resource: "cpu"}, {Resource: "gpu"}, {Resource: "h100"}, {Resource: "h900"}}
		p.Scheduling.Reservations = []cluster.Reservation{{Name: "r", Nodes: []string{"ALL", "x1"}, Accounts: []string{"nobody"}}}
		p.Credits.On = true
	}
	if got := doubts(odd); len(got) != 1 || got[0].Key != "scheduling.weights" {
		t.Errorf("an empty cluster knows no names, and yet: %v", got)
	}
	for _, line := range []string{
		"policy root", "node n1 gpus=8:h100", "node n2 gpus=8:h100", "account root put ml + put ml user=ada qos=standard,batch + put ml user=bob partition=main",
		"submit ada gpusper=1 account=ml qos=batch", "submit ada gpusper=1 account=ml",
	} {
		x.run(line)
	}
	if got := doubts(func(*cluster.Policy) {}); len(got) > 0 {
		t.Errorf("the policy in force: %v", got)
	}
	closed := doubts(func(p *cluster.Policy) { p.DefaultQOS = "premium" })
	none := doubts(func(p *cluster.Policy) { p.QOS[2].Open, p.QOS[3].Open, p.QOS[4].Open = false, false, false })
	if len(closed) != 1 || closed[0].Problem != `qos "premium" is not open: jobs of users without a granted qos get "standard"` || len(none) != 1 || none[0].Key != "default_qos" {
		t.Errorf("a default qos that is not open: %v; no open qos: %v", closed, none)
	}
	want := []cluster.PolicyFault{
		{Key: "", Problem: `partition "main" is gone, and 2 of its jobs have not ended: those that wait go on waiting until there is one of that name again`},
		{Key: "", Problem: `qos "batch" is gone, and 1 of its jobs has not ended: they go on in tier 0, without its limits`},
		{Key: "", Problem: `partition "main" is gone, and gctl account dump has 1 user of accounts for it`},
		{Key: "", Problem: `qos "batch" is gone, and gctl account dump has 1 account or user with it`},
		{Key: "partition[0].nodes[0]", Problem: `nobody knows n3 of "n[1-3]"`},
		{Key: "partition[0].nodes[1]", Problem: `"m1" matches no node`},
		{Key: "partition[1].nodes", Problem: `partition "none" has no nodes: its jobs will wait until it has`},
		{Key: "reservation[0].nodes[1]", Problem: `"x1" matches no node`},
		{Key: "fair_share.billing.h900", Problem: "no node has a GPU of type h900: there are h100"},
		{Key: "qos[0].limits", Problem: "GrpTRES=gpu:b200=1: no node has a GPU of type b200: there are h100"},
		{Key: "partition[0].allow_accounts[1]", Problem: `there is no account "lm"`},
		{Key: "reservation[0].accounts[0]", Problem: `there is no account "nobody"`},
		{Key: "scheduling.weights", Problem: "all are 0: jobs of one tier go in the order in which they came"},
		{Key: "credits.enabled", Problem: "no price is set for GPUs of type h100: jobs on them are refused (gctl credit price)"},
	}
	if got := doubts(odd); !slices.Equal(got, want) {
		for _, f := range got {
			t.Logf("%q: %s", f.Key, f.Problem)
		}
		t.Errorf("not what is expected")
	}
}
