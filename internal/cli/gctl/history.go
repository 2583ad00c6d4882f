package gctl

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// eventJSON is one event of a job.
type eventJSON struct {
	Job      string     `json:"job"`
	Time     *time.Time `json:"time"`
	State    string     `json:"state"`
	Attempt  uint32     `json:"attempt,omitempty"`
	Reason   string     `json:"reason,omitempty"`
	Planned  *time.Time `json:"planned,omitempty"`
	Promised bool       `json:"promised,omitempty"`
	Broken   string     `json:"broken,omitempty"`
	Text     string     `json:"text"`
}

func (t commands) history() *cobra.Command {
	return &cobra.Command{
		Use: "history JOB...", Short: "Print every state, reason and promise of jobs", GroupID: tool.GroupInspect, Args: cobra.MinimumNArgs(1),
		Long:              "Prints what happened to jobs, oldest first: submission, reasons for waiting, planned\nand promised starts, broken promises with their cause, attempts and the end. A job\nkeeps its newest 16 reasons and promises and its newest 16 attempts.",
		ValidArgsFunction: t.CompleteArgs(ui.JobNames),
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			refs, err := ui.Refs(args)
			if err != nil {
				return err
			}
			stream, err := c.History().StreamHistory(ctx, &greylagv1.StreamHistoryRequest{Filter: &greylagv1.Filter{Jobs: refs}, Notes: true})
			if err != nil {
				return err
			}
			defer stream.Close()
			events := []eventJSON{}
			for stream.Receive() {
				for _, p := range stream.Msg().Jobs {
					events = append(events, t.eventsOf(p)...)
				}
			}
			switch {
			case stream.Err() != nil:
				return stream.Err()
			case len(events) == 0:
				return fmt.Errorf("no such job, or not visible to you: %s", strings.Join(refs, ","))
			case t.JSON:
				return t.WriteJSON(struct {
					Events []eventJSON `json:"events"`
				}{events})
			}
			return t.printEvents(events)
		}),
	}
}

func (t commands) printEvents(events []eventJSON) error {
	table := ui.Table{Head: []string{"JOB", "TIME", "STATE", "REASON", "EVENT"}, Right: "rllll", Prose: true}
	for _, e := range events {
		table.Rows = append(table.Rows, []string{e.Job, e.Time.In(t.Now().Location()).Format(ui.TimeLayout), e.State, orDash(e.Reason), e.Text})
	}
	return t.WriteTable(table)
}

// eventsOf lists what happened to a job, oldest first.
func (t commands) eventsOf(p *greylagv1.PastJob) []eventJSON {
	j := p.Job
	if j == nil {
		return nil
	}
	submitted := "submitted"
	if j.SubmitHost != "" {
		submitted += " from " + j.SubmitHost
	}
	all := []eventJSON{{Time: tool.Timestamp(j.Submitted), State: cluster.Pending.String(), Text: submitted}}
	for _, n := range p.Notes {
		all = append(all, t.noteEvent(n))
	}
	for _, a := range p.Attempts {
		ran := a.Ended.AsTime().Sub(a.Started.AsTime())
		ended := fmt.Sprintf("attempt %d ended after %s", a.Attempt, cluster.FormatElapsed(ran))
		if exit := failureText(a.ExitCode, a.ExitSignal); exit != "" {
			ended += ", " + exit
		}
		nodes := a.Nodes
		if a.Held != nil { // they have changed since the start
			nodes = ""
			if a.Nodes != "" {
				ended += ", last on " + a.Nodes
			}
		}
		if a.Detail != "" {
			ended += ": " + a.Detail
		}
		all = append(all, startEvent(a.Attempt, tool.Timestamp(a.Started), a.Partition, nodes),
			eventJSON{Time: tool.Timestamp(a.Ended), State: wire.Word(a.Outcome), Attempt: a.Attempt, Text: ended},
			eventJSON{Time: tool.Timestamp(a.Ended), State: cluster.Pending.String(), Text: "requeued"})
	}
	if j.Started != nil && j.State != greylagv1.JobState_JOB_STATE_PENDING {
		all = append(all, startEvent(j.Attempt, tool.Timestamp(j.Started), j.Partition, startNodes(j)))
		all = append(all, runEvents(j)...)
		all = append(all, memberEvents(j)...)
	}
	if j.Ended != nil {
		all = append(all, endEvent(j))
	}
	all = slices.DeleteFunc(all, func(e eventJSON) bool { return e.Time == nil })
	slices.SortStableFunc(all, func(a, b eventJSON) int { return a.Time.Compare(*b.Time) })
	if state, err := cluster.ParseJobState(wire.Word(j.State)); err == nil && !state.Final() {
		now := eventJSON{Time: ui.Stamp(t.Now()), State: state.String(), Attempt: j.Attempt, Reason: reasonWord(j.Reason), Text: "now"}
		if wait := ui.WaitText(j, t.FormatTime); state == cluster.Pending && wait != "" {
			now.Text += ": " + wait
		}
		all = append(all, now)
	}
	for i := range all {
		all[i].Job = j.Ref
	}
	return all
}

