package cron

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/wire"
)

// entryJSON is one entry in the output of --json.
type entryJSON struct {
	Name      string     `json:"name"`
	User      string     `json:"user"`
	Schedule  string     `json:"schedule"`
	TimeZone  string     `json:"time_zone"`
	Overlap   string     `json:"overlap"`
	Held      bool       `json:"held,omitempty"`
	Next      *time.Time `json:"next,omitempty"`
	LastJob   uint64     `json:"last_job,omitempty"`
	LastState string     `json:"last_state,omitempty"`
	LastTime  *time.Time `json:"last_time,omitempty"`
	LastError string     `json:"last_error,omitempty"`
	JobName   string     `json:"job_name,omitempty"`
	Command   string     `json:"command,omitempty"`
	WorkDir   string     `json:"work_dir,omitempty"`
	Script    string     `json:"script,omitempty"`
}

func entryOf(e *greylagv1.CronEntry) entryJSON {
	return entryJSON{
		Name: e.Name, User: e.User, Schedule: e.Schedule, TimeZone: cmp.Or(e.TimeZone, "UTC"), Overlap: wire.Word(e.Overlap), Held: e.Held,
		Next: tool.Timestamp(e.Next), LastJob: e.LastJob, LastState: wire.Word(e.LastState), LastTime: tool.Timestamp(e.LastTime), LastError: e.LastError,
		JobName: e.Job.GetName(), Command: e.Job.GetCommand(), WorkDir: e.Job.GetWorkDir(), Script: string(e.Job.GetScript()),
	}
}

// writeEntries prints entries as JSON.
func (t commands) writeEntries(entries []*greylagv1.CronEntry) error {
	list := []entryJSON{}
	for _, e := range entries {
		list = append(list, entryOf(e))
	}
	return t.WriteJSON(struct {
		Entries []entryJSON `json:"entries"`
	}{list})
}

func (t commands) list() *cobra.Command {
	request := &greylagv1.ListCronRequest{}
	c := &cobra.Command{
		Use: "list", Short: "List recurring jobs", Args: cobra.NoArgs,
		Long: "Lists recurring jobs. LAST is the newest job. ERROR is the reason if the last time of the\nschedule submitted no job.",
		RunE: t.On(func(ctx context.Context, c ui.Cluster, _ []string) error {
			answer, err := c.Jobs().ListCron(ctx, request)
			if err != nil {
				return err
			}
			switch {
			case t.JSON:
				return t.writeEntries(answer.Entries)
			case len(answer.Entries) == 0:
				t.Note("no recurring jobs; add one with gctl cron add")
				return nil
			}
			table := ui.Table{Head: []string{"NAME", "SCHEDULE", "NEXT", "LAST", "STATE", "ERROR"}, Right: "lllrll", Prose: true}
			if request.AllUsers {
				table.Head, table.Right = slices.Insert(table.Head, 0, "USER"), "l"+table.Right
			}
			for _, e := range answer.Entries {
				row := []string{e.Name, scheduleText(e), t.nextText(e), lastText(e), cmp.Or(wire.Word(e.LastState), "-"), cmp.Or(e.LastError, "-")}
				if request.AllUsers {
					row = slices.Insert(row, 0, e.User)
				}
				table.Rows = append(table.Rows, row)
			}
			return t.WriteTable(table)
		}),
	}
	c.Flags().StringVarP(&request.User, "user", "u", "", "entries of another user; requires role operator")
	c.Flags().BoolVarP(&request.AllUsers, "all", "a", false, "entries of all users; requires role operator")
	c.MarkFlagsMutuallyExclusive("user", "all")
	return c
}

func scheduleText(e *greylagv1.CronEntry) string {
	if e.TimeZone == "" {
		return e.Schedule
	}
	return e.Schedule + " " + e.TimeZone
}

func (t commands) nextText(e *greylagv1.CronEntry) string {
	if e.Held {
		return "held"
	}
	return cmp.Or(t.FormatTime(e.Next), "-")
}

func lastText(e *greylagv1.CronEntry) string {
	if e.LastJob == 0 {
		return "-"
	}
	return strconv.FormatUint(e.LastJob, 10)
}

func (t commands) show() *cobra.Command {
	request := &greylagv1.ListCronRequest{Jobs: true}
	c := &cobra.Command{
		Use: "show NAME...", Short: "Show recurring jobs with their scripts", Args: cobra.MinimumNArgs(1),
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			request.Names = args
			answer, err := c.Jobs().ListCron(ctx, request)
			if err != nil {
				return err
			}
			for _, name := range args {
				if !slices.ContainsFunc(answer.Entries, func(e *greylagv1.CronEntry) bool { return e.Name == name }) {
					t.Complain(fmt.Sprintf("no recurring job %q", name), "run gctl cron list")
					return ui.Exit(ui.NotFound)
				}
			}
			if t.JSON {
				return t.writeEntries(answer.Entries)
			}
			for _, e := range answer.Entries {
				x := entryOf(e)
				if err := t.Facts("recurring job "+x.Name, [][2]string{
					{"user", x.User}, {"schedule", x.Schedule}, {"time zone", x.TimeZone}, {"overlap", x.Overlap}, {"next", t.nextText(e)},
					{"last job", lastText(e)}, {"last state", x.LastState}, {"last time", t.FormatTime(e.LastTime)}, {"last error", x.LastError},
					{"job name", x.JobName}, {"command", x.Command}, {"directory", x.WorkDir},
				}); err != nil {
					return err
				}
				if _, err := fmt.Fprintf(t.Stdout, "\n%s", x.Script); err != nil {
					return err
				}
			}
			return nil
		}),
	}
	c.Flags().StringVarP(&request.User, "user", "u", "", "entries of another user; requires role operator")
	return c
}
