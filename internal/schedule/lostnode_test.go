package schedule

import (
	"slices"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// TestALostNodeIsTheCause removes the node on which a job was promised a start: the cause of its
// broken promise names the node.
func TestALostNodeIsTheCause(t *testing.T) {
	snap := draw(t, `node a1 gpus=8
node a2 gpus=8
run 1 on=a1:0-7,a2:0-7 gpus=8 nodes=2 left=30m limit=1h
job 10 gpus=8 limit=1h
job 11 gpus=8 limit=1h after=1m`)
	p := NewPlanner()
	for _, v := range p.Pass(snap).Plan.Verdicts {
		for i, j := range snap.Pending {
			if j.ID == v.Job {
				next := *j
				next.Promise, next.Planned, next.Reason, next.Detail = v.Promise, v.Planned, v.Reason, v.Detail
				snap.Pending[i] = &next
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
				t.Errorf("%s is lost: the cause is %q", node.Name, broken)
			}
		}
		p = NewPlanner()
		p.Pass(snap)
	}
}

// TestALostNodeCostsNoOther checks that a job whose node is lost does not take the place of a later
// promise.
func TestALostNodeCostsNoOther(t *testing.T) {
	snap := draw(t, `
		rules . horizon=24h
		node a gpus=8
		node b gpus=8
		node c gpus=8
		run 1 on=a:0-7 gpus=8 left=30m limit=2h
		run 2 on=b:0-7 gpus=8 left=30m limit=2h
		run 3 on=c:0-7 gpus=8 left=60m limit=2h
		job 4 gpus=8 limit=1h
		job 5 nodes=2 gpus=8 limit=2h after=1m`)
	p := NewPlanner()
	keepPromised(snap, p.Pass(snap))
	next := later(snap, time.Second, 1)
	node := *snap.Nodes[0]
	node.Liveness = cluster.Silent
	next.Nodes = append([]*cluster.Node{&node}, snap.Nodes[1:]...)
	for _, planner := range []*Planner{p, NewPlanner()} {
		d := planner.Pass(next)
		if len(d.Plan.Verdicts) != 1 || d.Plan.Verdicts[0].Job != 4 || d.Plan.Verdicts[0].Broken != "node a is lost" {
			t.Errorf("a is lost: %s, %+v", write(d), d.Plan.Verdicts)
		}
	}
}

// keepPromised gives the jobs their verdicts and promises.
func keepPromised(snap *cluster.Snapshot, d Decision) {
	settle(snap, d)
	for _, v := range d.Plan.Verdicts {
		for _, j := range snap.Pending {
			if j.ID == v.Job {
				j.Promise = v.Promise
			}
		}
	}
}

// TestPromisedPools has a node of two types. A job that accepts both keeps to the GPU that is not
// promised to another, when it comes first now and under a new leader.
func TestPromisedPools(t *testing.T) {
	snap := draw(t, `
		node a gpus=2 type=h100,a100
		run 1 on=a:0 gpus=1 left=30m limit=1h
		run 2 on=a:1 gpus=1 left=30m limit=1h
		job 4 gpus=1 type=a100 limit=2h
		job 5 gpus=1 limit=2h nice=1`)
	p := NewPlanner()
	keepPromised(snap, p.Pass(snap))
	next := later(snap, 2*time.Minute)
	job := *snap.Pending[0]
	spec := *job.Spec
	spec.Nice, job.Spec, next.Pending[0] = 2, &spec, &job
	policy := *snap.Policy // another version of the same, so that all jobs are planned again
	next.Policy = &policy
	for _, planner := range []*Planner{p, NewPlanner()} {
		if d := planner.Pass(next); len(d.Plan.Verdicts) > 0 || !d.Stats.Full {
			t.Errorf("full %v: %s, %+v", d.Stats.Full, write(d), d.Plan.Verdicts)
		}
	}
}
