package state

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/cow"
	"github.com/greylag/greylag/internal/schedule/words"
	"github.com/greylag/greylag/internal/state/admission"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/cluster"
)

// nodeTables holds the nodes, their use and their capacity over time.
type nodeTables struct {
	nodes table.Table[string, *cluster.Node]
	fleet fleet

	// Indexes.
	uses   cow.Map[string, cluster.NodeUse]
	onNode cow.Map[nodeJob, int] // ranks
}

// nodeJob orders jobs by the nodes of their allocation.
type nodeJob struct {
	node string
	id   cluster.JobID
}

var nodeSchema = table.Schema[string, *cluster.Node]{ // never written
	Kind: table.Nodes, Compare: strings.Compare, Fields: table.Pointer(command.NodeFields),
	KeyOf: func(n **cluster.Node) string { return (*n).Name },
}

func newNodes(h *table.Hasher) nodeTables {
	return nodeTables{
		nodes: table.New(&nodeSchema, h), fleet: newFleet(h),
		uses: cow.New[string, cluster.NodeUse](strings.Compare),
		onNode: cow.New[nodeJob, int](func(a, b nodeJob) int {
			if c := strings.Compare(a.node, b.node); c != 0 {
				return c
			}
			return cmp.Compare(a.id, b.id)
		}),
	}
}

// clone returns tables that later writes to x do not change. O(1).
func (x *nodeTables) clone(h *table.Hasher) nodeTables {
	return nodeTables{x.nodes.Clone(h), x.fleet.clone(h), x.uses.Clone(), x.onNode.Clone()}
}

// partsOf returns the resources of a node; nil for none.
func (x *nodeTables) partsOf(name string) []part {
	n, _ := x.nodes.Get(name)
	u, _ := x.uses.Get(name)
	return partsOf(n, u)
}

// allocate adds a job's allocation to the use of its nodes, or with sign -1 removes it.
func (x *nodeTables) allocate(j *cluster.Job, sign int32) {
	for rank, a := range j.Alloc.Nodes {
		u, _ := x.uses.Get(a.Node)
		u.GPUs = slices.Clone(u.GPUs)
		addUse(&u, j, a, sign)
		if u.Jobs == 0 {
			x.uses.Delete(a.Node)
		} else {
			x.uses.Set(a.Node, u)
		}
		if sign > 0 {
			x.onNode.Set(nodeJob{a.Node, j.ID}, rank)
		} else {
			x.onNode.Delete(nodeJob{a.Node, j.ID})
		}
	}
}

// addUse changes u, whose GPUs it may write, by the allocation of j on one node.
func addUse(u *cluster.NodeUse, j *cluster.Job, a cluster.NodeAllocation, sign int32) {
	u.Jobs += sign
	u.CPUs += sign * a.CPUs
	u.Memory += cluster.Bytes(sign) * a.Memory
	by, shares := j.Spec.Sharers()
	for _, g := range a.GPUs {
		for int(g) >= len(u.GPUs) {
			u.GPUs = append(u.GPUs, false)
		}
		u.GPUs[g] = sign > 0 || shares && u.SharedGPU(g) != nil && u.SharedGPU(g).Jobs > 1
		if shares {
			u.CountSharer(g, by, sign)
		}
	}
	u.Gres = cluster.AddGres(u.Gres, j.Spec.Request.Gres, int64(sign))
	if j.Spec.Request.Exclusive {
		u.Whole = sign > 0
	}
}

// allocate is nodeTables.allocate that also records the change of the capacity: on nodes that take
// no jobs, the drained amount depends on the use.
func (s *State) allocate(j *cluster.Job, sign int32) {
	var names []string
	var before [][]part
	for _, a := range j.Alloc.Nodes {
		if n, _ := s.nodes.Get(a.Node); n != nil && !sound(n) {
			names, before = append(names, a.Node), append(before, s.partsOf(a.Node))
		}
	}
	s.nodeTables.allocate(j, sign)
	for i, name := range names {
		s.fleet.change(s.now, before[i], s.partsOf(name), s.limits.levels)
	}
}

