package gctl

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

func (t commands) why() *cobra.Command {
	c := &cobra.Command{
		Use: "why JOB", Short: "Explain why a job is pending", GroupID: tool.GroupInspect, Args: cobra.ExactArgs(1),
		Long: "Explains a pending job: everything that blocks it, how many nodes each condition\nrules out, which jobs hold what it waits for, its planned start, and options of\ngsubmit that would each let it start now without delaying a job ahead of it.\nFor an array it explains the first pending element.\nFor a running elastic job it says why the job gets no more nodes.",
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			refs, err := ui.Refs(args)
			if err != nil {
				return err
			}
			if len(refs) > 1 {
				return &ui.UsageError{Problem: fmt.Sprintf("%s names %d jobs: only one can be explained at a time", args[0], len(refs)), Advice: "write gctl why " + refs[0]}
			}
			answer, err := c.Cluster().ExplainJob(ctx, &greylagv1.ExplainJobRequest{Job: refs[0], Read: t.Read()})
			t.TellStale(answer.GetAsOf())
			switch {
			case err != nil:
				return err
			case t.JSON:
				return t.WriteJSON(whyOf(answer))
			}
			return t.printWhy(answer)
		}),
	}
	t.AddStaleFlag(c)
	return c
}

// printWhy prints an explanation, the most important part first.
func (t commands) printWhy(a *greylagv1.ExplainJobResponse) error {
	j := a.Job
	if j.State != greylagv1.JobState_JOB_STATE_PENDING {
		facts := [][2]string{{"state", t.stateText(j)}, {"started", t.FormatTime(j.Started)}, {"ended", t.FormatTime(j.Ended)}}
		title := "job " + j.Ref + " is not pending"
		switch {
		case len(a.Awaited) > 0 && wire.Word(j.State) == cluster.Running.String():
			title = "job " + j.Ref + " runs on unresponsive nodes"
		case len(a.Awaited) > 0:
			title = "job " + j.Ref + " waits for its nodes"
		}
		facts = append(facts, t.awaited(a)...)
		if last := lastAttemptText(j); last != "" {
			facts = append(facts, [2]string{"last attempt", last})
		}
		facts = append(facts, [2]string{"elastic", ui.ElasticText(j)})
		facts = append(facts, t.leavingFacts(j)...)
		for _, note := range a.Notes {
			facts = append(facts, [2]string{"note", note})
		}
		return t.Facts(title, facts)
	}
	facts := [][2]string{{"state", t.stateText(j)}, {"last attempt", lastAttemptText(j)}, {"planned start", t.plannedStart(a)}}
	if a.Expected != nil {
		facts = append(facts, [2]string{"expected", t.FormatTime(a.Expected) + ", based on run times of similar jobs"})
	}
	for _, cause := range a.Causes {
		if strings.HasPrefix(cause, "BeginTime:") {
			cause = "BeginTime: not before " + t.FormatTime(j.Eligible)
		}
		facts = append(facts, [2]string{"blocked by", cause})
	}
	for _, u := range a.Unmet {
		facts = append(facts, [2]string{"waits for", ui.UnmetText(u)})
	}
	if a.UnmetMore > 0 {
		facts = append(facts, [2]string{"waits for", ui.Count(int64(a.UnmetMore), "more job")})
	}
	facts = append(facts, [2]string{"requests", strings.TrimPrefix(a.Request, "needs ")}, [2]string{"nodes",
		fmt.Sprintf("%d in its partitions, %d suitable, %d free now", a.Nodes, a.SuitableNodes, a.FreeNodes)})
	for _, r := range a.Exclusions {
		facts = append(facts, [2]string{"ruled out", fmt.Sprintf("%d: %s", r.Nodes, r.Condition)})
	}
	for _, l := range a.Licences {
		facts = append(facts, [2]string{"licence", fmt.Sprintf("%s: %d in total, %d used, %d free", l.Name, l.Total, l.Used, max(l.Total-l.Used, 0))})
	}
	for _, h := range a.Holders {
		until := "without a time limit"
		if h.Ends != nil {
			until = "until " + t.FormatTime(h.Ends) + " at the latest"
		}
		facts = append(facts, [2]string{"in use by", fmt.Sprintf("job %s of %s, %s, %s", h.Job, h.User, strings.Join(heldBy(h), ", "), until)})
	}
	if len(a.Holders) > 0 {
		facts = append(facts, [2]string{"cleanup", cluster.FormatElapsed(a.CleanupTime.AsDuration()) + " is planned after each job's time limit until its nodes are free, some seconds less after a running job"})
	}
	for _, k := range a.Upcoming {
		facts = append(facts, [2]string{"reserved", fmt.Sprintf("%s for %q, from %s until %s", ui.Count(int64(k.Nodes), "node"), k.Reservation, t.FormatTime(k.Start), t.FormatTime(k.End))})
	}
	facts = append(facts, t.ahead(a)...)
	for _, change := range a.Changes {
		facts = append(facts, [2]string{"starts now with", change})
	}
	for _, note := range a.Notes {
		facts = append(facts, [2]string{"note", note})
	}
	return t.Facts("job "+j.Ref+" waits", facts)
}

