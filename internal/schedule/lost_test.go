package schedule

import (
	"slices"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// TestALostNodeIsBlamed takes the node away on which one job was promised a start: who
// was promised the other node may have to give way to it, and is told which was lost.
func TestALostNodeIsBlamed(t *testing.T) {
	snap := draw(t, `node a1 gpus=8
node a2 gpus=8
run 1 on=a1:0-7,a2:0-7 gpus=8 nodes=2 left=30m limit=1h
job 10 gpus=8 limit=1h
job 11 gpus=8 limit=1h after=1m`)
	p := NewPlanner()
	for _, v := range p.Pass(snap).Plan.Verdicts {
		for i, j := range snap.Pending {
			if j.ID == v.Job {
				told := *j
				told.Promise, told.Planned, told.Reason, told.Detail = v.Promise, v.Planned, v.Reason, v.Detail
				snap.Pending[i] = &told
			}
		}
	}
	for _, lost := range []int{0, 1} {
		next := *snap
		next.Index++
		next.Now = next.Now.Add(time.Minute)
		next.Nodes = slices.Clone(snap.Nodes)
		node := *snap.Nodes[lost]
		node.Liveness = cluster.Silent
		next.Nodes[lost] = &node
		for _, planner := range []*Planner{p, NewPlanner()} {
			var broken []string
			for _, v := range planner.Pass(&next).Plan.Verdicts {
				if v.Broken != "" {
					broken = append(broken, v.Broken)
				}
			}
			if want := []string{"node " + node.Name + " is lost"}; !slices.Equal(broken, want) {
				t.Errorf("%s is lost: told %q", node.Name, broken)
			}
		}
		p = NewPlanner()
		p.Pass(snap)
	}
}
