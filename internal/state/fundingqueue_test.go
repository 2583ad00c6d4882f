package state

import (
	"fmt"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// unfundedCluster is a cluster in which payers' jobs wait for credits; the jobs of a payer are
// equal. They ran once, and were requeued when no credits were left. Its last command was entry
// index.
func unfundedCluster(payers, each int) (s *State, index uint64) {
	s = New()
	apply := func(c command.Command) {
		index++
		s.Apply(index, cluster.Instant(time.Hour), c)
		s.Effects()
	}
	root := actor("root")
	p := cluster.DefaultPolicy()
	p.Credits.On = true
	apply(&command.ApplyPolicy{Actor: root, Policy: p})
	apply(&command.ChangeCredits{Actor: root, Action: command.SetPrice, GPUType: "h100", Amount: accounting.One})
	edits := &command.EditAccounts{Actor: root, Edits: []command.AccountEdit{{Action: command.AddAccount, Account: "uni"}}}
	uni := "uni"
	for i := range payers {
		account := fmt.Sprintf("p%04d", i)
		edits.Edits = append(edits.Edits, command.AccountEdit{Action: command.AddAccount, Account: account, Parent: &uni},
			command.AccountEdit{Action: command.AddAccount, Account: account, User: "ada"})
	}
	apply(edits)
	apply(&command.ChangeCredits{Actor: root, Action: command.GrantCredits, Account: "uni", Class: accounting.Purchase, Amount: accounting.Credits(payers*each) * 8 * accounting.One})
	ada := actor("ada")
	for i := range payers {
		c := &command.SubmitJobs{Actor: ada}
		for range each {
			c.Jobs = append(c.Jobs, command.Submission{Spec: cluster.JobSpec{
				Name: "j", Owner: ada.Identity, Account: fmt.Sprintf("p%04d", i), TimeLimit: time.Hour,
				Request: cluster.Request{Nodes: 1, GPUsPerNode: 8, CPUsPerTask: 1, GPUTypes: []string{"h100"}},
			}})
		}
		apply(c)
	}
	apply(&command.ChangeCredits{Actor: root, Action: command.VoidBucket, Bucket: 1})
	for _, j := range s.View().pending.All() { // as after a requeue
		s.credits.Withdraw(s.now, j)
		waits := *j
		s.fund(&waits)
		s.put(j, &waits)
	}
	apply(&command.Tick{})
	for s.View().NextDue() <= cluster.Instant(time.Hour+time.Second) {
		apply(&command.Tick{})
	}
	return s, index
}

// unfunded counts the jobs of an account that wait for credits; of all accounts for "".
func unfunded(s *State, account string) (n int) {
	for _, j := range s.pending.All() {
		if j.Hold == cluster.HeldForCredits && (account == "" || account == j.Spec.Account) {
			n++
		}
	}
	return n
}

// TestEveryPayerHasATurn checks that a payer that gets credits is served within a few commands,
// however many others have none, and at any position in the order of names.
func TestEveryPayerHasATurn(t *testing.T) {
	const payers, each = 400, 6
	s, index := unfundedCluster(payers, each)
	if n := unfunded(s, ""); n != payers*each {
		t.Fatalf("%d jobs wait, want %d", n, payers*each)
	}
	served := func(payer string, most int) {
		t.Helper()
		for range most {
			index++
			s.Apply(index, cluster.Instant(time.Hour), &command.Tick{})
			if err := s.Check(); err != nil {
				t.Fatal(err)
			}
		}
		if unfunded(s, payer) > 0 {
			t.Fatalf("%s waits for credits that it has", payer)
		}
	}
	grant := func(account string, jobs int) {
		index++
		s.Apply(index, cluster.Instant(time.Hour), &command.ChangeCredits{
			Actor: actor("root"), Action: command.GrantCredits, Account: account, Class: accounting.Purchase,
			Amount: accounting.Credits(jobs) * 8 * accounting.One,
		})
	}
	grant("p0399", each)
	served("p0399", 0) // at once
	for i := range 5 { // an amount too small for any payer makes all of them checked
		index++
		s.Apply(index, cluster.Instant(time.Hour), &command.ChangeCredits{
			Actor: actor("root"), Action: command.GrantCredits, Account: "uni", Class: accounting.Purchase, Amount: accounting.One,
		})
		payer := fmt.Sprintf("p%04d", 390-i)
		grant(payer, each)
		served(payer, 1)
	}
	// A shared amount is distributed in turn.
	grant("uni", 40)
	for range 4 {
		index++
		s.Apply(index, cluster.Instant(time.Hour), &command.Tick{})
	}
	if n := unfunded(s, ""); n != (payers-6)*each-40 {
		t.Fatalf("%d jobs wait, 40 of %d could be paid", n, (payers-6)*each)
	}
}

// BenchmarkBrokePayers changes credits by an amount that is too small, while 100,000 jobs of 1,000
// payers wait for credits.
func BenchmarkBrokePayers(b *testing.B) {
	s, index := unfundedCluster(1000, 100)
	for _, account := range []string{"p0500", "uni"} {
		b.Run(account, func(b *testing.B) {
			before := cpu(b)
			for b.Loop() {
				index++
				r := s.Apply(index, cluster.Instant(time.Hour), &command.ChangeCredits{
					Actor: actor("root"), Action: command.GrantCredits, Account: account, Class: accounting.Purchase, Amount: 1000,
				}).(*command.Credited)
				index++
				s.Apply(index, cluster.Instant(time.Hour), &command.ChangeCredits{Actor: actor("root"), Action: command.VoidBucket, Bucket: r.Bucket})
				s.Effects()
			}
			b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}
