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
	return strings.Join(lines, "\n")
}

// commit commits the plan of the last pass, whatever happened since.
func (x *script) commit() string {
	plan := x.plan
	x.plan = cluster.Plan{}
	return x.apply(&command.CommitPlan{Plan: plan})
}
