package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestRebootThatTakesTooLong: the time begins when the node is to reboot, and again with a new leader, which could
// not have received its registration.
func TestRebootThatTakesTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := state.New()
		index := uint64(0)
		apply := func(c command.Command) command.Result {
			index++
			return s.Apply(index, cluster.InstantOf(time.Now()), c)
		}
		apply(&command.Init{ClusterID: "x", Policy: cluster.DefaultPolicy()})
		apply(&command.RegisterNode{Node: cluster.Node{Name: "n1", BootID: "b", CPUs: 1, Memory: 1 << 30}})
		var e heartbeats
		e.open(time.Now())
		late := func(after time.Duration) bool {
			time.Sleep(after)
			changed := e.evaluate(s.View(), time.Now())
			return len(changed) > 0 && changed[0].RebootLate
		}
		if late(time.Hour) {
			t.Error("a node that is not to reboot")
		}
		operator := command.Actor{Identity: cluster.Identity{User: "root"}, Role: command.RoleAdmin}
		apply(&command.UpdateNodes{Actor: operator, Names: []string{"n1"}, Action: command.RebootNodes})
		if late(0) || late(15*time.Minute-time.Second) {
			t.Error("before reboot_timeout")
		}
		e.open(time.Now())
		if late(time.Second) || late(15*time.Minute-time.Second) {
			t.Error("after an election")
		}
		if !late(time.Second) {
			t.Error("after reboot_timeout")
		}
		apply(&command.SetLiveness{Nodes: e.evaluate(s.View(), time.Now())})
		n, _ := s.View().Node("n1")
		if late(time.Hour) || n.Reboot.When != cluster.NoReboot || n.DrainWhy != "reboot timed out after 15:00 (reboot_timeout): check the console of n1, then gctl resume n1" {
			t.Errorf("afterwards: %+v", n)
		}
		p := cluster.DefaultPolicy()
		p.RebootTimeout = 0
		apply(&command.ApplyPolicy{Actor: operator, Policy: p})
		apply(&command.RegisterNode{Node: cluster.Node{Name: "n1", BootID: "c", CPUs: 1, Memory: 1 << 30}})
		apply(&command.UpdateNodes{Actor: operator, Names: []string{"n1"}, Action: command.RebootNodes})
		if late(0) || late(1000*time.Hour) {
			t.Error("without a limit")
		}
	})
}
