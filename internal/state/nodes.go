package state

import (
	"strings"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// register takes in a node that has dialled in. Under a new boot id it begins a new
// life: a new epoch, and nothing of its former tasks. What a node has that is not known,
// or not in this life, is nobody's: it counts as left over until a report says otherwise.
func (s *State) register(c *command.RegisterNode) command.Result {
	if refusal := checkNode(&c.Node); refusal != nil {
		return refusal
	}
	if h, held := s.holders.Get(holderKey{"node", c.Node.Name}); held && c.Issued > 0 && h.Revoked(c.Issued) {
		return revokedRefusal(h)
	}
	old, known := s.nodes.Get(c.Node.Name)
	n := c.Node
	n.Fault = sanitize(n.Fault)
	n.Liveness, n.Since, n.Registered = cluster.Alive, s.now, s.now
	n.Drain, n.DrainWhy, n.DrainBy, n.DrainSince = false, "", "", 0
	n.Epoch = s.index
	if known {
		n.Drain, n.DrainWhy, n.DrainBy, n.DrainSince = old.Drain, old.DrainWhy, old.DrainBy, old.DrainSince
		n.Epoch = max(s.index, old.Epoch+1)
	}
	switch {
	case known && old.BootID == n.BootID:
		n.Epoch, n.Orphans, n.Registered = old.Epoch, afterDeath(old), old.Registered
		if old.Liveness == cluster.Alive {
			n.Since = old.Since
		}
	case known:
		s.loseTasks(n.Name, "the node was started anew")
	}
	s.putNode(&n)
	return &command.Registered{Epoch: n.Epoch}
}

// afterDeath is how many tasks nobody wants are on a node that is heard again. Of
// one that was given up, nobody knows until its first report: it counts as having
// some, so that their GPUs are not given away while they still run.
func afterDeath(old *cluster.Node) int32 {
	if old.Liveness == cluster.Dead {
		return max(1, old.Orphans)
	}
	return old.Orphans
}

// checkNode refuses what no node is.
func checkNode(n *cluster.Node) *command.Refusal {
	bad := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(",[]", r) }
	switch {
	case n.Name == "" || len(n.Name) > maxNodeName || strings.ContainsFunc(n.Name, bad):
		return refusef(command.InvalidArgument, "%q is no name for a node", sanitize(n.Name))
	case n.CPUs < 1 || n.CPUs > maxNodeCPUs || n.Memory < 0 || n.Memory > maxNodeMemory:
		return refusef(command.InvalidArgument, "node %s: %d CPUs, %d bytes of memory: out of range", n.Name, n.CPUs, int64(n.Memory))
	case n.Orphans < 0:
		return refusef(command.InvalidArgument, "node %s has %d tasks: want 0 or more", n.Name, n.Orphans)
	case len(n.Features) > maxNodeWords:
		return refusef(command.InvalidArgument, "node %s: %d features, at most %d", n.Name, len(n.Features), maxNodeWords)
	}
	for _, word := range append([]string{n.Address, n.BootID, n.Version, n.Runtime, n.Region}, n.Features...) {
		if len(word) > maxMessage {
			return refusef(command.InvalidArgument, "node %s: a description of more than %d bytes", n.Name, maxMessage)
		}
	}
	if why := gpuFault(n.GPUs); why != "" {
		return refusef(command.InvalidArgument, "node %s: %s", n.Name, why)
	}
	return nil
}

// putNode stores a node, unless it is as it was.
func (s *State) putNode(n *cluster.Node) {
	old, known := s.nodes.Get(n.Name)
	if known {
		n.Changed = old.Changed
		before := s.hashNode(old)
		if before == s.hashNode(n) {
			return
		}
		s.digest ^= before
	}
	n.Changed = s.index
	before := s.partsOf(n.Name)
	s.nodes.Set(n.Name, n)
	s.digest ^= s.hashNode(n)
	s.fleetChanged(before, s.partsOf(n.Name))
	if !known || !shapeOf(old).same(shapeOf(n)) || !sameLinks(old.GPUs, n.GPUs) {
		s.rooms, s.retryAll = nil, true
	}
	s.effects.Changed = append(s.effects.Changed, Change{Kind: NodeChanged, Node: n.Name})
}

