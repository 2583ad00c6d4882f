package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// charged returns a state with paid running jobs of one GPU, eight on a node.
func charged(b *testing.B, jobs int) *state.State {
	b.Helper()
	s, index, root := state.New(), uint64(0), command.Actor{Role: command.RoleAdmin}
	policy := cluster.DefaultPolicy()
	policy.Credits.On = true
	ana := cluster.Identity{User: "ana", UID: 1000, GID: 100}
	commands := []command.Command{
		&command.ApplyPolicy{Actor: root, Policy: policy},
		&command.EditAccounts{Actor: root, Edits: []command.AccountEdit{{Action: command.PutAccount, Account: "p"}, {Action: command.PutAccount, Account: "p", User: "ana"}}},
		&command.ChangeCredits{Actor: root, Action: command.SetPrice, GPUType: "h100", Amount: accounting.One},
		&command.ChangeCredits{Actor: root, Action: command.GrantCredits, Account: "p", Class: accounting.Purchase, Amount: accounting.MaxAmount},
	}
	for first := 0; first < jobs; first += 8 {
		n := cluster.Node{Name: fmt.Sprintf("n%05d", first/8), BootID: "b", CPUs: 64, Memory: cluster.TiB}
		submit, plan := &command.SubmitJobs{Actor: command.Actor{Identity: ana, Role: command.RoleUser}}, &command.CommitPlan{}
		for i := range int32(8) {
			n.GPUs = append(n.GPUs, cluster.GPU{Index: i, Type: "h100"})
			submit.Jobs = append(submit.Jobs, command.Submission{Spec: cluster.JobSpec{
				Account: "p", Owner: ana, TimeLimit: time.Hour, WorkDir: "/", Output: "o", Request: cluster.Request{Nodes: 1, GPUsPerNode: 1, GPUTypes: []string{"h100"}},
			}})
			plan.Plan.Starts = append(plan.Plan.Starts, cluster.PlannedStart{Job: cluster.JobID(first) + cluster.JobID(i) + 1, Attempt: 1, Placement: cluster.Placement{
				Nodes: []cluster.NodeAllocation{{Node: n.Name, GPUs: []int32{i}, CPUs: 1}},
			}})
		}
		commands = append(commands, &command.RegisterNode{Node: n}, submit, plan)
	}
	for _, c := range commands {
		index++
		if plan, is := c.(*command.CommitPlan); is {
			plan.Plan.Index = index - 1
		}
		if r, refused := s.Apply(index, cluster.Instant(index), c).(*command.Refusal); refused {
			b.Fatalf("%T: %s", c, r.Message)
		}
		s.Effects()
	}
	return s
}

// BenchmarkSamples measures the leader's cost of one metering before it proposes: 6,250 nodes
// report 8 tasks each, which gives 50,000 samples.
func BenchmarkSamples(b *testing.B) {
	const jobs = 50_000
	v := charged(b, jobs).View()
	var m meter
	now := time.Unix(0, int64(v.Now()))
	m.open(now)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		now = now.Add(meterSpacing)
		for k := range jobs {
			m.record(run{cluster.JobID(k + 1), 1}, fmt.Sprintf("n%05d", k/8), count{counting: 1, ran: time.Duration(i+1) * meterSpacing, at: now})
		}
		if n := len(m.samples(v)); n != jobs {
			b.Fatalf("%d samples", n)
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/meterSpacing.Seconds()*100, "%core")
}
