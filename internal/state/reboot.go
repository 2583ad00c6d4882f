package state

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/schedule/words"
	"github.com/greylag/greylag/pkg/cluster"
)

// requestReboot notes in n, which is not shared yet, that an operator wants it to reboot, and reports whether
// that is new. A node that is idle, or is to reboot as soon as possible, takes no new jobs from now on.
func (s *State) requestReboot(n *cluster.Node, c *command.UpdateNodes) bool {
	when := cluster.RebootASAP
	if c.Action == command.RebootNodesWhenIdle {
		when = cluster.RebootWhenIdle
	}
	why := command.Sanitize(c.Reason)
	if r := &n.Reboot; r.When == when && r.Why == why && r.StayDrained == c.StayDrained && !rebootFailed(n) {
		return false
	}
	n.Reboot = cluster.Reboot{When: when, By: c.Actor.Identity.User, Why: why, Since: s.now, Drained: n.Reboot.Drained, StayDrained: c.StayDrained}
	if u, _ := s.uses.Get(n.Name); when == cluster.RebootASAP || u.Jobs == 0 {
		s.drainToReboot(n)
	}
	return true
}

// drainToReboot drains a node that is to reboot. A node that is drained for another cause stays so afterwards.
func (s *State) drainToReboot(n *cluster.Node) {
	if n.Drain && !n.Reboot.Drained {
		return
	}
	n.Reboot.Drained = true
	n.Drain, n.DrainCause, n.DrainBy, n.DrainSince = true, "", n.Reboot.By, s.now
	n.DrainWhy = "reboot: " + cmp.Or(n.Reboot.Why, "requested")
}

// rebootIdle drains the nodes of a job that has ended, if they have no other and wait for that to reboot.
func (s *State) rebootIdle(j *cluster.Job) {
	for _, a := range j.Alloc.Nodes {
		n, _ := s.nodes.Get(a.Node)
		if u, _ := s.uses.Get(a.Node); n == nil || n.Reboot.When != cluster.RebootWhenIdle || n.Drain || u.Jobs > 0 {
			continue
		}
		c := *n
		s.drainToReboot(&c)
		s.putNode(&c)
	}
}

// endReboot ends the request of n, which is not shared yet: the node has rebooted, or the request is cancelled.
// It reports whether that ends a drain. Conditions that appeared meanwhile have drained nothing.
func endReboot(n *cluster.Node, rebooted bool) bool {
	r := n.Reboot
	n.Reboot = cluster.Reboot{}
	switch {
	case rebooted && r.StayDrained && n.Drain:
		n.DrainCause, n.DrainWhy = "", "rebooted; check it, then gctl resume "+n.Name
	case r.Drained && n.Drain:
		n.Drain, n.DrainCause, n.DrainWhy, n.DrainBy, n.DrainSince = false, "", "", "", 0
		return true
	}
	return false
}

// rebootFailed reports whether the reboot program of n failed.
func rebootFailed(n *cluster.Node) bool {
	return slices.ContainsFunc(n.Conditions, func(c cluster.Condition) bool { return c.Cause == cluster.CauseReboot })
}

// rebootable refuses to reboot a node that cannot be asked to, and to resume one that reboots.
func (s *State) rebootable(n *cluster.Node, c *command.UpdateNodes) *command.Refusal {
	u, _ := s.uses.Get(n.Name)
	down := n.Liveness == cluster.Dead
	switch c.Action {
	case command.RebootNodes, command.RebootNodesWhenIdle:
		if down {
			return command.WithHint(command.Refusef(command.Conflict, "node %q is DOWN: gnoded cannot receive the request", n.Name),
				"power-cycle %s, and repeat the command without it", n.Name)
		}
	case command.ResumeNodes, command.CancelReboots:
		if n.RebootDue(u) && !rebootFailed(n) && (!down || s.policy.RebootTimeout > 0) { // else nothing would end it
			return command.WithHint(command.Refusef(command.Conflict, "node %q is already rebooting (requested by %s at %s)", n.Name, n.Reboot.By, words.Instant(n.Reboot.Since)),
				"gctl show node %s", n.Name)
		}
	}
	return nil
}

// missReboot returns a node whose reboot has taken too long, without the request: it stays drained until an operator
// resumes it, or reboots it successfully.
func (s *State) missReboot(old *cluster.Node, l cluster.Liveness) *cluster.Node {
	if u, _ := s.uses.Get(old.Name); !old.RebootDue(u) {
		return old
	}
	n := *old
	why := fmt.Sprintf("reboot timed out after %s (reboot_timeout)", cluster.FormatElapsed(s.policy.RebootTimeout))
	if l == cluster.Alive {
		why += fmt.Sprintf(", same boot ID: read reboot.log in the state_dir of %s, then gctl reboot %[1]s", n.Name)
	} else {
		why += fmt.Sprintf(": check the console of %s, then gctl resume %[1]s", n.Name)
	}
	if !n.Reboot.Drained {
		why += " (drained before: " + n.DrainWhy + ")"
	}
	n.DrainCause, n.DrainWhy, n.DrainBy, n.DrainSince = "", command.Sanitize(why), n.Reboot.By, s.now
	n.Reboot = cluster.Reboot{Drained: n.Reboot.Drained}
	s.putNode(&n)
	return &n
}
