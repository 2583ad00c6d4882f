package state

import (
	"fmt"
	"strings"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/schedule"
	"github.com/greylag/greylag/pkg/cluster"
)

// pass computes a full pass over the present state and keeps its plan.
func (x *script) pass() string {
	snap := x.s.View().Snapshot()
	d := schedule.Decide(snap)
	x.plan = d.Plan
	var lines []string
	for _, e := range x.plan.Evictions {
		lines = append(lines, fmt.Sprintf("evicts %d for %d", e.Job, e.For))
	}
	for _, start := range x.plan.Starts {
		line := fmt.Sprintf("plans %d on", start.Job)
		for _, n := range start.Placement.Nodes {
			line += fmt.Sprintf(" %s:%v", n.Node, n.GPUs)
		}
		lines = append(lines, line)
	}
	for _, b := range x.plan.Reclaims {
		by := "a reservation"
		if b.For != 0 {
			by = b.For.String()
		}
		lines = append(lines, fmt.Sprintf("takes %s back from %d for %s", strings.Join(b.Nodes, " "), b.Job, by))
	}
	for _, g := range x.plan.Grants {
		line := fmt.Sprintf("grows %d by", g.Job)
		for _, n := range g.Nodes {
			line += fmt.Sprintf(" %s:%v", n.Node, n.GPUs)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// membersText describes the nodes of an elastic job: their numbers, those that join or leave, and the version of the
// members file.
func membersText(j *cluster.Job) string {
	if j.Members == nil {
		return ""
	}
	text := fmt.Sprintf(" members %d:", j.Members.Version)
	for i := range j.Members.List {
		m := &j.Members.List[i]
		text += fmt.Sprintf(" %d", m.Number)
		switch {
		case m.Stops:
			text += "(stops: " + m.Why + ")"
		case !m.Stays():
			text += fmt.Sprintf("(leaves at %s: %s)", m.Leaves.Sub(1), m.Why)
		case m.Since == 0:
			text += "(joins)"
		}
	}
	return text
}

// commit commits the plan of the last pass, whatever happened since.
func (x *script) commit() string {
	plan := x.plan
	x.plan = cluster.Plan{}
	return x.apply(&command.CommitPlan{Plan: plan})
}
