// Package cron implements gctl cron: recurring jobs of users.
//
// It decides which entries a command line selects and how they are printed. The cluster parses schedules
// and submits the jobs.
package cron

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/gsubmit"
	"github.com/greylag/greylag/internal/cli/jobspec"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/wire"
)

// commands holds the subcommands of one run of gctl.
type commands struct{ *tool.Tool }

const long = `Manages recurring jobs. The cluster stores each entry, and submits its job at the
times of the schedule, with the rights of the user and all checks. No login node
is involved. If times pass while no controller leads, one job is submitted
afterwards.`

// Command returns gctl cron.
func Command(t *tool.Tool) *cobra.Command {
	x := commands{t}
	c := &cobra.Command{
		Use: "cron", Short: "Manage recurring jobs", Long: long, GroupID: tool.GroupJobs, Args: tool.RequireSubcommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(x.add(), x.list(), x.show(), x.run())
	c.AddCommand(x.change("hold", "Hold recurring jobs: their schedules submit no jobs", "held"), x.change("release", "Release held recurring jobs", "released"),
		x.change("remove", "Remove recurring jobs; submitted jobs are not affected", "removed"))
	return c
}

const addLong = `Stores a recurring job. SCHEDULE is "MINUTE HOUR DAY MONTH WEEKDAY" as in
crontab(5), with Sunday as 0, or @hourly, @daily, @weekly, @monthly or @yearly.
The arguments after it are those of gsubmit: options, the script and its
arguments. The script, environment and working directory are stored now; later
changes need --replace.

While the last job of the entry has not ended, --overlap=skip submits no job, and
--overlap=queue submits one job that waits for its end.

  gctl cron add nightly "30 3 * * *" --time=2:00:00 --gpus=1 train.sh
  gctl cron add --tz Europe/Berlin report "0 8 * * 1-5" --wrap ./report`

func (t commands) add() *cobra.Command {
	request := &greylagv1.SetCronRequest{Entry: &greylagv1.CronEntry{}}
	var overlap string
	c := &cobra.Command{
		Use: "add NAME SCHEDULE [GSUBMIT-OPTIONS] SCRIPT [ARGUMENTS]", Short: "Store a recurring job", Long: addLong, Args: cobra.MinimumNArgs(3),
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			e := request.Entry
			e.Name, e.Schedule, e.Overlap = args[0], args[1], wire.Enum[greylagv1.CronOverlap](overlap)
			if e.Overlap == greylagv1.CronOverlap_CRON_OVERLAP_UNSPECIFIED {
				return &ui.UsageError{Problem: fmt.Sprintf("--overlap %q: want skip or queue", overlap), Advice: "see gctl cron add --help"}
			}
			options, spec, err := gsubmit.Job(t.Process, args[2:])
			if err != nil {
				return err
			}
			if options.Wait || options.TestOnly || options.Quote {
				return &ui.UsageError{Problem: "--wait, --test-only and --quote do not apply to recurring jobs", Advice: "omit them, or call gsubmit"}
			}
			e.Job, request.RequestId = spec, client.NewRequestID()
			answer, err := c.Jobs().SetCron(ctx, request)
			if err != nil {
				return err
			}
			if t.JSON || options.JSON {
				return t.WriteJSON(struct {
					Name string     `json:"name"`
					Next *time.Time `json:"next"`
				}{e.Name, tool.Timestamp(answer.Next)})
			}
			t.Note("stored recurring job %s; first submission at %s", e.Name, t.FormatTime(answer.Next))
			return nil
		}),
	}
	c.Flags().SetInterspersed(false) // options after NAME are those of gsubmit
	c.Flags().StringVar(&overlap, "overlap", "skip", "while the last job has not ended: skip or queue")
	c.Flags().StringVar(&request.Entry.TimeZone, "tz", "", "time zone of the schedule, such as Europe/Berlin [UTC]")
	c.Flags().BoolVar(&request.Replace, "replace", false, "replace an existing entry")
	return c
}

// change returns a command that applies one action to entries.
func (t commands) change(verb, short, done string) *cobra.Command {
	request := &greylagv1.UpdateCronRequest{Action: wire.Enum[greylagv1.CronAction](verb)}
	c := &cobra.Command{
		Use: verb + " NAME...", Short: short, Args: cobra.MinimumNArgs(1),
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			request.RequestId, request.Names = client.NewRequestID(), args
			if _, err := c.Jobs().UpdateCron(ctx, request); err != nil {
				return err
			}
			t.Note("%s recurring jobs: %s", done, strings.Join(args, ", "))
			return nil
		}),
	}
	c.Flags().StringVarP(&request.User, "user", "u", "", "entries of another user; requires role operator")
	return c
}

func (t commands) run() *cobra.Command {
	return &cobra.Command{
		Use: "run NAME", Short: "Submit a recurring job now", Args: cobra.ExactArgs(1),
		Long: "Submits a recurring job now, even if its last job has not ended. The schedule does not\nchange.",
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			answer, err := c.Jobs().RunCron(ctx, &greylagv1.RunCronRequest{RequestId: client.NewRequestID(), Name: args[0]})
			if err != nil {
				return err
			}
			for _, w := range answer.Warnings {
				t.Warn(w)
			}
			if t.JSON {
				return t.WriteJSON(struct {
					ID       uint64   `json:"id"`
					Warnings []string `json:"warnings,omitempty"`
				}{answer.Job.GetId(), answer.Warnings})
			}
			_, err = fmt.Fprint(t.Stdout, jobspec.Submitted{ID: answer.Job.GetId(), ArraySize: answer.Job.GetArraySize()}.Line(false))
			return err
		}),
	}
}
