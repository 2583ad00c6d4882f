package state

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/cow"
	"github.com/greylag/greylag/internal/state/credits"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// indexes is the indexes of a state, which are not encoded.
func indexes(s *State) string {
	var out strings.Builder
	fmt.Fprintln(&out, s.requests.byKey, s.requests.bytes, s.dependents, s.states)
	listed(&out, "present", &s.fleet.present)
	listed(&out, "user", &s.users)
	listed(&out, "on node", &s.onNode)
	listed(&out, "due", &s.due)
	listed(&out, "ended", &s.ended)
	listed(&out, "array", &s.arrays.Map)
	for d := range s.blobs.Digests() {
		fmt.Fprintln(&out, "blob", d, s.blobs.Needed(d))
	}
	for id := range s.credits.PartlyFunded() {
		fmt.Fprintln(&out, "narrow", id)
	}
	return out.String()
}

func listed[K, V any](out *strings.Builder, what string, m *cow.Map[K, V]) {
	for k, v := range m.All() {
		fmt.Fprintln(out, what, k, v)
	}
}

// TestRestoredAnywhere applies random histories of charged jobs to two replicas.
// One is sometimes restored from a snapshot. After every command they are equal.
func TestRestoredAnywhere(t *testing.T) {
	p := cluster.DefaultPolicy()
	p.Credits.On = true
	root := actor("root")
	paid := []command.Command{
		&command.ApplyPolicy{Actor: root, Policy: p},
		&command.ChangeCredits{Actor: root, Action: command.SetPrice, GPUType: "h100", Amount: accounting.One},
		&command.ChangeCredits{Actor: root, Action: command.GrantCredits, Account: "physics", Class: accounting.Purchase, Amount: accounting.One},
	}
	for seed := range uint64(16) {
		x := &chaos{r: rand.New(rand.NewPCG(seed, 3)), s: newState(small, new(table.Hasher))}
		again := newState(small, new(table.Hasher))
		now := cluster.Instant(time.Hour)
		for i := range 400 {
			now = now.Add(time.Duration(x.pick(9000)) * time.Millisecond)
			if x.pick(200) == 0 {
				now = now.Add(credits.Amendable)
			}
			c := x.nextPaid(i, paid)
			if i >= len(paid) && i < 10 {
				c = x.register()
			}
			index := uint64(i/3) + 1
			x.s.Apply(index, now, c)
			x.s.Effects()
			again.Apply(index, now, c)
			again.Effects()
			if again.Digest() != x.s.Digest() {
				t.Fatalf("seed %d: after command %d, %T, a replica from a snapshot is another", seed, i, c)
			}
			if x.pick(10) == 0 {
				again = restore(t, encode(t, again), x.s.Digest())
				if err := again.Check(); err != nil {
					t.Fatalf("seed %d: after command %d, %T: %v", seed, i, c, err)
				}
				if got, want := indexes(again), indexes(x.s); got != want {
					t.Fatalf("seed %d: after command %d, %T, a replica from a snapshot has other indexes:\n%s\nwant\n%s", seed, i, c, got, want)
				}
			}
		}
	}
}
