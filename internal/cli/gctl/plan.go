package gctl

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

func (t commands) plan() *cobra.Command {
	request := &greylagv1.GetPlanRequest{}
	chart, drawing := false, ""
	c := &cobra.Command{
		Use: "plan", Short: "Show running jobs and planned starts", GroupID: tool.GroupInspect, Args: cobra.NoArgs,
		Long: "Prints running jobs and every planned start, in order of start. A promised start is\nkept; its nodes may still change until then. With --chart every job is a bar over\ntime. --svg FILE draws the same for each GPU, with the total use.",
		RunE: t.On(func(ctx context.Context, c ui.Cluster, _ []string) error {
			request.Read = t.Read()
			answer, err := c.Cluster().GetPlan(ctx, request)
			t.TellStale(answer.GetAsOf())
			switch {
			case err != nil:
				return err
			case drawing == "-" && chart:
				return &ui.UsageError{Problem: "--chart and --svg - both write to standard output", Advice: "name a file for the picture: --svg plan.svg"}
			case drawing != "":
				if err := t.drawPlan(ctx, c, answer, drawing); err != nil || !chart {
					return err
				}
				return t.WriteTable(t.planChart(answer))
			case t.JSON:
				return t.WriteJSON(planOf(answer))
			case chart:
				return t.WriteTable(t.planChart(answer))
			}
			return t.WriteTable(t.planTable(answer))
		}),
	}
	c.Flags().StringVarP(&request.Partition, "partition", "p", "", "only this partition")
	c.Flags().BoolVar(&chart, "chart", false, "draw bars over time")
	c.Flags().StringVar(&drawing, "svg", "", "draw an SVG picture to this file; - is standard output")
	t.AddStaleFlag(c)
	return c
}

func (t commands) planTable(a *greylagv1.GetPlanResponse) ui.Table {
	table := ui.Table{Head: []string{"JOBID", "USER", "PARTITION", "ST", "START", "END", "PROMISED", "GPUS", "NODES"}, Right: "rllllllrl", Wide: []int{1, 2}}
	for _, j := range a.Jobs {
		end := "-"
		if j.End != nil {
			end = t.FormatMinute(j.End.AsTime())
		}
		table.Rows = append(table.Rows, []string{
			j.Job, j.User, j.Partition, shortState(wire.Word(j.State)), t.FormatMinute(j.Start.AsTime()), end, yesOrDash(j.Promised), fmt.Sprint(j.Gpus), orDash(hostsText(j.Hosts)),
		})
	}
	return table
}

// chartWidth is the width of the time axis of a chart, in characters.
const chartWidth = 48

// planChart draws running jobs with =, promised starts with # and others with -.
func (t commands) planChart(a *greylagv1.GetPlanResponse) ui.Table {
	now := t.Now()
	last := now.Add(time.Minute)
	for _, j := range a.Jobs {
		for _, at := range []time.Time{j.Start.AsTime(), j.End.AsTime()} {
			if at.After(last) {
				last = at
			}
		}
	}
	scale := (last.Sub(now) + chartWidth - 1) / chartWidth
	place := func(at time.Time) int {
		return int(min(max(at.Sub(now)/scale, 0), chartWidth-1))
	}
	table := ui.Table{
		Head: []string{"JOBID", "USER", fmt.Sprintf("%s, each character %s", t.FormatMinute(now), cluster.FormatElapsed(scale))}, Right: "rll", Wide: []int{1},
	}
	for _, j := range a.Jobs {
		begin, end := place(j.Start.AsTime()), chartWidth-1
		if j.End != nil {
			end = place(j.End.AsTime())
		}
		mark := "-"
		switch {
		case j.State != greylagv1.JobState_JOB_STATE_PENDING:
			mark = "="
		case j.Promised:
			mark = "#"
		}
		table.Rows = append(table.Rows, []string{j.Job, j.User, strings.Repeat(" ", begin) + strings.Repeat(mark, end-begin+1)})
	}
	return table
}

func shortState(word string) string {
	if state, err := cluster.ParseJobState(word); err == nil {
		return state.Code()
	}
	return word
}
