package state

import (
	"slices"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// awaitProof makes the next attempt of a job wait until a node is proven to run no task of it. j is not shared yet.
func (s *State) awaitProof(j *cluster.Job, node string) {
	old, known := s.nodes.Get(node)
	if !known || !s.policy.Fencing || !j.Spec.Requeue && !j.Returns {
		return
	}
	if at, has := slices.BinarySearch(j.Unfenced, node); !has {
		j.Unfenced = slices.Insert(slices.Clone(j.Unfenced), at, node)
	}
	n := *old
	if n.Fence.Since == 0 {
		n.Fence = cluster.Fence{Since: s.now}
	}
	n.Fence.Index = s.index
	if at, has := slices.BinarySearch(n.Fence.Jobs, j.ID); !has {
		n.Fence.Jobs = slices.Insert(slices.Clone(n.Fence.Jobs), at, j.ID)
	}
	s.putNode(&n)
}

// provenBy returns the jobs that wait for a node, and whose tasks its report does not have: the node has received what
// is wanted since they wait, and lists all tasks. Processes that only wait in the kernel after SIGKILL execute nothing
// more of a program.
func provenBy(n *cluster.Node, c *command.ReportTasks) (list []cluster.JobID) {
	if len(n.Fence.Jobs) == 0 || c.Seen < n.Fence.Index {
		return nil
	}
	for _, id := range n.Fence.Jobs {
		runs := func(r command.TaskReport) bool {
			return r.Job == id && r.Task.Phase < cluster.TaskClean && !r.Stuck
		}
		if !slices.ContainsFunc(c.Tasks, runs) {
			list = append(list, id)
		}
	}
	return list
}

// fenceNode records the result of the fence program.
func (s *State) fenceNode(c *command.FenceNode) command.Result {
	old, known := s.nodes.Get(c.Node)
	switch {
	case !known || old.Fence.Since == 0 || old.Fence.Since != c.Since: // the node has returned meanwhile
	case c.Failure == "":
		s.proveFenced(c.Node)
	default:
		n := *old
		n.Fence.Tries++
		n.Fence.Tried, n.Fence.Failure = s.now, command.Sanitize(c.Failure)
		s.putNode(&n)
	}
	return &command.Done{Version: s.index}
}

// confirmable refuses the confirmation that a node is off while it responds.
func confirmable(n *cluster.Node, c *command.UpdateNodes) *command.Refusal {
	if n.Liveness != cluster.Alive || c.Action != command.ConfirmFenced {
		return nil
	}
	return command.WithHint(command.Refusef(command.Conflict, "node %q responds: it is not off", n.Name), "the node itself reports when no task of earlier attempts is left; gctl show node %s", n.Name)
}

// confirmFenced takes an operator's word that a node is off. A node that has not been silent for node_timeout is DOWN
// at once. It reports whether anything changed.
func (s *State) confirmFenced(old *cluster.Node) bool {
	waited := len(old.Fence.Jobs) > 0
	s.proveFenced(old.Name)
	if old.Liveness == cluster.Dead {
		return waited
	}
	n := *old
	n.Fence = cluster.Fence{}
	n.Liveness, n.Since = cluster.Dead, s.now
	s.recordFailure(&n, "not responding")
	s.putNode(&n)
	s.loseTasks(n.Name, "the node is off", true)
	return true
}

// proveFenced ends the wait of all jobs for a node: it runs no task of an attempt that has ended.
func (s *State) proveFenced(node string) {
	if n, _ := s.nodes.Get(node); n != nil {
		for _, id := range n.Fence.Jobs {
			s.proveJob(id, node)
		}
	}
}

// proveAll ends all waits, when the policy no longer requires proof. O(nodes).
func (s *State) proveAll() {
	var list []string
	for name, n := range s.nodes.All() {
		if n.Fence.Since > 0 {
			list = append(list, name)
		}
	}
	for _, name := range list {
		s.proveFenced(name)
	}
}

// proveJob ends the wait of a job for a node. If it waits for no other, it may start.
func (s *State) proveJob(id cluster.JobID, node string) {
	s.forgetFence(id, node)
	old, found := s.active(id)
	if !found || !slices.Contains(old.Unfenced, node) {
		return
	}
	j := *old
	j.Unfenced = without(j.Unfenced, node)
	if len(j.Unfenced) == 0 && j.State == cluster.Pending {
		j.Eligible = max(j.Eligible, s.now)
		if j.Reason == cluster.ReasonFencing {
			j.Reason = cluster.ReasonNone
			if j.Eligible > s.now {
				j.Reason = cluster.ReasonBeginTime
			}
		}
	}
	s.put(old, &j)
}

// dropFences removes a job that has ended, a value that is not shared yet, from those that wait for nodes.
func (s *State) dropFences(j *cluster.Job) {
	for _, node := range j.Unfenced {
		s.forgetFence(j.ID, node)
	}
	j.Unfenced = nil
}

// forgetFence removes a job from those that wait for a node.
func (s *State) forgetFence(id cluster.JobID, node string) {
	old, known := s.nodes.Get(node)
	if !known || !slices.Contains(old.Fence.Jobs, id) {
		return
	}
	n := *old
	if n.Fence.Jobs = without(n.Fence.Jobs, id); len(n.Fence.Jobs) == 0 {
		n.Fence = cluster.Fence{}
	}
	s.putNode(&n)
}

// without returns a new list without a value; nil if none is left.
func without[T comparable](list []T, value T) (rest []T) {
	for _, x := range list {
		if x != value {
			rest = append(rest, x)
		}
	}
	return rest
}

// FencesDue returns the nodes that are DOWN and for which the fence program is to run now, by name. For leased nodes it
// does not run: the end of the instance is the proof. O(nodes).
func (v *View) FencesDue(now cluster.Instant) (list []*cluster.Node) {
	for n := range v.Nodes() {
		if n.Liveness == cluster.Dead && n.Rental.Lease == 0 && n.Fence.Due() <= now && slices.ContainsFunc(n.Fence.Jobs, v.awaits) {
			list = append(list, n)
		}
	}
	return list
}

// awaits reports whether a job waits for its nodes, or will when its present attempt has ended, or runs on without them.
func (v *View) awaits(id cluster.JobID) bool {
	j, found := v.Job(id)
	return found && (j.State != cluster.Completing || j.Returns)
}

// checkFences checks that jobs and nodes agree on who waits.
func (x *checking) checkFences() {
	for name, n := range x.nodes.All() {
		if (n.Fence.Since > 0) != (len(n.Fence.Jobs) > 0) || !slices.IsSorted(n.Fence.Jobs) {
			x.fault("node %s: inconsistent fence %+v", name, n.Fence)
		}
		for _, id := range n.Fence.Jobs {
			if j, found := x.active(id); !found || !slices.Contains(j.Unfenced, name) {
				x.fault("node %s: job %d does not wait for its fence", name, id)
			}
		}
	}
	for j := range x.allActive {
		for _, name := range j.Unfenced {
			if n, _ := x.nodes.Get(name); n == nil || !slices.Contains(n.Fence.Jobs, j.ID) {
				x.fault("job %d waits for node %s, which does not know", j.ID, name)
			}
		}
	}
}
