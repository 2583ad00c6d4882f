package audit_test

import (
	"slices"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/audit"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// newCluster has the nodes n1 and n2 with 8 h100, the account ml with the users ada and
// bob, and two pending jobs of ada.
func newCluster(t *testing.T) *state.View {
	t.Helper()
	s, index := state.New(), uint64(0)
	actor := command.Actor{Identity: cluster.Identity{User: "root"}, Role: command.RoleAdmin}
	apply := func(c command.Command) {
		index++
		if refusal, refused := s.Apply(index, 1, c).(*command.Refusal); refused {
			t.Fatalf("%T: %v", c, refusal)
		}
	}
	apply(&command.Init{ClusterID: "test"})
	gpus := make([]cluster.GPU, 8)
	for i := range gpus {
		gpus[i] = cluster.GPU{Index: int32(i), Type: "h100", Memory: 80 * cluster.GiB}
	}
	for _, name := range []string{"n1", "n2"} {
		apply(&command.RegisterNode{Node: cluster.Node{Name: name, BootID: "b", CPUs: 64, Memory: cluster.TiB, GPUs: gpus}})
	}
	qos := []string{"standard", "batch"}
	apply(&command.EditAccounts{Actor: actor, Edits: []command.AccountEdit{
		{Action: command.PutAccount, Account: "ml"}, {Action: command.PutAccount, Account: "ml", User: "ada", QOS: &qos},
		{Action: command.PutAccount, Account: "ml", User: "bob", Partition: "main"},
	}})
	for _, name := range qos {
		apply(&command.SubmitJobs{Actor: command.Actor{Identity: cluster.Identity{User: "ada"}}, Jobs: []command.Submission{{Spec: cluster.JobSpec{
			Name: "j", Owner: cluster.Identity{User: "ada"}, Account: "ml", QOS: name, WorkDir: "/", Request: cluster.Request{GPUsPerNode: 1},
		}}}})
	}
	return s.View()
}

func warningsOf(c audit.Cluster, change func(*cluster.Policy)) []cluster.PolicyFault {
	p := cluster.DefaultPolicy()
	change(&p)
	return audit.PolicyWarnings(c, &p)
}

// questionable changes the policy so that each check warns.
func questionable(p *cluster.Policy) {
	p.Partitions[0] = cluster.Partition{Name: "new", Nodes: []string{"n[1-3]", "m1"}, AllowAccounts: []string{"ml", "lm"}}
	p.Partitions = append(p.Partitions, cluster.Partition{Name: "none"})
	p.QOS = slices.DeleteFunc(p.QOS, func(q cluster.QOS) bool { return q.Name == "batch" })
	p.QOS[0].Limits = []cluster.Limit{{Kind: cluster.GrpTRES, Resource: "gpu:b200", Value: 1}}
	p.Scheduling.Weights = cluster.Weights{MaxAge: time.Hour}
	p.Scheduling.FairShare.Billing = []cluster.BillingWeight{{Resource: "cpu"}, {Resource: "gpu"}, {Resource: "h100"}, {Resource: "h900"}}
	p.Scheduling.Reservations = []cluster.Reservation{{Name: "r", Nodes: []string{"ALL", "x1"}, Accounts: []string{"absent"}}}
	p.Credits.On = true
}

func TestPolicyWarnings(t *testing.T) {
	want := []cluster.PolicyFault{
		{Key: "", Problem: `partition "main" is removed and has 2 active jobs: pending ones wait until a partition of that name exists`},
		{Key: "", Problem: `qos "batch" is removed and has 1 active job: they continue in tier 0, without its limits`},
		{Key: "", Problem: `partition "main" is removed, and gctl account dump names it for 1 user`},
		{Key: "", Problem: `qos "batch" is removed, and gctl account dump names it for 1 account or user`},
		{Key: "partition[0].nodes[0]", Problem: `no nodes n3 (in "n[1-3]")`},
		{Key: "partition[0].nodes[1]", Problem: `"m1" matches no node`},
		{Key: "partition[1].nodes", Problem: `partition "none" has no nodes: its jobs wait until it has`},
		{Key: "reservation[0].nodes[1]", Problem: `"x1" matches no node`},
		{Key: "fair_share.billing.h900", Problem: "no node has a GPU of type h900: there are h100"},
		{Key: "qos[0].limits", Problem: "GrpTRES=gpu:b200=1: no node has a GPU of type b200: there are h100"},
		{Key: "partition[0].allow_accounts[1]", Problem: `no account "lm"`},
		{Key: "reservation[0].accounts[0]", Problem: `no account "absent"`},
		{Key: "scheduling.weights", Problem: "all are 0: jobs of one tier start in order of submission"},
		{Key: "credits.enabled", Problem: "no price is set for GPUs of type h100: jobs on them are refused (gctl credit price)"},
	}
	got := warningsOf(newCluster(t), questionable)
	for i := range max(len(got), len(want)) {
		var g, w cluster.PolicyFault
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("warning %d\n got %q: %s\nwant %q: %s", i, g.Key, g.Problem, w.Key, w.Problem)
		}
	}
}

func TestPolicyWarningsOfOneSetting(t *testing.T) {
	v := newCluster(t)
	if got := warningsOf(v, func(*cluster.Policy) {}); len(got) > 0 {
		t.Errorf("the policy in force: %v", got)
	}
	for _, x := range []struct {
		change func(*cluster.Policy)
		want   cluster.PolicyFault
	}{
		{func(p *cluster.Policy) { p.DefaultQOS = "premium" },
			cluster.PolicyFault{Key: "default_qos", Problem: `qos "premium" is not open: jobs of users without a granted qos get "standard"`}},
		{func(p *cluster.Policy) { p.QOS[2].Open, p.QOS[3].Open, p.QOS[4].Open = false, false, false },
			cluster.PolicyFault{Key: "default_qos", Problem: "no qos is open: only users with a granted qos may submit jobs (set open = true for a qos)"}},
	} {
		if got := warningsOf(v, x.change); !slices.Equal(got, []cluster.PolicyFault{x.want}) {
			t.Errorf("got %v, want %v", got, x.want)
		}
	}
}

// TestPolicyWarningsWithoutNodes: before nodes join, node names and GPU types are not checked.
func TestPolicyWarningsWithoutNodes(t *testing.T) {
	s := state.New()
	s.Apply(1, 1, &command.Init{ClusterID: "test"})
	if got := warningsOf(s.View(), questionable); len(got) != 1 || got[0].Key != "scheduling.weights" {
		t.Errorf("got %v", got)
	}
	if why := audit.GPUTypesOf(s.View()).Missing("h900"); why != "" {
		t.Error(why)
	}
}

func TestMissingGPUTypes(t *testing.T) {
	types := audit.GPUTypesOf(newCluster(t))
	limit := func(resource string) cluster.Limit {
		return cluster.Limit{Kind: cluster.GrpTRES, Resource: resource, Value: 1}
	}
	got := types.MissingIn([]cluster.Limit{limit("gpu:z1"), limit("gpu:h100"), limit("cpu"), limit("gpu:a1"), limit("gpu:z1")})
	want := []string{"GrpTRES=gpu:a1=1: no node has a GPU of type a1: there are h100", "GrpTRES=gpu:z1=1: no node has a GPU of type z1: there are h100"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if !types.Has("h100") || types.Has("z1") {
		t.Error("Has")
	}
}