// register adds a node that connected. A new boot ID begins a new epoch without its former tasks.
// Unknown tasks on the node are orphans until a report identifies them.
func (s *State) register(c *command.RegisterNode) command.Result {
	if refusal := checkNode(&c.Node); refusal != nil {
		return refusal
	}
	if refusal := s.hosts.Revoked("node", c.Node.Name, c.Issued); c.Issued > 0 && refusal != nil {
		return refusal
	}
	if l := s.leases.Adopt(s.leaseEnv(), s.history.Restored, &c.Node, c.Instance); l != nil {
		s.leases.Put(s.leaseEnv(), l)
	}
	lease, refusal := s.leaseOf(&c.Node)
	if refusal != nil {
		return refusal
	}
	old, known := s.nodes.Get(c.Node.Name)
	n := c.Node
	rent(&n, lease)
	n.Fault = command.Sanitize(n.Fault)
	n.Liveness, n.Since, n.Registered = cluster.Alive, s.now, s.now
	n.Drain, n.DrainWhy, n.DrainBy, n.DrainSince = false, "", "", 0
	n.Conditions, n.DrainCause, n.Drains, n.Reboot, n.Fence = nil, "", nil, cluster.Reboot{}, cluster.Fence{}
	n.Joined, n.Failures = s.now, nil
	n.Epoch = s.index
	if known {
		n.Drain, n.DrainWhy, n.DrainBy, n.DrainSince = old.Drain, old.DrainWhy, old.DrainBy, old.DrainSince
		n.Conditions, n.DrainCause, n.Drains, n.Reboot, n.Fence = old.Conditions, old.DrainCause, old.Drains, old.Reboot, old.Fence
		if n.Reboot.When != cluster.NoReboot && !cluster.SameBoot(old.BootID, n.BootID) {
			if endReboot(&n, true) {
				n.Conditions = nil // those that it still has drain it
			}
		}
		n.Joined, n.Failures = old.Joined, old.Failures
		n.Epoch = max(s.index, old.Epoch+1)
	}
	if c.Checked {
		s.takeConditions(n.Conditions, &n, c.Node.Conditions)
	}
	switch {
	case known && old.BootID == n.BootID:
		n.Epoch, n.Orphans, n.Registered = old.Epoch, orphansOnReturn(old), old.Registered
		if old.Liveness == cluster.Alive {
			n.Since = old.Since
		}
	case known:
		if old.Liveness != cluster.Dead && !old.Drain { // else that was the failure, or it is repaired
			s.recordFailure(&n, "restarted")
		}
	}
	s.putNode(&n)
	if known && old.BootID != n.BootID {
		rebooted := !cluster.SameBoot(old.BootID, n.BootID)
		s.loseTasks(n.Name, "the node was restarted", rebooted)
		if rebooted {
			s.proveFenced(n.Name)
		}
	}
	if lease != nil {
		s.joinLeased(lease, &n)
	}
	return &command.Registered{Epoch: n.Epoch}
}

// orphansOnReturn returns the number of orphans on a node that responds again. For a dead node it is
// unknown until the first report. The node counts as having some, so that their GPUs are not
// allocated while they still run.
func orphansOnReturn(old *cluster.Node) int32 {
	if old.Liveness == cluster.Dead {
		return max(1, old.Orphans)
	}
	return old.Orphans
}

// checkNode refuses an invalid node.
func checkNode(n *cluster.Node) *command.Refusal {
	bad := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(",[]", r) }
	switch {
	case n.Name == "" || len(n.Name) > maxNodeName || strings.ContainsFunc(n.Name, bad):
		return command.Refusef(command.InvalidArgument, "%q is not a valid node name", command.Sanitize(n.Name))
	case n.CPUs < 1 || n.CPUs > maxNodeCPUs || n.Memory < 0 || n.Memory > maxNodeMemory:
		return command.Refusef(command.InvalidArgument, "node %s: %d CPUs, %d bytes of memory: out of range", n.Name, n.CPUs, int64(n.Memory))
	case n.Orphans < 0:
		return command.Refusef(command.InvalidArgument, "node %s has %d tasks: want 0 or more", n.Name, n.Orphans)
	case len(n.Features) > maxNodeWords:
		return command.Refusef(command.InvalidArgument, "node %s: %d features, at most %d", n.Name, len(n.Features), maxNodeWords)
	}
	for _, word := range append([]string{n.Address, n.BootID, n.Version, n.Runtime, n.Region}, n.Features...) {
		if len(word) > command.MaxMessage {
			return command.Refusef(command.InvalidArgument, "node %s: a description of more than %d bytes", n.Name, command.MaxMessage)
		}
	}
	if why := cluster.GresFault(n.Gres); why != "" {
		return command.Refusef(command.InvalidArgument, "node %s: %s", n.Name, why)
	}
	if why := gpuFault(n.GPUs); why != "" {
		return command.Refusef(command.InvalidArgument, "node %s: %s", n.Name, why)
	}
	return nil
}

