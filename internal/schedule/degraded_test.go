package schedule

import (
	"slices"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/schedule/explain"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestDegradedNodesServeJobsOfOneNode: a job of two nodes starts on healthy nodes only, also when a node
// becomes degraded after a plan, and a job of one node starts on a degraded one.
func TestDegradedNodesServeJobsOfOneNode(t *testing.T) {
	snap := draw(t, `node a gpus=8
node b gpus=8
node c gpus=8
run 1 on=b:0-7 gpus=8 left=30m limit=1h
job 10 gpus=8 nodes=2 limit=1h
job 11 gpus=8 limit=1h`)
	healthy := NewPlanner()
	healthy.Pass(snap)
	next := *snap
	next.Index++
	next.Now = next.Now.Add(time.Second)
	next.Nodes = slices.Clone(snap.Nodes)
	i := slices.IndexFunc(next.Nodes, func(n *cluster.Node) bool { return n.Name == "a" })
	node := *next.Nodes[i]
	node.GPUs = slices.Clone(node.GPUs)
	node.GPUs[2].Degraded = "NVLink error"
	next.Nodes[i] = &node
	for _, p := range []*Planner{healthy, NewPlanner()} {
		starts := map[cluster.JobID]string{}
		for _, s := range p.Pass(&next).Plan.Starts {
			for _, n := range s.Placement.Nodes {
				starts[s.Job] += n.Node
			}
		}
		if len(starts) != 1 || starts[11] != "a" {
			t.Errorf("starts: %v", starts)
		}
	}
	const fault = "validation failed: dcgmi: GPU 2 failed"
	faulty := next
	faulty.Nodes = slices.Clone(next.Nodes)
	for i := range 2 {
		n := *faulty.Nodes[i]
		n.Fault = fault
		faulty.Nodes[i] = &n
	}
	if why, err := explain.Why(&faulty, 10); err != nil || !slices.Contains(why.Exclusions, explain.Exclusion{Condition: "reports a fault: " + fault, Nodes: 2}) {
		t.Errorf("why: %+v, %v", why.Exclusions, err)
	}
	why, err := explain.Why(&next, 10)
	if err != nil || !slices.Contains(why.Exclusions, explain.Exclusion{Condition: "degraded: no jobs of several nodes", Nodes: 1}) {
		t.Errorf("why: %+v, %v", why.Exclusions, err)
	}
}
