package state

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state/credits"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// credits changes credits of the accounts that submissions name.
func (x *chaos) credits() command.Command {
	c := &command.ChangeCredits{
		Request: x.request(), Actor: actor("root"), Action: command.CreditAction(1 + x.pick(7)),
		Account: []string{"physics", "maths", "uni"}[x.pick(3)], Amount: accounting.Credits(x.pick(4)) * accounting.One / 20,
		Class: accounting.BucketClass(1 + x.pick(4)), Priority: int32(x.pick(2)), Cutoff: x.pick(2) == 0, Bucket: accounting.BucketID(x.pick(6)),
		GPUType: "h100", Hard: x.pick(2) == 0, Window: accounting.Window(x.pick(3)), Job: x.ref().ID, Period: []string{"a", "b"}[x.pick(2)],
	}
	if x.pick(3) == 0 {
		c.Key, c.Note = []string{"first", "second"}[x.pick(2)], "why"
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
		c.Scope = accounting.BucketScope{Permille: int64(x.pick(1000)), PerJob: accounting.Credits(x.pick(2)) * accounting.One / 100}
	}
	return c
}

func (x *chaos) meter() command.Command {
	c := &command.MeterJobs{}
	for j := range x.s.View().Jobs(0) {
		if j.State.HasAllocation() && x.pick(2) == 0 {
			c.Samples = append(c.Samples, command.JobSample{
				Job: j.ID, Attempt: j.Attempt, Epoch: uint64(x.pick(3)), Number: x.s.index,
				GPUms: accounting.Millis(1+int64(x.pick(3)), x.s.now.Sub(j.Started)),
			})
		}
	}
	return c
}

// late reports tasks that ended while the node was disconnected.
func (x *chaos) late(node string) (tasks []command.TaskReport) {
	for id, u := range x.s.View().credits.ProvisionalBills() {
		if x.pick(3) > 0 || !slices.Contains(u.Nodes, node) && x.pick(5) > 0 {
			continue
		}
		t := command.TaskReport{Job: id.Job, Attempt: id.Attempt, Granted: u.Granted, Ran: time.Duration(x.pick(4000)-1000) * time.Millisecond}
		t.Task.Phase = cluster.TaskPhase(1 + x.pick(3))
		if x.pick(2) == 0 {
			t.Task.Started, t.Task.Ended = x.s.now, x.s.now.Add(t.Ran*2)
		}
		tasks = append(tasks, t)
	}
	return tasks
}

// charging returns a policy under which most jobs are charged.
func (x *chaos) charging(p *cluster.Policy) {
	p.Credits.On = x.pick(5) > 0
	p.Credits.Floating = x.pick(2) == 0
	if x.pick(2) == 0 {
		p.Credits.LienWindow = 10 * time.Minute
	}
}

// withNodes returns a cluster of three nodes for random commands.
func withNodes(seed uint64) *chaos {
	x := &chaos{r: rand.New(rand.NewPCG(seed, 1)), s: New()}
	for _, name := range []string{"n1", "n2", "n3"} {
		n := x.register().(*command.RegisterNode)
		n.Node.Name = name
		x.s.Apply(1, 1, n)
	}
	return x
}

// lateBills counts the provisional bills that became final.
type lateBills struct{ proven, overdue int }

// step checks the bills that became final between two views: each did once, for no less than before
// and for no longer than the log shows for the attempt.
func (b *lateBills) step(t *testing.T, before, after *View) {
	t.Helper()
	for id, u := range before.credits.ProvisionalBills() {
		was, _ := before.Credits().Lien(id)
		is, _ := after.Credits().Lien(id)
		if is.State == accounting.Provisional {
			continue
		}
		whole := was
		whole.Segments = slices.Clone(was.Segments)
		whole.Segments[0].Base, whole.Segments[0].Count = 0, accounting.Millis(was.Segments[0].GPUs, u.Ran)
		most := whole.Due()
		switch {
		case is.State != accounting.Settled || is.Due() < was.Due() || is.Due() > max(most, was.Due()):
			t.Fatalf("lien %s came to %s and to %s then, at most %s: %s", id, was.Due(), is.Due(), most, is.State)
		case !is.Unproven:
			b.proven++
		case after.Now().Sub(was.Ended) <= credits.Amendable || is.Due() != was.Due():
			t.Fatalf("lien %s of %s was closed at %s", id, was.Ended.Time(), after.Now().Time())
		default:
			b.overdue++
		}
	}
}

// nextPaid returns any command, after those that make jobs charged.
func (x *chaos) nextPaid(i int, paid []command.Command) command.Command {
	c := x.next()
	if i < len(paid) {
		return paid[i]
	}
	return c
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
	var late lateBills
	for seed := range uint64(110) {
		x := withNodes(seed)
		s := x.s
		var audit accounting.Audit
		var chain command.AuditChain
		var entries []accounting.Entry
		now := cluster.Instant(time.Hour)
		for i := range uint64(600) {
			now = now.Add(time.Duration(x.pick(9000)) * time.Millisecond)
			if x.pick(300) == 0 {
				now = now.Add(credits.Amendable)
			}
			before, c := s.View(), x.nextPaid(int(i), paid)
			s.Apply(s.index+1, now, c)
			if err := s.Check(); err != nil {
				t.Fatalf("seed %d: command %d, %T: %v", seed, i, c, err)
			}
			effects := s.Effects()
			for _, e := range effects.Audit {
				if err := chain.Add(&e); err != nil {
					t.Fatalf("seed %d: command %d, %T: %v", seed, i, c, err)
				}
				knownKind(t, &e)
				if again, err := command.DecodeAudit(command.EncodeAudit(&e)); err != nil || again != e {
					t.Fatalf("%+v came back as %+v: %v", e, again, err)
				}
			}
			for _, e := range effects.Entries {
				if e.Kind == accounting.Captured {
					charged++
				}
				moved++
				entries = append(entries, e)
				if err := audit.Add(&e); err != nil {
					t.Fatalf("seed %d: command %d, %T: %v", seed, i, c, err)
				}
			}
			late.step(t, before, s.View())
		}
		if seq, head := s.View().Audited(); seq != chain.Seq || head != chain.Head || seq < 100 {
			t.Fatalf("seed %d: %d entries, the chain has %d", seed, seq, chain.Seq)
		}
		if err := audit.CompareWith(s.View().Credits()); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		atTheirPrices(t, s.View().Credits(), entries)
	}
	if moved < 1500 || charged < 150 || late.proven < 10 || late.overdue < 10 {
		t.Fatalf("%d entries, %d charges, %+v late: too few to say anything", moved, charged, late)
	}
}

// atTheirPrices checks that every quote and every bill has the prices of its time.
func atTheirPrices(t *testing.T, l *accounting.Ledger, entries []accounting.Entry) {
	t.Helper()
	audit := accounting.NewAudit(l)
	for i := range entries {
		if err := audit.Add(&entries[i]); err != nil {
			t.Fatal(err)
		}
	}
}

// knownKind fails the test if no query could ask for entries of this kind.
func knownKind(t *testing.T, e *command.AuditEntry) {
	t.Helper()
	kind, _, _ := strings.Cut(e.Kind, "signal ")
	if e.Code == 0 && !slices.Contains(command.AuditKinds(), cmp.Or(kind, "signal")) {
		t.Fatalf("%q is no kind of entry", e.Kind)
	}
}
