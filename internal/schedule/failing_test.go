package schedule

import (
	"slices"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// TestNodeThatFailsOftenMovesAPlan has a node fail often after a job of 9 nodes was planned there: the next pass plans
// the job at the same time on other nodes. Without such a job, no job is planned again.
func TestNodeThatFailsOftenMovesAPlan(t *testing.T) {
	for nodes, moves := range map[string]bool{"9": true, "8": false} {
		snap := draw(t, `
			node n01 gpus=8
			node n02 gpus=8
			node n03 gpus=8
			node n04 gpus=8
			node n05 gpus=8
			node n06 gpus=8
			node n07 gpus=8
			node n08 gpus=8
			node n09 gpus=8
			node n10 gpus=8
			run 1 on=n01:0-7,n02:0-7,n03:0-7,n04:0-7,n05:0-7,n06:0-7,n07:0-7,n08:0-7,n09:0-7,n10:0-7 nodes=10 gpus=8 left=30m limit=1h
			job 2 gpus=8 limit=1h nodes=`+nodes)
		p := NewPlanner()
		settle(snap, p.Pass(snap))
		planned := func() (names []string) {
			for _, h := range p.schedule.PromiseOf(p.schedule.Entry(2)).Hosts {
				names = append(names, h.Node)
			}
			slices.Sort(names)
			return names
		}
		before, at := planned(), p.schedule.Entry(2).At
		next := later(snap, time.Second)
		next.Nodes = slices.Clone(next.Nodes)
		i := slices.IndexFunc(next.Nodes, func(n *cluster.Node) bool { return n.Name == before[0] })
		node := *next.Nodes[i]
		for day := range time.Duration(3) {
			node.Failures = append(node.Failures, cluster.NodeFailure{At: next.Now.Add((day - 3) * 24 * time.Hour)})
		}
		next.Nodes[i] = &node
		d := p.Pass(next)
		if slices.Contains(planned(), before[0]) == moves || p.schedule.Entry(2).At != at || d.Stats.Full != moves {
			t.Errorf("%s nodes: planned on %v and then on %v, at %v and then at %v, full %t", nodes, before, planned(), at, p.schedule.Entry(2).At, d.Stats.Full)
		}
	}
}
