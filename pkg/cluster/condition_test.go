package cluster_test

import (
	"testing"

	"github.com/greylag/greylag/pkg/cluster"
)

func TestSortConditions(t *testing.T) {
	list := []cluster.Condition{{Cause: "b", Effect: cluster.Notice}, {Effect: cluster.Drains}, {Cause: "x", Effect: 9}, {Cause: "y", Effect: cluster.Drains, Repair: 9}}
	for range 2 * cluster.MaxConditions {
		list = append(list, cluster.Condition{Cause: "a", Effect: cluster.Drains})
	}
	got := cluster.SortConditions(list)
	if len(got) != cluster.MaxConditions || got[0].Cause != "a" {
		t.Errorf("%d conditions: %+v", len(got), got[0])
	}
	if got := cluster.SortConditions([]cluster.Condition{{Cause: "b", Effect: cluster.Notice}, {Cause: "c", Effect: cluster.Degrades}}); got[0].Cause != "c" {
		t.Errorf("%+v", got)
	}
}

// TestDrainsAllowed: the greater of two nodes and 5 %.
func TestDrainsAllowed(t *testing.T) {
	for nodes, want := range map[int]int{0: 2, 4: 2, 59: 2, 60: 3, 1000: 50} {
		if got := cluster.DrainsAllowed(nodes); got != want {
			t.Errorf("%d nodes: %d, want %d", nodes, got, want)
		}
	}
}

// TestDegradedNode: a device without a fault or a condition degrades a node; one that may not drain the
// node has no effect, and shows.
func TestDegradedNode(t *testing.T) {
	n := &cluster.Node{GPUs: []cluster.GPU{{Degraded: "slow", Fault: "lost"}, {Repair: cluster.RepairReset}}}
	if n.Degraded() != "" || n.Repair() != cluster.RepairReset {
		t.Errorf("%q, %s", n.Degraded(), n.Repair())
	}
	n.GPUs[1].Degraded = "link"
	n.Conditions = []cluster.Condition{{Cause: "a", Effect: cluster.Drains, Repair: cluster.RepairReboot, Message: "ib"}, {Cause: "b", Effect: cluster.Degrades, Message: "hot"}}
	if n.Degraded() != "link" || n.Repair() != cluster.RepairReboot || len(n.Undrained()) != 1 {
		t.Errorf("%q, %s, %+v", n.Degraded(), n.Repair(), n.Undrained())
	}
	n.GPUs, n.Drain = nil, true
	if n.Degraded() != "hot" || len(n.Undrained()) != 0 {
		t.Errorf("%q, %+v", n.Degraded(), n.Undrained())
	}
	several := cluster.NewNodeFilter(&cluster.Request{Nodes: 2})
	one := cluster.NewNodeFilter(&cluster.Request{Nodes: 1})
	if several.Suits(n) || !one.Suits(n) {
		t.Errorf("several: %v, one: %v", several.Suits(n), one.Suits(n))
	}
	several.WithFaulty = true
	if !several.Suits(n) {
		t.Error("it may be repaired")
	}
}
