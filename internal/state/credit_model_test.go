package state

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// credits changes credits of the accounts that submissions name.
func (x *chaos) credits() command.Command {
	c := &command.ChangeCredits{
		Request: x.request(), Actor: actor("root"), Action: command.CreditAction(1 + x.pick(7)),
		Account: []string{"physics", "maths", "uni"}[x.pick(3)], Amount: accounting.Credits(x.pick(4)) * accounting.One / 20,
		Class: accounting.Class(1 + x.pick(4)), Priority: int32(x.pick(2)), Cutoff: x.pick(2) == 0, Bucket: accounting.BucketID(x.pick(6)),
		GPUType: "h100", Hard: x.pick(2) == 0, Window: accounting.Window(x.pick(3)), Job: x.ref().ID, Period: []string{"a", "b"}[x.pick(2)],
	}
	if x.pick(4) == 0 {
		c.User = x.actor().Identity.User
	}
	if x.pick(3) == 0 {
		c.Expires = x.s.now.Add(time.Duration(x.pick(600)) * time.Second)
	}
	if x.pick(8) == 0 {
		c.Effective = x.s.now.Add(time.Duration(x.pick(200)-100) * time.Second)
	}
	if x.pick(6) == 0 {
		c.Scope = accounting.Scope{Permille: int64(x.pick(1000)), PerJob: accounting.Credits(x.pick(2)) * accounting.One / 100}
	}
	return c
}

func (x *chaos) meter() command.Command {
	c := &command.MeterJobs{}
	for j := range x.s.View().Jobs(0) {
		if j.State.Holds() && x.pick(2) == 0 {
			c.Samples = append(c.Samples, command.JobSample{
				Job: j.ID, Attempt: j.Attempt, Epoch: uint64(x.pick(3)), Number: x.s.index,
				GPUms: accounting.Millis(1+int64(x.pick(3)), x.s.now.Sub(j.Started)),
			})
		}
	}
	return c
}

// charging is a policy under which most jobs are paid for.
func (x *chaos) charging(p *cluster.Policy) {
	p.Credits.On = x.pick(5) > 0
	p.Credits.Floating = x.pick(2) == 0
	if x.pick(2) == 0 {
		p.Credits.LienWindow = 10 * time.Minute
	}
}

// TestJournalOfChaos keeps all entries of random histories and recomputes the ledger
// from them.
func TestJournalOfChaos(t *testing.T) {
	p := cluster.DefaultPolicy()
	p.Credits.On = true
	root := actor("root")
	paid := []command.Command{
		&command.ApplyPolicy{Actor: root, Policy: p},
		&command.ChangeCredits{Actor: root, Action: command.SetPrice, GPUType: "h100", Amount: accounting.One},
		&command.ChangeCredits{Actor: root, Action: command.GrantCredits, Account: "physics", Class: accounting.Purchase, Amount: accounting.One},
	}
	moved, charged := 0, 0
	for seed := range uint64(60) {
		s := New()
		x := &chaos{r: rand.New(rand.NewPCG(seed, 1)), s: s}
		for _, name := range []string{"n1", "n2", "n3"} {
			n := x.register().(*command.RegisterNode)
			n.Node.Name = name
			s.Apply(1, 1, n)
		}
		var audit accounting.Audit
		var chain command.AuditChain
		now := cluster.Instant(time.Hour)
		for i := range uint64(600) {
			now = now.Add(time.Duration(x.pick(9000)) * time.Millisecond)
			c := x.next()
			if int(i) < len(paid) {
				c = paid[i]
			}
			s.Apply(s.index+1, now, c)
			if err := s.Check(); err != nil {
				t.Fatalf("seed %d: command %d, %T: %v", seed, i, c, err)
			}
			effects := s.Effects()
			for _, e := range effects.Audit {
				if err := chain.Add(&e); err != nil {
					t.Fatalf("seed %d: command %d, %T: %v", seed, i, c, err)
				}
				if again, err := command.DecodeAudit(command.EncodeAudit(&e)); err != nil || again != e {
					t.Fatalf("%+v came back as %+v: %v", e, again, err)
				}
			}
			for _, e := range effects.Entries {
				if e.Kind == accounting.Captured {
					charged++
				}
				moved++
				if err := audit.Add(&e); err != nil {
					t.Fatalf("seed %d: command %d, %T: %v", seed, i, c, err)
				}
			}
		}
		if seq, head := s.View().Audited(); seq != chain.Seq || head != chain.Head || seq < 100 {
			t.Fatalf("seed %d: %d entries, the chain has %d", seed, seq, chain.Seq)
		}
		if err := audit.Against(s.View().Credits()); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	if moved < 1500 || charged < 150 {
		t.Fatalf("%d entries, %d charges: too few to say anything", moved, charged)
	}
}
