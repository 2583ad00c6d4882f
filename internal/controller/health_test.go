package controller

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestLiveness follows one node through a term in simulated time.
func TestLiveness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := state.New()
		index := uint64(0)
		apply := func(c command.Command) command.Result {
			index++
			return s.Apply(index, cluster.InstantOf(time.Now()), c)
		}
		apply(&command.Init{ClusterID: "x", Policy: cluster.DefaultPolicy()})
		epoch := apply(&command.RegisterNode{Node: cluster.Node{Name: "n1", BootID: "b", CPUs: 1, Memory: 1 << 30}}).(*command.Registered).Epoch
		var e heartbeats
		e.open(time.Now())
		expect := func(after time.Duration, want string) {
			t.Helper()
			time.Sleep(after)
			got := fmt.Sprint(e.evaluate(s.View(), time.Now()))
			if got != want {
				t.Fatalf("%s", got)
			}
			if changed := e.evaluate(s.View(), time.Now()); len(changed) > 0 {
				apply(&command.SetLiveness{Nodes: changed})
			}
		}
		is := func(l cluster.Liveness) string { return fmt.Sprintf("[{n1 %d %d false}]", epoch, l) }
		expect(19*time.Second, "[]")
		expect(2*time.Second, is(cluster.Silent))
		e.record("n1", epoch-1, time.Now()) // a heartbeat of an earlier life does not count
		expect(0, "[]")
		e.record("n1", epoch, time.Now())
		expect(0, is(cluster.Alive))
		expect(25*time.Second, is(cluster.Silent))
		expect(270*time.Second, "[]")
		expect(6*time.Second, is(cluster.Dead))
		// A new leader waits, but counts the node as alive only after a heartbeat.
		e.open(time.Now())
		expect(0, "[]")
		expect(299*time.Second, "[]")
		e.record("n1", epoch, time.Now())
		expect(0, is(cluster.Alive))
		// A node that was alive is not silent because of an election.
		time.Sleep(15 * time.Second)
		e.open(time.Now())
		expect(15*time.Second, "[]")
		expect(6*time.Second, is(cluster.Silent))
	})
}
