package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/schedule/plan"
	"github.com/greylag/greylag/pkg/cluster"
)

// vary gives some sites licences, leaf switches, nodes whose GPUs are of two NVLink domains or of
// two types, and passes that come a moment late.
func (s *site) vary(seed uint64) {
	s.other = rand.New(rand.NewPCG(seed, 38))
	s.slow = s.other.IntN(3) == 0
	if s.other.IntN(3) == 0 {
		s.policy.Scheduling.Licences = []cluster.Licence{{Name: "sim", Count: 1 + s.other.Int32N(4)}}
	}
	if s.other.IntN(3) == 0 && len(s.snap.Nodes) > 1 {
		s.policy.Scheduling.MaxSwitchWait = 0
		leaves := make([]cluster.Switch, 1+s.other.IntN(3))
		for i, n := range s.snap.Nodes {
			l := &leaves[i%len(leaves)]
			l.Name, l.Nodes = fmt.Sprintf("s%d", i%len(leaves)), append(l.Nodes, n.Name)
		}
		s.snap.Switches = leaves
	}
	if s.other.IntN(3) == 0 {
		for _, n := range s.snap.Nodes {
			for i := range n.GPUs[2:] {
				n.GPUs[2+i].Domain += "b"
			}
		}
	}
	if s.mixed = s.other.IntN(3) == 0; s.mixed {
		for _, n := range s.snap.Nodes {
			for i := range s.other.IntN(4) {
				n.GPUs[3-i].Type = "a100"
			}
		}
	}
}

// varyRequest has some jobs request what only such sites have.
func (s *site) varyRequest(q *cluster.Request) {
	if list := s.policy.Scheduling.Licences; len(list) > 0 && s.other.IntN(4) == 0 {
		q.Licences = []cluster.Licence{{Name: list[0].Name, Count: 1 + s.other.Int32N(list[0].Count)}}
	}
	if len(s.snap.Switches) > 0 && q.Nodes != 1 && s.other.IntN(2) == 0 {
		q.Connect, q.SwitchWait = cluster.ConnectLeaf, -1
		if s.other.IntN(2) == 0 {
			q.SwitchWait = time.Duration(s.other.IntN(40)) * time.Minute
		}
	}
	if s.mixed && q.TotalGPUs() > 0 && s.other.IntN(2) == 0 {
		q.GPUTypes = [][]string{{"h100"}, {"a100"}, {"a100", "h100"}, {"h100", "a100"}}[s.other.IntN(4)]
	}
}

// licensed reports whether all others leave a job's licences at every moment of an interval.
func (s *site) licensed(others []held, job *cluster.Job, from, to cluster.Instant) bool {
	if len(job.Spec.Request.Licences) == 0 {
		return true
	}
	moments := []cluster.Instant{from}
	for _, h := range others {
		if h.from > from && h.from < to {
			moments = append(moments, h.from)
		}
	}
	for _, at := range moments {
		used := job.Spec.Request.Licences[0].Count
		for _, h := range others {
			if h.from <= at && at < h.to {
				used += h.licences
			}
		}
		if used > s.policy.Scheduling.Licences[0].Count {
			return false
		}
	}
	return true
}

// couldStart reports whether a job that is planned for later could start now: with locality, or
// without if its switch wait allows.
func (s *site) couldStart(snap *cluster.Snapshot, others []held, e *plan.Entry) bool {
	q := &e.Job.Spec.Request
	if !s.licensed(others, e.Job, snap.Now, snap.Now.Add(e.Job.Spec.TimeLimit+cleanup)) {
		return false
	}
	if q.Connect != cluster.ConnectLeaf {
		return couldStart(snap, others, e.Job, snap.Now)
	}
	for _, leaf := range snap.Switches {
		part := *snap
		part.Nodes = slices.DeleteFunc(slices.Clone(snap.Nodes), func(n *cluster.Node) bool { return !slices.Contains(leaf.Nodes, n.Name) })
		if couldStart(&part, others, e.Job, snap.Now) {
			return true
		}
	}
	waits := e.Choice%2 == 1 && e.At <= snap.Now.Add(q.SwitchWait)
	return q.SwitchWait >= 0 && !waits && couldStart(snap, others, e.Job, snap.Now)
}