// heldBy returns the resources of a job that another one waits for.
func heldBy(h *greylagv1.Holder) (words []string) {
	if h.Nodes > 0 {
		words = append(words, "on "+ui.Count(int64(h.Nodes), "node"))
	}
	for _, l := range h.Licences {
		words = append(words, fmt.Sprintf("with %d of licence %s", l.Count, l.Name))
	}
	return words
}

// ahead prints which jobs are ahead, why, and which of them this one would delay.
func (t commands) ahead(a *greylagv1.ExplainJobResponse) (facts [][2]string) {
	for i, x := range a.FirstAhead {
		text := fmt.Sprintf("job %s of %s: %s", x.Job, x.User, x.Reason)
		if i == 0 {
			text = fmt.Sprintf("%d in its partitions, first %s", a.Ahead, text)
		}
		facts = append(facts, [2]string{"jobs ahead", text})
	}
	if len(a.FirstAhead) == 0 && a.Ahead > 0 {
		facts = append(facts, [2]string{"jobs ahead", fmt.Sprintf("%d in its partitions", a.Ahead)})
	}
	if len(a.Delays) > 0 {
		facts = append(facts, [2]string{"could start", t.FormatTime(a.StartAlone) + " without other pending jobs, but"})
	}
	for _, x := range a.Delays[:min(len(a.Delays), mostDelayed)] {
		text := fmt.Sprintf("job %s of %s", x.Job, x.User)
		if x.Planned != nil {
			text += ", planned for " + t.FormatTime(x.Planned)
		}
		facts = append(facts, [2]string{"would delay", text + ": " + x.Reason})
	}
	if more := len(a.Delays) - mostDelayed; more > 0 {
		facts = append(facts, [2]string{"would delay", fmt.Sprintf("and %d more", more)})
	}
	return facts
}

// mostDelayed is the number of delayed jobs that are named.
const mostDelayed = 10

// awaited prints which nodes have yet to confirm the start or end of a job, or do not answer while
// it runs, and what happens if they never do.
func (t commands) awaited(a *greylagv1.ExplainJobResponse) [][2]string {
	step, then := "the job has started there", "the job ends as NODE_FAIL"
	if a.RunsAgain {
		then = "the job runs again"
	}
	if a.Job.State == greylagv1.JobState_JOB_STATE_COMPLETING {
		step, then = "all processes of the job have ended there", "the job is over"
	}
	facts := [][2]string{{"warning", t.warningText(a.Job)}, {"idle GPUs", t.idleText(a.Job)}}
	for _, n := range a.Awaited {
		if wire.Word(a.Job.State) == cluster.Running.String() {
			facts = append(facts, [2]string{"silent", n.Node + ", where the job may still be running"})
		} else {
			facts = append(facts, [2]string{"waits for", n.Node + " to report that " + step})
		}
		if n.WaitsFor != "" {
			facts = append(facts, [2]string{"", n.Node + " reports: " + n.WaitsFor})
		}
		if n.SilentSince == nil {
			continue
		}
		facts = append(facts, [2]string{"", fmt.Sprintf("it has been silent since %s; unless it answers by about %s, %s",
			t.FormatTime(n.SilentSince), t.FormatTime(n.DownAt), then)})
	}
	return facts
}

// plannedStart returns the planned start of a job, and how certain it is.
func (t commands) plannedStart(a *greylagv1.ExplainJobResponse) string {
	switch {
	case a.Job.Planned == nil:
		return "none yet"
	case len(a.Promise) > 0:
		return t.FormatTime(a.Job.Planned) + ", promised, on " + hostsText(a.Promise)
	}
	return t.FormatTime(a.Job.Planned) + ", not yet promised"
}

func hostsText(shares []*greylagv1.NodeShare) string {
	names := make([]string, len(shares))
	for i, s := range shares {
		names[i] = s.Node
	}
	return hostlist.Compress(names)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func yesOrDash(is bool) string {
	if is {
		return "yes"
	}
	return "-"
}
