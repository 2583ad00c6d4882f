package state

import (
	"fmt"
	"strings"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// ofSteps runs a directive about steps: create a step, send it a signal or end it, attach to it, list those
// of a job.
func (x *script) ofSteps(verb string, w scriptLine) string {
	stepOf := func() (cluster.JobID, uint32) {
		job, step, _ := strings.Cut(w.plain[1], ".")
		n, err := cluster.ParseStep(step)
		if err != nil {
			x.t.Fatal(err)
		}
		return id(job), n
	}
	switch verb {
	case "step":
		return x.apply(&command.CreateStep{Request: request16(w), Actor: actor(w.plain[0]), Job: id(w.plain[1]), Step: stepSpec(w)})
	case "stepsignal":
		job, n := stepOf()
		return x.apply(&command.SignalStep{Request: request16(w), Actor: actor(w.plain[0]), Job: job, Step: n, Signal: int32(w.number("number", 0))})
	case "stepattach":
		job, n := stepOf()
		return x.apply(&command.AttachStep{Request: request16(w), Actor: actor(w.plain[0]), Job: job, Step: n, Contact: cluster.StepContact{Addresses: strings.Fields(w.keys["at"])}})
	}
	return x.steps(id(w.plain[0]))
}

func stepSpec(w scriptLine) cluster.StepSpec {
	s := cluster.StepSpec{
		Name: w.keys["name"], FirstNode: int32(w.number("first", 0)), Nodes: int32(w.number("nodes", 0)), Tasks: int32(w.number("tasks", 0)),
		TasksPerNode: int32(w.number("pernode", 0)), CPUsPerTask: int32(w.number("cpus", 0)), GPUs: int32(w.number("gpus", 0)),
		GPUsPerTask: int32(w.number("gpt", 0)), GPUsPerNode: int32(w.number("gpn", -1)), Exact: w.has("exact"), Overlap: w.has("overlap"), Terminal: w.has("pty"), Interactive: w.has("interactive"),
		Contact: cluster.StepContact{Addresses: []string{"10.0.0.1:5000"}},
	}
	if list := w.keys["on"]; list != "" {
		s.NodeList = names(list)
	}
	if list := w.keys["not"]; list != "" {
		s.Exclude = names(list)
	}
	if w.has("unreachable") {
		s.Contact.Addresses = nil
	}
	return s
}

// steps lists the steps of a job: each node with its tasks and GPUs.
func (x *script) steps(id cluster.JobID) string {
	j, _ := x.s.job(id)
	var lines []string
	for _, step := range j.Steps {
		line := fmt.Sprintf("%s.%s %s %s", j.ID, cluster.FormatStep(step.ID), step.Name, step.State())
		for _, node := range step.Nodes {
			line += fmt.Sprintf(" %s=%d%v", j.Alloc.Nodes[node.Rank].Node, node.Tasks, node.GPUs)
			if node.Ended {
				line += "ended"
			}
		}
		if step.Terminal && step.Contact != nil {
			line += fmt.Sprintf(" terminal at %v", step.Contact.Addresses)
		}
		for _, signal := range step.Signals {
			line += fmt.Sprintf(" signal %d", signal.Number)
		}
		if step.Exit != (cluster.Exit{}) {
			line += fmt.Sprintf(" exit %d:%d", step.Exit.Code, step.Exit.Signal)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// stepReports reads reports of ended steps, "3" or "3:CODE" or "3:CODE:SIGNAL", joined by "+".
func stepReports(text string) (list []command.StepReport) {
	for one := range strings.SplitSeq(text, "+") {
		var step, code, signal int
		if n, _ := fmt.Sscanf(one, "%d:%d:%d", &step, &code, &signal); n > 0 {
			list = append(list, command.StepReport{Step: uint32(step), Exit: cluster.Exit{Code: int32(code), Signal: int32(signal)}, OutOfMemory: signal == 9})
		}
	}
	return list
}