// reasonWord returns a reason, or "" for none.
func reasonWord(r greylagv1.Reason) string {
	if r == greylagv1.Reason_REASON_UNSPECIFIED || r == greylagv1.Reason_REASON_NONE {
		return ""
	}
	return wire.Word(r)
}

// noteEvent describes a scheduling note.
func (t commands) noteEvent(n *greylagv1.Note) eventJSON {
	e := eventJSON{
		Time: tool.Timestamp(n.Time), State: cluster.Pending.String(), Reason: reasonWord(n.Reason),
		Planned: tool.Timestamp(n.Planned), Promised: n.Promised, Broken: n.Broken, Text: "no planned start",
	}
	kept := n.Promised && n.Planned.AsTime().Equal(n.Time.AsTime())
	switch {
	case kept && n.Broken == "":
		e.Text = "promise kept"
	case n.Promised && n.Broken == "":
		e.Text = "start promised for " + t.FormatTime(n.Planned)
	case n.Reason == greylagv1.Reason_REASON_JOB_HELD_USER, n.Reason == greylagv1.Reason_REASON_JOB_HELD_ADMIN:
		e.Text = "held"
	case n.Planned != nil:
		e.Text = "start planned for " + t.FormatTime(n.Planned)
	}
	if n.Broken != "" {
		e.Text = "promise broken: " + n.Broken
		if n.Planned != nil && !kept {
			e.Text += fmt.Sprintf("; start %s for %s", map[bool]string{true: "promised", false: "planned"}[n.Promised], t.FormatTime(n.Planned))
		}
	}
	return e
}

// startNodes returns the nodes with which the last attempt of a job started; "" if they are unknown.
func startNodes(j *greylagv1.Job) string {
	if m := j.Members; m != nil && (m.StartNodes != "" || m.Resized != nil) {
		return m.StartNodes
	}
	names := make([]string, len(j.Nodes))
	for i, n := range j.Nodes {
		names[i] = n.Node
	}
	return hostlist.Compress(names)
}

// memberEvents returns the changes of the nodes of an elastic job in its last attempt.
func memberEvents(j *greylagv1.Job) (list []eventJSON) {
	for _, x := range j.Members.GetChanges() {
		text := "joined by " + x.Nodes
		if !x.Joins {
			text = x.Nodes + " leaves"
			if strings.ContainsAny(x.Nodes, ",[") {
				text = x.Nodes + " leave"
			}
		}
		if x.Why != "" {
			text += ": " + x.Why
		}
		list = append(list, eventJSON{Time: tool.Timestamp(x.Time), State: cluster.Running.String(), Attempt: j.Attempt, Text: text})
	}
	return list
}

// startEvent describes the start of an attempt on some nodes; "" if they are unknown.
func startEvent(attempt uint32, at *time.Time, partition, nodes string) eventJSON {
	text := fmt.Sprintf("attempt %d starts in partition %s", attempt, partition)
	if nodes != "" {
		text += " on " + nodes
	}
	return eventJSON{Time: at, State: cluster.Configuring.String(), Attempt: attempt, Text: text}
}

// runEvents returns when the tasks of the last attempt had started on all nodes of its start, if they have.
func runEvents(j *greylagv1.Job) []eventJSON {
	var last *greylagv1.Task
	joined := map[string]bool{}
	for _, m := range j.Members.GetList() {
		joined[m.Node] = m.Joined.AsTime().After(j.Started.AsTime())
	}
	count := len(j.Tasks)
	if names, err := hostlist.Expand(j.Members.GetStartNodes()); err == nil && len(names) > 0 {
		count = len(names)
	}
	for _, task := range j.Tasks {
		switch {
		case joined[task.Node]:
			continue
		case task.Started == nil:
			return nil
		}
		if last == nil || task.Started.AsTime().After(last.Started.AsTime()) {
			last = task
		}
	}
	if last == nil {
		return nil
	}
	return []eventJSON{{Time: tool.Timestamp(last.Started), State: cluster.Running.String(), Attempt: j.Attempt, Text: "started on " + ui.Count(int64(count), "node")}}
}

// endEvent describes when the end of the job was decided.
func endEvent(j *greylagv1.Job) eventJSON {
	words := []string{cmp.Or(exitText(j), "ended")}
	if by := "cancelled by " + j.Requester; j.Requester != "" && by != j.Detail {
		words = append(words, by)
	}
	if j.Detail != "" {
		words = append(words, j.Detail)
	}
	return eventJSON{Time: tool.Timestamp(j.Ended), State: wire.Word(j.State), Attempt: j.Attempt, Reason: reasonWord(j.Reason), Text: strings.Join(words, ", ")}
}
