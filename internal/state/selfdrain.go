package state

import (
	"fmt"
	"slices"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// selfDrainUser is who drained a node that a condition of its own drained.
const selfDrainUser = "gnoded"

// takeConditions applies the conditions that a node reports to n, which is not shared yet. before are those
// that it had.
//
// A condition drains its node when it appears. The drain ends when no such condition is left, the first
// time in RelapseWindow; the next time an operator must resume the node. A breaker limits how many nodes
// conditions of one cause, or those of one job, drain: further nodes stay in service, and show it. A
// condition of the same cause and job that was there before drains nothing, so that an operator can resume
// the node despite it.
func (s *State) takeConditions(before []cluster.Condition, n *cluster.Node, list []cluster.Condition) {
	n.Conditions = sanitizeConditions(list)
	drains := n.Draining()
	switch {
	case n.Drain && n.DrainCause == "": // by an operator
	case n.Drain && len(drains) == 0:
		s.endSelfDrain(n)
	case n.Drain:
		n.DrainCause, n.DrainWhy = drains[0].Cause, drains[0].Message
	default:
		for _, c := range drains {
			had := slices.ContainsFunc(before, func(b cluster.Condition) bool {
				return b.Cause == c.Cause && b.Job == c.Job && b.Effect == cluster.Drains
			})
			if !had && s.mayDrain(&c) {
				s.selfDrain(n, &c)
				return
			}
		}
	}
}

// selfDrain drains a node because of a condition.
func (s *State) selfDrain(n *cluster.Node, c *cluster.Condition) {
	n.Drain, n.DrainCause, n.DrainWhy, n.DrainBy, n.DrainSince = true, c.Cause, c.Message, selfDrainUser, s.now
	n.Drains = appendDrain(n.Drains, cluster.SelfDrain{At: s.now, Cause: c.Cause, Job: c.Job})
	if c.Job == 0 { // else the job may be the cause
		n.Failures = cluster.AppendFailure(n.Failures, cluster.NodeFailure{At: s.now, Cause: c.Message})
	}
}

// appendDrain returns a new list with another drain.
func appendDrain(list []cluster.SelfDrain, d cluster.SelfDrain) []cluster.SelfDrain {
	list = append(slices.Clone(list), d)
	return list[max(0, len(list)-cluster.MaxSelfDrains):]
}

// excuseNodes ends the drains by conditions of a job that was held for them: the same on several nodes is the
// fault of the job. Conditions that name a repair, such as processes that cannot be killed, are the node's.
// O(nodes).
func (s *State) excuseNodes(id cluster.JobID) {
	var list []*cluster.Node
	for _, n := range s.nodes.All() {
		if slices.ContainsFunc(n.Conditions, func(c cluster.Condition) bool { return excusable(&c, id) }) {
			list = append(list, n)
		}
	}
	for _, old := range list {
		n := *old
		for _, c := range n.Conditions {
			if excusable(&c, id) {
				n.Drains = excuse(n.Drains, cluster.SelfDrain{At: s.now, Cause: c.Cause, Job: id, Excused: true})
			}
		}
		if n.DrainCause != "" && len(n.Draining()) == 0 {
			s.undrain(&n)
		}
		s.putNode(&n)
	}
}

// lastDrain returns the index of the last drain of a node that is not excused; -1 for none.
func lastDrain(n *cluster.Node) int {
	last := len(n.Drains) - 1
	for last >= 0 && n.Drains[last].Excused {
		last--
	}
	return last
}

// excuse returns a new list with d in the place of the last drain of its job and cause.
func excuse(list []cluster.SelfDrain, d cluster.SelfDrain) []cluster.SelfDrain {
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].Job == d.Job && list[i].Cause == d.Cause {
			list = slices.Clone(list)
			list[i].Excused = true
			return list
		}
	}
	return appendDrain(list, d)
}

// excusable reports whether a job that fails on several nodes may have caused a condition.
func excusable(c *cluster.Condition, id cluster.JobID) bool {
	return c.Effect == cluster.Drains && c.Job == id && c.Repair == cluster.NoRepair
}

// endSelfDrain resumes a node whose conditions have ended, unless it resumed by itself lately.
func (s *State) endSelfDrain(n *cluster.Node) {
	since := s.now.Add(-cluster.RelapseWindow)
	if slices.ContainsFunc(n.Drains, func(d cluster.SelfDrain) bool { return d.Ended && d.At > since }) {
		n.DrainWhy = command.Sanitize(fmt.Sprintf("second time in 7 days, check it, then gctl resume %s: %s", n.Name, n.DrainWhy))
		n.DrainCause = "" // only an operator ends it
		return
	}
	n.Drains = slices.Clone(n.Drains)
	if last := lastDrain(n); last >= 0 {
		n.Drains[last].Ended = true
	}
	s.undrain(n)
}

// undrain ends the drain of a node by a condition. A node that reboots, or is to as soon as possible, stays
// drained for that.
func (s *State) undrain(n *cluster.Node) {
	u, _ := s.uses.Get(n.Name)
	reboots := n.RebootDue(u) || n.Reboot.When == cluster.RebootASAP
	n.Drain, n.DrainCause, n.DrainWhy, n.DrainBy, n.DrainSince = false, "", "", "", 0
	if reboots {
		s.drainToReboot(n)
	}
}

// mayDrain is the breaker. O(nodes).
func (s *State) mayDrain(c *cluster.Condition) bool {
	since, drained := s.now.Add(-cluster.DrainWindow), 0
	for _, n := range s.nodes.All() {
		if slices.ContainsFunc(n.Drains, func(d cluster.SelfDrain) bool { return d.Cause == c.Cause && d.At > since && !d.Excused }) {
			drained++
		}
	}
	return drained < cluster.DrainsAllowed(s.nodes.Len()) && (c.Job == 0 || len(s.drainedBy(c.Job)) < cluster.MostDrainsOfJob)
}

// drainedBy returns the nodes that conditions of a job keep drained. O(nodes).
func (x *nodeTables) drainedBy(id cluster.JobID) (names []string) {
	for name, n := range x.nodes.All() {
		if last := lastDrain(n); n.Drain && n.DrainBy == selfDrainUser && last >= 0 && n.Drains[last].Job == id {
			names = append(names, name)
		}
	}
	return names
}

// sanitizeConditions returns conditions that are safe to show.
func sanitizeConditions(list []cluster.Condition) []cluster.Condition {
	list = slices.Clone(list)
	for i := range list {
		list[i].Cause, list[i].Message = command.Sanitize(list[i].Cause), command.Sanitize(list[i].Message)
	}
	return cluster.SortConditions(list)
}