// putNode stores a node, unless it is equal to the stored one.
func (s *State) putNode(n *cluster.Node) {
	old, known := s.nodes.Get(n.Name)
	switch {
	case n.Fault == "":
		n.FaultSince = 0
	case known && old.Fault != "":
		n.FaultSince = old.FaultSince
	default:
		n.FaultSince = s.now
	}
	if known {
		n.Changed = old.Changed
		if bytes.Equal(encodeNode(old), encodeNode(n)) {
			return
		}
	}
	n.Changed = s.index
	before := s.partsOf(n.Name)
	s.nodes.Set(n.Name, n)
	s.nodeChanged(n.Name, before)
	if !known || admission.Relevant(old, n) {
		s.partitions = nil
		s.credits.RetryAll()
	}
}

func encodeNode(n *cluster.Node) []byte {
	c := codec.Writer(nil)
	command.NodeFields(&c, n)
	return c.Written()
}

// nodeChanged records that a node with some parts changed.
func (s *State) nodeChanged(name string, before []part) {
	s.fleet.change(s.now, before, s.partsOf(name), s.limits.levels)
	s.effects.Changed = append(s.effects.Changed, Change{Kind: NodeChanged, Node: name})
}

// setLiveness records which nodes the leader receives heartbeats from. It ignores what refers to an
// earlier epoch of a node.
func (s *State) setLiveness(c *command.SetLiveness) command.Result {
	for _, l := range c.Nodes {
		old, known := s.nodes.Get(l.Node)
		if !known || old.Epoch != l.Epoch || l.Liveness > cluster.Dead {
			continue
		}
		if l.RebootLate {
			old = s.missReboot(old, l.Liveness)
		}
		if old.Liveness == l.Liveness {
			continue
		}
		n := *old
		n.Liveness, n.Since = l.Liveness, s.now
		switch l.Liveness {
		case cluster.Dead:
			s.recordFailure(&n, "not responding")
		default:
			n.Orphans = orphansOnReturn(old)
		}
		s.putNode(&n)
		switch l.Liveness {
		case cluster.Dead:
			s.loseTasks(n.Name, "not responding", false)
			s.leaseDead(n.Name)
		case cluster.Silent:
			s.blameNode(n.Name)
		}
	}
	return &command.Done{Version: s.index}
}

// blameNode blames a node that has become silent for jobs that failed just before. O(jobs on the node).
func (s *State) blameNode(node string) {
	var jobs []*cluster.Job
	for k := range s.onNode.From(nodeJob{node, 0}) {
		if k.node != node {
			break
		}
		if j, _ := s.holding.Get(k.id); j.State == cluster.Completing {
			jobs = append(jobs, j)
		}
	}
	for _, old := range jobs {
		j := *old
		if s.blameSilent(&j); j.Returns != old.Returns || j.Outcome != old.Outcome {
			s.settle(&j)
			s.put(old, &j)
		}
	}
}

