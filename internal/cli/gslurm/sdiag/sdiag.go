// Package sdiag shows statistics of the controllers under Slurm's name.
//
// It decides which of sdiag's lines the cluster knows. Metrics for monitoring come from the daemons
// themselves: docs/monitoring.md.
package sdiag

import (
	"context"
	"fmt"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gslurm/slurmcmd"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/jobscript/getopt"
)

// Program is the description of sdiag.
func Program() slurmcmd.Program {
	row := func(long string, short byte, value string, effect slurmcmd.Effect, note, help string) slurmcmd.Option {
		return slurmcmd.Option{Option: getopt.Option{Long: long, Short: short, Value: value, Help: help}, Effect: effect, Note: note}
	}
	const nothing, refused = slurmcmd.Nothing, slurmcmd.Refused
	return slurmcmd.Program{
		Name: "sdiag", Usage: "[OPTIONS]", Summary: "Shows statistics of the controllers.",
		Options: []slurmcmd.Option{
			row("all", 'a', "", nothing, "it prints all that is known", ""), row("cluster", 'M', "NAME", nothing, "there is one cluster", ""),
			{Option: getopt.Option{Long: "json", Value: "PARSER", Absent: "list", Help: "print JSON"}, Effect: slurmcmd.Differs, Note: "the numbers of jobs"},
			row("reset", 'r', "", refused, "counters are never reset: docs/monitoring.md", ""),
			row("sort-by-id", 'i', "", nothing, "calls are not listed", ""), row("sort-by-time", 't', "", nothing, "calls are not listed", ""), row("sort-by-time2", 'T', "", nothing, "calls are not listed", ""),
			{Option: getopt.Option{Long: "yaml", Value: "PARSER", Absent: "list"}, Effect: refused, Note: "--json prints the same data"},
		},
		Notes: []string{"Only the numbers of jobs are known. The metrics of the daemons have the rest: docs/monitoring.md."},
	}
}

// Run runs sdiag and returns its exit status.
func Run(ctx context.Context, p *ui.Process) int {
	c := slurmcmd.New(p, Program())
	return c.Finish(ctx, slurmcmd.Unreachable("slurm_get_statistics: ", run(ctx, c)))
}

type statisticsJSON struct {
	Pending   int   `json:"jobs_pending"`
	Running   int   `json:"jobs_running"`
	States    int   `json:"jobs_active"`
	Completed int64 `json:"jobs_ended"`
	Time      int64 `json:"req_time"`
}

func run(ctx context.Context, c *slurmcmd.Command) error {
	found, done, err := c.ParseOptions("sdiag takes no arguments")
	if err != nil || done {
		return err
	}
	_, cl, err := c.Client()
	if err != nil {
		return err
	}
	defer cl.Close()
	status, err := cl.Cluster().GetStatus(ctx, &greylagv1.GetStatusRequest{})
	if err != nil {
		return err
	}
	s := statisticsJSON{Completed: status.FinishedJobs, Time: c.Now().Unix()}
	jobs, _, err := ui.FetchJobs(ctx, cl, &greylagv1.ListJobsRequest{Brief: true})
	if err != nil {
		return err
	}
	for _, j := range jobs {
		s.States++
		if j.State == greylagv1.JobState_JOB_STATE_PENDING {
			s.Pending++
		} else {
			s.Running++
		}
	}
	for _, f := range found {
		if f.Option.Long == "json" {
			return c.WriteJSON(struct {
				Statistics statisticsJSON `json:"statistics"`
				slurmcmd.MetaJSON
			}{s, c.Meta(status.Cluster)})
		}
	}
	const line = "*******************************************************"
	return c.Write(fmt.Sprintf("%s\nsdiag output at %s (%d)\n%s\nJobs completed: %d\nJobs pending:   %d\nJobs running:   %d\n",
		line, c.Now().Format("Mon Jan _2 15:04:05 2006"), c.Now().Unix(), line, s.Completed, s.Pending, s.Running))
}
