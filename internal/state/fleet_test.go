package state

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/cluster"
)

func (x *script) ofNodes(verb string, w scriptLine) string {
	switch verb {
	case "nodes":
		return x.nodes()
	case "topology":
		return x.topology(w)
	case "fences":
		return x.fences()
	case "fence":
		n, _ := x.s.nodes.Get(w.plain[0])
		if n == nil {
			x.t.Fatalf("no node %s", w.plain[0])
		}
		return x.apply(&command.FenceNode{Node: n.Name, Since: n.Fence.Since.Add(-w.duration("early")), Failure: w.keys["failure"]})
	}
	return x.fleet(w)
}

// fleet writes the capacity between each two of the times, in seconds times the resource, since the
// clock of the script was 0.
func (x *script) fleet(w scriptLine) string {
	var bounds []cluster.Instant
	for _, p := range w.plain {
		d, err := time.ParseDuration(p)
		if err != nil {
			x.t.Fatal(err)
		}
		bounds = append(bounds, cluster.Instant(d)+1)
	}
	var b strings.Builder
	all, since := x.s.View().CapacityTimes(bounds, x.now)
	fmt.Fprintf(&b, "since %s", since.Sub(1))
	for _, c := range all {
		fmt.Fprintf(&b, "\n%d %s total %ds down %ds drained %ds", c.Period, c.Resource, c.Total/1000, c.Down/1000, c.Drained/1000)
	}
	return b.String()
}

// TestFleetForgets checks that the oldest levels are dropped, and that the capacity since then is
// still known.
func TestFleetForgets(t *testing.T) {
	l := defaultLimits()
	l.levels = 6
	s := newState(l, new(table.Hasher))
	at := func(i int) cluster.Instant { return cluster.Instant(1+i) * cluster.Instant(time.Minute) }
	register := func(i int, name string, gpus int) {
		n := cluster.Node{Name: name, BootID: "b", CPUs: 4}
		for g := range gpus {
			n.GPUs = append(n.GPUs, cluster.GPU{Index: int32(g), Type: "h100"})
		}
		s.Apply(uint64(i+1), at(i), &command.RegisterNode{Node: n})
	}
	register(0, "gpu", 2)
	for i := 1; i < 20; i++ {
		register(i, fmt.Sprint("n", i), 0)
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
	}
	all, since := s.View().CapacityTimes([]cluster.Instant{0, at(20)}, at(20))
	want := []CapacityTime{
		{0, "cpu", Capacity{Total: 4 * 60_000 * (16 + 17 + 18 + 19 + 20)}},
		{0, "gpu:h100", Capacity{Total: 2 * 60_000 * 5}},
	}
	if since != at(15) || len(all) != 2 || all[0] != want[0] || all[1] != want[1] {
		t.Errorf("since %s: %+v, want %+v", since.Time(), all, want)
	}
}

// TestFleetOfWhatChanged checks that a GPU that fails changes the capacity of its type, and of
// nothing else.
func TestFleetOfWhatChanged(t *testing.T) {
	s := newState(defaultLimits(), new(table.Hasher))
	n := cluster.Node{Name: "n1", BootID: "b", CPUs: 4, GPUs: []cluster.GPU{{Type: "h100"}, {Index: 1, Type: "h100"}, {Index: 2, Type: "a100"}}}
	s.Apply(1, 1, &command.RegisterNode{Node: n})
	n.GPUs = append([]cluster.GPU(nil), n.GPUs...)
	n.GPUs[0].Fault = "XID 79"
	s.Apply(2, 2, &command.RegisterNode{Node: n})
	var after []string
	for k := range s.fleet.levels.All() {
		if k.at == 2 {
			after = append(after, k.resource)
		}
	}
	if len(after) != 1 || after[0] != "gpu:h100" || s.Check() != nil {
		t.Errorf("levels of %v, %v", after, s.Check())
	}
}

// fences lists the nodes for which the fence program runs now.
func (x *script) fences() string {
	var names []string
	for _, n := range x.s.View().FencesDue(x.now) {
		names = append(names, n.Name)
	}
	return fmt.Sprint("fence ", names)
}
