package state

import (
	"fmt"
	"slices"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// selfDrainUser is who drained a node that a condition of its own drained.
const selfDrainUser = "gnoded"

// takeConditions applies the conditions that a node reports to n, which is not shared yet. old is the node
// before; nil for a new one.
//
// A condition drains its node when it appears. The drain ends when no such condition is left, the first
// time in RelapseWindow; the next time an operator must resume the node. A breaker limits how many nodes
// conditions of one cause, or those of one job, drain: further nodes stay in service, and show it. A
// condition that was there before drains nothing, so that an operator can resume the node despite it.
func (s *State) takeConditions(old, n *cluster.Node, list []cluster.Condition) {
	var before []cluster.Condition
	if old != nil {
		before = old.Conditions
	}
	n.Conditions = sanitizeConditions(list)
	drains := drainsOf(n.Conditions)
	switch {
	case n.Drain && n.DrainCause == "": // by an operator
	case n.Drain && len(drains) == 0:
		s.endSelfDrain(n)
	case n.Drain:
		n.DrainCause, n.DrainWhy = drains[0].Cause, drains[0].Message
	default:
		for _, c := range drains {
			had := slices.ContainsFunc(before, func(b cluster.Condition) bool { return b.Cause == c.Cause && b.Effect == cluster.Drains })
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
	n.Drains = append(slices.Clone(n.Drains), cluster.SelfDrain{At: s.now, Cause: c.Cause, Job: c.Job})
	n.Drains = n.Drains[max(0, len(n.Drains)-cluster.MaxSelfDrains):]
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
	if last := len(n.Drains) - 1; last >= 0 {
		n.Drains[last].Ended = true
	}
	n.Drain, n.DrainCause, n.DrainWhy, n.DrainBy, n.DrainSince = false, "", "", "", 0
}

// mayDrain is the breaker. O(nodes).
func (s *State) mayDrain(c *cluster.Condition) bool {
	since, drained := s.now.Add(-cluster.DrainWindow), 0
	for _, n := range s.nodes.All() {
		if slices.ContainsFunc(n.Drains, func(d cluster.SelfDrain) bool { return d.Cause == c.Cause && d.At > since }) {
			drained++
		}
	}
	return drained < cluster.DrainsAllowed(s.nodes.Len()) && (c.Job == 0 || len(s.drainedBy(c.Job)) < cluster.MostDrainsOfJob)
}

// drainedBy returns the nodes that conditions of a job keep drained. O(nodes).
func (x *nodeTables) drainedBy(id cluster.JobID) (names []string) {
	for name, n := range x.nodes.All() {
		if last := len(n.Drains) - 1; n.Drain && n.DrainBy == selfDrainUser && last >= 0 && n.Drains[last].Job == id {
			names = append(names, name)
		}
	}
	return names
}

// drainsOf returns the conditions that drain a node, which come first.
func drainsOf(list []cluster.Condition) []cluster.Condition {
	i := slices.IndexFunc(list, func(c cluster.Condition) bool { return c.Effect != cluster.Drains })
	if i < 0 {
		return list
	}
	return list[:i]
}

// sanitizeConditions returns conditions that are safe to show.
func sanitizeConditions(list []cluster.Condition) []cluster.Condition {
	list = slices.Clone(list)
	for i := range list {
		list[i].Cause, list[i].Message = command.Sanitize(list[i].Cause), command.Sanitize(list[i].Message)
	}
	return cluster.SortConditions(list)
}
