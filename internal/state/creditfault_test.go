package state

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestFaultRefundsWhatWasCharged runs jobs at changing prices, charges them at irregular times and
// loses their node. Some nodes return and prove more time. The refund is the sum of the charges for
// each second of the work, counted second by second.
func TestFaultRefundsWhatWasCharged(t *testing.T) {
	given, proven := 0, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		x := newScript(t)
		part, lost := 1+r.IntN(150*60), 60+r.IntN(4*3600)
		changes := map[int]accounting.Credits{0: 2000} // of two GPUs for a second, by when it begins
		for _, line := range []string{
			"at 1h", "node n1 gpus=8:h100", "policy root", "account op add ml + add ml user=ada",
			fmt.Sprintf("charging root on floating refund=%ds", part), "credit root price type=h100 amount=3.6",
			"credit root grant account=ml amount=20", "credit root grant account=ml amount=10000",
			"submit ada account=ml gpusper=2 time=8h types=h100", "start 1 n1:0,1", "report n1 1/1 started",
		} {
			x.run(line)
		}
		for range r.IntN(5) {
			from, times := 1+r.IntN(8*3600), 1+r.IntN(9)
			x.run(fmt.Sprintf("credit root price type=h100 amount=%d.%d effective=%ds", 36*times/10, 36*times%10, 3600+from))
			changes[from] = accounting.Credits(2000 * times)
		}
		price := make([]accounting.Credits, 8*3600)
		for i, now := 0, changes[0]; i < len(price); i++ {
			if c, changed := changes[i]; changed {
				now = c
			}
			price[i] = now
		}
		counted := 0
		for at := r.IntN(3600); at < lost; at += 1 + r.IntN(3600) {
			counted = at
			x.run(fmt.Sprintf("at %ds", 3600+at))
			x.run(fmt.Sprintf("meter 1/1 %ds number=%d", at, at+1))
		}
		x.run(fmt.Sprintf("at %ds", 3600+lost))
		x.run("dead n1")
		back := x.refunded(t, seed, price[max(0, counted-part):counted])
		if given++; back == 0 && counted > 0 {
			t.Fatalf("seed %d: nothing was refunded", seed)
		}
		if r.IntN(2) > 0 {
			continue
		}
		ran := counted + r.IntN(lost-counted+1)
		x.run(fmt.Sprintf("at %ds", 3600+lost+r.IntN(7200)))
		x.run("alive n1")
		x.run(fmt.Sprintf("report n1 1/1 ended ran=%ds", ran))
		more := max(0, min(part-counted, ran-counted)) // of the remaining limit
		x.refunded(t, seed, append(price[ran-more:ran:ran], price[max(0, counted-part):counted]...))
		proven++
	}
	if given < 300 || proven < 100 {
		t.Fatalf("%d and %d of them proven: too few to say anything", given, proven)
	}
}

// refunded checks that the refund of an attempt is the sum of prices.
func (x *script) refunded(t *testing.T, seed uint64, prices []accounting.Credits) (sum accounting.Credits) {
	t.Helper()
	for _, c := range prices {
		sum += c
	}
	n, _ := x.s.credits.Ledger().Lien(accounting.LienID{Job: 1, Attempt: 1})
	if back := n.Due() - n.Paid(); back != sum || n.Holds() != 0 {
		t.Fatalf("seed %d: %s refunded, want %s of %s", seed, back, sum, n.Due())
	}
	return sum
}

// TestKeysOfAnyRequest checks that a change with a key is recognized by it in any request, and
// without a key by its request.
func TestKeysOfAnyRequest(t *testing.T) {
	s := newState(limits{tail: 20, requests: 10, requestBytes: 1 << 20, levels: 1000}, new(table.Hasher))
	apply := func(c command.Command) command.Result {
		r := s.Apply(s.index+1, cluster.Instant(s.index+1), c)
		s.Effects()
		return r
	}
	grant := func(request byte) (again bool) {
		t.Helper()
		c := &command.ChangeCredits{Actor: command.Actor{Role: command.RoleAdmin}, Action: command.GrantCredits, Account: "ml", Class: accounting.Purchase, Amount: accounting.One, Key: "x"}
		if request > 0 {
			c.Request = command.RequestID{Key: [16]byte{request}, Payload: [16]byte{9}}
		}
		r, is := apply(c).(*command.Credited)
		if !is {
			t.Fatalf("answered %+v", r)
		}
		return r.Again
	}
	apply(&command.Init{ClusterID: "test"})
	apply(&command.EditAccounts{Actor: command.Actor{Role: command.RoleAdmin}, Edits: []command.AccountEdit{{Action: command.PutAccount, Account: "ml"}}})
	if grant(1) || !grant(1) || !grant(2) || !s.credits.Ledger().HasKey("grant:x") {
		t.Error("a key is not known again")
	}
	without := &command.ChangeCredits{Actor: command.Actor{Role: command.RoleAdmin}, Action: command.GrantCredits, Account: "ml", Class: accounting.Purchase, Amount: accounting.One, Key: "x"}
	if r, is := apply(without).(*command.Refusal); !is || r.Code != command.Mismatch {
		t.Errorf("a name without a request is not known: %+v", r)
	}
}

// TestKeysOfLongNames checks that a coordinator's key of any length is recognized, and is the
// coordinator's own, however long the user name is.
func TestKeysOfLongNames(t *testing.T) {
	x := newScript(t)
	long := strings.Repeat("n", 254)
	for _, line := range []string{"policy root", "account op add uni coordinators=" + long + "a," + long + "b + add ml parent=uni"} {
		x.run(line)
	}
	budget := func(who string) string {
		c := &command.ChangeCredits{Actor: actor(long + who), Action: command.SetBudget, Account: "ml", Amount: accounting.One, Key: strings.Repeat("k", 128)}
		c.Request = command.RequestID{Key: [16]byte{who[0]}, Payload: [16]byte{9}}
		return x.apply(c)
	}
	for _, who := range []string{"a", "b"} {
		if got := budget(who); got != "done" {
			t.Errorf("the key of %s: %s", who, got)
		}
		if got := budget(who); !strings.Contains(got, "again, by "+long+who) {
			t.Errorf("the key of %s once more: %s", who, got)
		}
	}
}