// setLiveness notes whom the leader hears. What it says of an earlier life of a node
// is ignored.
func (s *State) setLiveness(c *command.SetLiveness) command.Result {
	for _, l := range c.Nodes {
		old, known := s.nodes.Get(l.Node)
		if !known || old.Epoch != l.Epoch || old.Liveness == l.Liveness || l.Liveness > cluster.Dead {
			continue
		}
		n := *old
		n.Liveness, n.Since = l.Liveness, s.now
		switch l.Liveness {
		case cluster.Dead:
			s.loseTasks(n.Name, "no answer from the node")
		default:
			n.Orphans = afterDeath(old)
		}
		s.putNode(&n)
	}
	return &command.Done{Version: s.index}
}

// updateNodes drains, resumes or removes nodes: all that are named, or none.
func (s *State) updateNodes(c *command.UpdateNodes) command.Result {
	if again := s.repeated(c.Request); again != nil {
		return again
	}
	switch {
	case len(c.Names) == 0:
		return refuse(command.InvalidArgument, "no node is named", "")
	case c.Action < command.DrainNodes || c.Action > command.RemoveNodes:
		return refusef(command.InvalidArgument, "unknown action %d on nodes", c.Action)
	case c.Action == command.DrainNodes && strings.TrimSpace(c.Reason) == "":
		return refuse(command.InvalidArgument, "draining needs a reason", "give one with --reason")
	case !allowed(c.Actor, command.RoleOperator):
		return refusef(command.Denied, "%s may not change nodes: that needs the role operator", c.Actor.Identity.User)
	}
	for _, name := range c.Names {
		n, known := s.nodes.Get(name)
		if !known {
			return s.remember(c.Request, hinting(refusef(command.NotFound, "there is no node %q", sanitize(name)), "gctl info lists the nodes"))
		}
		if refusal := s.removable(n, c); refusal != nil {
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

// removable refuses to forget a node under its jobs. They may still run on one that is merely silent:
// what ends them then is that it has been silent for node_timeout, or somebody who knows and says force.
func (s *State) removable(n *cluster.Node, c *command.UpdateNodes) *command.Refusal {
	u, busy := s.uses.Get(n.Name)
	switch {
	case !busy || u.Jobs == 0 || c.Action != command.RemoveNodes:
		return nil
	case n.Liveness == cluster.Alive:
		return hinting(refusef(command.Conflict, "node %q answers and has %s", n.Name, plural(int64(u.Jobs), "job")), "drain it, and remove it when they have ended")
	case !c.Force:
		return hinting(refusef(command.Conflict, "node %q is silent and has %s, which may still run", n.Name, plural(int64(u.Jobs), "job")),
			"they are given up when it has been silent for node_timeout; --force removes it now, and they run again elsewhere or end as NODE_FAIL")
	}
	return nil
}

// updateNode changes one node and reports whether there was anything to change.
func (s *State) updateNode(name string, c *command.UpdateNodes) bool {
	old, known := s.nodes.Get(name)
	if !known {
		return false // named twice and removed
	}
	n := *old
	switch c.Action {
	case command.DrainNodes:
		why := sanitize(c.Reason)
		if old.Drain && old.DrainWhy == why {
			return false
		}
		n.Drain, n.DrainWhy, n.DrainBy, n.DrainSince = true, why, c.Actor.Identity.User, s.now
	case command.ResumeNodes:
		if !old.Drain {
			return false
		}
		n.Drain, n.DrainWhy, n.DrainBy, n.DrainSince = false, "", "", 0
	case command.RemoveNodes:
		s.loseTasks(name, "the node was removed")
		s.revoke("node", name, c.Actor.Identity.User, "the node was removed")
		before := s.partsOf(name)
		s.nodes.Delete(name)
		s.fleetChanged(before, nil)
		s.digest ^= s.hashNode(old)
		s.rooms, s.retryAll = nil, true
		s.effects.Changed = append(s.effects.Changed, Change{Kind: NodeChanged, Node: name})
		return true
	}
	s.putNode(&n)
	return true
}
