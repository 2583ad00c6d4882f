package sim

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/greylag/greylag/pkg/cluster"
)

func TestSweep(t *testing.T) {
	sizes, err := GrowingNodes.Sweep(PassSize{Nodes: 3, GPUsPerNode: 2, Pending: 4, Seed: 1}, 14)
	if err != nil {
		t.Fatal(err)
	}
	var nodes []int
	for _, s := range sizes {
		nodes = append(nodes, s.Nodes)
	}
	if !slices.Equal(nodes, []int{3, 6, 12, 14}) {
		t.Errorf("nodes %v", nodes)
	}
	policy := cluster.DefaultPolicy()
	var rows []*PassTimings
	if err := MeasureSweep(sizes[:2], &policy, func(string) {}, func(m *PassTimings) error {
		rows = append(rows, m)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(rows) != 2 || rows[0].Nodes != 3 || rows[1].Nodes != 6 || rows[1].Full.P50 <= 0 || rows[1].EventPasses == 0 {
		t.Errorf("%+v", rows)
	}
	var b strings.Builder
	if err := WriteGrowthSVG(&b, rows, GrowingNodes); err != nil || strings.Count(b.String(), "<circle") != 6 {
		t.Errorf("%v\n%s", err, b.String())
	}
}

func TestSweepRefuses(t *testing.T) {
	for _, x := range []struct {
		g    Growing
		s    PassSize
		upTo int
	}{
		{GrowingNodes, PassSize{Nodes: 8}, 8}, {GrowingQueue, PassSize{Nodes: 8}, 10}, {GrowingNodes, PassSize{Nodes: -1}, 10},
		{GrowingQueue, PassSize{Pending: 1}, 1 << 60},
	} {
		if _, err := x.g.Sweep(x.s, x.upTo); !errors.Is(err, ErrRefused) {
			t.Errorf("%+v to %d: %v", x.s, x.upTo, err)
		}
	}
	if err := WriteGrowthSVG(&strings.Builder{}, nil, GrowingQueue); !errors.Is(err, ErrRefused) {
		t.Error(err)
	}
}

// TestMeasurePassOfAQueue: the jobs that are given are those that are pending.
func TestMeasurePassOfAQueue(t *testing.T) {
	policy := cluster.DefaultPolicy()
	held := jobOf(9, 1) // more nodes than there are: the cluster refuses it
	_, err := MeasurePass(PassSize{Nodes: 2, GPUsPerNode: 8, Pending: 1, Queue: []cluster.JobSpec{held}}, &policy, func(string) {})
	if !errors.Is(err, ErrRefused) {
		t.Errorf("%v", err)
	}
	m, err := MeasurePass(PassSize{Nodes: 2, GPUsPerNode: 8, Pending: 5, Queue: []cluster.JobSpec{jobOf(1, 1e12), jobOf(2, 1e12)}}, &policy, func(string) {})
	if err != nil || m.Planned != 5 {
		t.Errorf("%+v, %v", m, err)
	}
}