// updateNodes drains, resumes, reboots or removes nodes: all that are named, or none.
func (s *State) updateNodes(c *command.UpdateNodes) command.Result {
	if again := s.repeated(c.Request); again != nil {
		return again
	}
	switch {
	case len(c.Names) == 0:
		return command.Refuse(command.InvalidArgument, "no node is named", "")
	case c.Action < command.DrainNodes || c.Action > command.ConfirmFenced:
		return command.Refusef(command.InvalidArgument, "unknown action %d on nodes", c.Action)
	case c.Action == command.DrainNodes && strings.TrimSpace(c.Reason) == "":
		return command.Refuse(command.InvalidArgument, "draining needs a reason", "give one with --reason")
	case !c.Actor.Has(command.RoleOperator):
		return command.Refusef(command.Denied, "%s may not change nodes: requires role operator", c.Actor.Identity.User)
	}
	for _, name := range c.Names {
		n, known := s.nodes.Get(name)
		if !known {
			return s.remember(c.Request, command.WithHint(command.Refusef(command.NotFound, "no node %q", command.Sanitize(name)), "gctl info lists the nodes"))
		}
		if refusal := cmp.Or(s.removable(n, c), s.rebootable(n, c), confirmable(n, c), s.ownLease(n, c)); refusal != nil {
			return s.remember(c.Request, refusal)
		}
	}
	answer := &command.Named{Index: s.index}
	for _, name := range c.Names {
		if s.updateNode(name, c) {
			answer.Names = append(answer.Names, name)
		}
	}
	return s.remember(c.Request, answer)
}

// removable refuses the removal of a node with jobs. On a silent node they may still run: they end
// when it did not respond for node_timeout, or by force.
func (x *nodeTables) removable(n *cluster.Node, c *command.UpdateNodes) *command.Refusal {
	u, busy := x.uses.Get(n.Name)
	switch {
	case c.Action == command.RemoveNodes && len(n.Fence.Jobs) > 0:
		return command.WithHint(command.Refusef(command.Conflict, "%s for proof that node %q runs no task of them", words.Count(int32(len(n.Fence.Jobs)), "job waits", "jobs wait"), n.Name), "when the node is off: gctl node fenced %s", n.Name)
	case !busy || u.Jobs == 0 || c.Action != command.RemoveNodes:
		return nil
	case n.Liveness == cluster.Alive && n.Drain:
		return command.WithHint(command.Refusef(command.Conflict, "node %q is draining and has %s", n.Name, words.Count(u.Jobs, "job")), "remove it when they have ended; gqueue -w %s lists them", n.Name)
	case n.Liveness == cluster.Alive:
		return command.WithHint(command.Refusef(command.Conflict, "node %q is up and has %s", n.Name, words.Count(u.Jobs, "job")), "drain it, and remove it when they have ended")
	case !c.Force:
		return command.WithHint(command.Refusef(command.Conflict, "node %q does not respond and has %s, which may still run", n.Name, words.Count(u.Jobs, "job")),
			"they are treated as lost after node_timeout; --force removes it now, and requeues them or ends them as NODE_FAIL")
	}
	return nil
}

// updateNode changes one node and reports whether it changed.
func (s *State) updateNode(name string, c *command.UpdateNodes) bool {
	old, known := s.nodes.Get(name)
	if !known {
		return false // named twice and removed
	}
	n := *old
	switch c.Action {
	case command.DrainNodes:
		why := command.Sanitize(c.Reason)
		if old.Drain && old.DrainWhy == why {
			return false
		}
		n.Reboot.Drained = false // it stays drained
		n.Drain, n.DrainCause, n.DrainWhy, n.DrainBy, n.DrainSince = true, "", why, c.Actor.Identity.User, s.now
	case command.ResumeNodes:
		if !old.Drain && old.Reboot.When == cluster.NoReboot {
			return false
		}
		n.Reboot = cluster.Reboot{}
		n.Drain, n.DrainCause, n.DrainWhy, n.DrainBy, n.DrainSince = false, "", "", "", 0
	case command.RebootNodes, command.RebootNodesWhenIdle:
		if !s.requestReboot(&n, c) {
			return false
		}
	case command.CancelReboots:
		if old.Reboot.When == cluster.NoReboot {
			return false
		}
		if endReboot(&n, false) {
			s.takeConditions(nil, &n, n.Conditions)
		}
	case command.ConfirmFenced:
		return s.confirmFenced(old)
	case command.RemoveNodes:
		s.hosts.Revoke(s.now, "node", name, c.Actor.Identity.User, "the node was removed")
		s.removeNode(name, "the node was removed")
		return true
	}
	s.putNode(&n)
	return true
}

// removeNode removes a node that runs no task any longer.
func (s *State) removeNode(name, why string) {
	s.loseTasks(name, why, true)
	before := s.partsOf(name)
	s.nodes.Delete(name)
	s.nodeChanged(name, before)
	s.partitions = nil
	s.credits.RetryAll()
}
