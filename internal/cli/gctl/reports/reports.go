// Package reports has the commands that write reports and send alerts.
package reports

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // for hosts without time zone data, --tz

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/report"
)

// commands holds the commands of this package in one run of gctl.
type commands struct{ *tool.Tool }

// Command returns gctl report.
func Command(t *tool.Tool) *cobra.Command { return commands{t}.report() }

// Exit statuses of reports, in addition to those of all commands.
const (
	integrityStatus ui.Status = 3
	verifyStatus    ui.Status = 4
	deliveryStatus  ui.Status = 5
	alertStatus     ui.Status = 6
	notReadyStatus  ui.Status = 75 // EX_TEMPFAIL of sysexits.h
)

const reportStatuses = `
Exit status:
  0    done, or done before
  1    refused by the cluster, or failed
  2    wrong options or configuration
  3    records cannot be read: do not publish
  4    a report does not match its manifest; permission denied, or unknown user
  5    written, but delivery failed
  6    there are alerts (with --exit-on-alert)
  75   not ready, or there is no leader: try again later
  130  interrupted
`

// reporting holds what all reports have in common.
type reporting struct {
	commands
	kind, date, from, to, zone string
	format, dir                string
	grace                      time.Duration
	cost                       creditCost
	inCron                     bool
	lastNote                   string // the last note: cron writes many reports
}

func (t commands) report() *cobra.Command {
	c := &cobra.Command{
		Use: "report", Short: "Report usage", GroupID: tool.GroupAccounts, Args: tool.RequireSubcommand,
		Long: `Reports the usage of jobs for a day, week, month or any interval, in UTC or
the time zone of --tz. The default is the last complete period. With -o a
report is written into a directory with a manifest, and rewritten only if it
changed.`,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.SetHelpTemplate(c.HelpTemplate() + reportStatuses)
	for _, r := range [...]struct{ name, short string }{
		{"usage", "Usage by account, user, partition, QOS and GPU type"},
		{"jobs", "Outcomes and wait times of jobs"},
		{"users", "Users with the highest usage"},
		{"accounts", "Usage of each account's users"},
		{"wckeys", "Usage and charges by workload key (gsubmit --wckey)"},
		{"efficiency", "Utilization of allocated resources"},
		{"promises", "Promises kept, and causes of broken promises"},
	} {
		c.AddCommand(t.usageReport(r.name, r.short))
	}
	c.AddCommand(t.usageReport("cluster", "Allocated, idle, down and drained time of GPUs and CPUs"))
	c.AddCommand(t.usageReport("burst", "Cost of leased cloud nodes, and charges of the jobs there"))
	c.AddCommand(t.usageReport("credits", "Credits granted, charged, refunded and expired"), t.alertReport(), t.cronReport(), t.reportVerify())
	return c
}

// usageReport is a report of usage rows.
func (t commands) usageReport(name, short string) *cobra.Command {
	r := &reporting{commands: t}
	c := &cobra.Command{Use: name, Short: short, Long: short + ".", Args: notSreport, RunE: r.run(name)}
	r.flags(c)
	return c
}

// notSreport refuses arguments after a report. Those of sreport name other reports.
func notSreport(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	instead := map[string]string{
		"accountutilizationbyuser": "gctl report accounts", "userutilizationbyaccount": "gctl report users", "accountutilizationbyqos": "gctl report usage",
		"wckeyutilizationbyuser": "gctl report wckeys", "userutilizationbywckey": "gctl report wckeys", "topusage": "gctl report users", "top": "gctl report users", "sizesbyaccount": "gctl report jobs", "utilization": "gctl report cluster, without arguments",
	}
	if advice := instead[strings.ToLower(args[0])]; advice != "" {
		return &ui.UsageError{Problem: fmt.Sprintf("%s takes no arguments, got %q", c.CommandPath(), args[0]), Advice: advice}
	}
	return cobra.NoArgs(c, args)
}

func (r *reporting) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&r.kind, "period", "", "day, week or month [day; for --date YYYY-MM month]")
	f.StringVar(&r.date, "date", "", "a day in the period: YYYY-MM-DD, today, yesterday; YYYY-MM selects the month [the last complete period]")
	f.StringVar(&r.from, "from", "", "start time instead of a period: 2026-11-01, 2026-11-01T16:00, 16:00, now-2days")
	f.StringVar(&r.to, "to", "", "end time, exclusive [now]")
	f.StringVar(&r.zone, "tz", "UTC", "time zone of days, such as Europe/Berlin, or Local")
	f.StringVar(&r.format, "format", "text", "text, csv, jsonl, parquet; focus for usage or credits; xdmod for jobs")
	f.StringVarP(&r.dir, "output", "o", "", "write into this directory, as REPORT/FORMAT/period=NAME/, with a manifest")
	f.DurationVar(&r.grace, "grace", 2*time.Hour, "how long after the period to wait for unresponsive nodes")
	c.PreRunE = func(*cobra.Command, []string) error {
		if r.grace < 0 {
			return &ui.UsageError{Problem: fmt.Sprintf("--grace %s is before the end of the period", r.grace), Advice: "write a time such as 2h; 0 does not wait"}
		}
		return nil
	}
	r.cost.flags(c)
	c.MarkFlagsMutuallyExclusive("date", "from")
	c.MarkFlagsMutuallyExclusive("date", "to")
	c.MarkFlagsMutuallyExclusive("period", "from")
}

// run writes one report for a person or for cron.
func (r *reporting) run(name string) func(*cobra.Command, []string) error {
	return r.On(func(ctx context.Context, c ui.Cluster, _ []string) error {
		if r.JSON {
			r.format = "jsonl"
		}
		period, err := r.period()
		if err != nil {
			return err
		}
		return r.temporary(r.one(ctx, c, name, period))
	})
}

// temporary turns an answer that no controller could give into one that cron retries, and
// unreadable history into one that it does not publish.
func (r *reporting) temporary(err error) error {
	if answer := (*connect.Error)(nil); errors.As(err, &answer) && answer.Code() == connect.CodeDataLoss {
		r.Complain(answer.Message(), "gctl verify names the problem; the other controllers have a copy")
		return ui.Exit(integrityStatus)
	}
	if silent(err) {
		var answer *connect.Error
		text := err.Error()
		if errors.As(err, &answer) {
			text = answer.Message()
		}
		r.Complain(text, "try again later; check the controllers: gctl cluster status")
		return ui.Exit(notReadyStatus)
	}
	return err
}

// silent reports whether no controller answered in time.
func silent(err error) bool {
	code := connect.CodeOf(err)
	return (code == connect.CodeUnavailable || code == connect.CodeDeadlineExceeded) && ui.StatusOf(err) != ui.Denied
}

// one creates one report and prints or writes it.
func (r *reporting) one(ctx context.Context, c ui.Cluster, name string, period report.Period) error {
	made, err := r.make(ctx, c, name, period)
	if err != nil {
		return err
	}
	return r.put(made, period)
}

// put prints a report, or writes it when it is complete.
func (r *reporting) put(made *madeReport, period report.Period) error {
	if made.head.GetUnreadable() > 0 {
		r.Complain(ui.Count(int64(made.head.GetUnreadable()), "record")+" of finished jobs cannot be read: the report does not count them", "check the log of controller "+made.head.GetAsOf().GetController()+"; the others have a copy")
		return ui.Exit(integrityStatus)
	}
	if lacks := made.head.GetIncomplete(); lacks != "" {
		r.Complain(fmt.Sprintf("the report of %s would be incomplete: %s", period.Name, lacks), "try again later")
		return ui.Exit(notReadyStatus)
	}
	if since := made.head.GetSince(); since != nil {
		r.Note("the report of %s covers jobs and credits from %s on: the cluster was restored from a backup without the older history",
			period.Name, since.AsTime().Local().Format(time.DateTime))
	}
	if r.dir == "" {
		if made.head.GetOpen() != "" {
			r.Note("this report is not final: %s", made.head.GetOpen())
		}
		if r.format == "parquet" && r.ToTerminal() {
			return &ui.UsageError{Problem: "cannot write parquet to a terminal", Advice: "redirect it to a file, or write it with -o DIR"}
		}
		_, err := r.Stdout.Write(made.data)
		return err
	}
	if !made.head.GetReady() {
		r.Complain(fmt.Sprintf("the report of %s is not ready: %s", period.Name, made.head.GetOpen()), "try again later")
		return ui.Exit(notReadyStatus)
	}
	return r.keep(made, period)
}

// keep writes a report into its folder and prints the result.
func (r *reporting) keep(made *madeReport, period report.Period) error {
	m := made.manifest
	m.Cluster, m.WatermarkSeq, m.HeadHash = made.head.GetCluster(), made.head.GetWatermarkSeq(), fmt.Sprintf("%x", made.head.GetHeadHash())
	if m.State = "closed"; made.head.GetOpen() != "" {
		m.State = "open"
	}
	folder := r.folder(m.Report, m.Format, period)
	m.Fill(period, m.Report+"."+extension(m.Format), made.data)
	outcome, err := report.Write(folder, m, made.data)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(r.Stdout, "%s %s\n", outcome, filepath.Join(folder, m.File))
	return err
}

// folder returns the folder of a period's report.
func (r *reporting) folder(name, format string, period report.Period) string {
	return filepath.Join(r.dir, name, format, "period="+period.Name)
}

func extension(format string) string {
	switch format {
	case "text":
		return "txt"
	case "focus":
		return "csv"
	case "xdmod":
		return "psv"
	}
	return format
}

// period returns the period of the options.
func (r *reporting) period() (report.Period, error) {
	wrong := func(err error) (report.Period, error) {
		return report.Period{}, &ui.UsageError{Problem: err.Error(), Advice: "see gctl report --help"}
	}
	zone, err := time.LoadLocation(r.zone)
	if err != nil {
		return wrong(fmt.Errorf("unknown time zone %q", r.zone))
	}
	now := r.Now().In(zone)
	if r.from != "" || r.to != "" {
		p, err := r.interval(now)
		if usage := (*ui.UsageError)(nil); err != nil && !errors.As(err, &usage) {
			return wrong(err)
		}
		return p, err
	}
	var p report.Period
	if r.date == "" {
		p, err = report.Last(cmp.Or(r.kind, "day"), now)
	} else {
		p, err = r.around(now)
	}
	if err != nil {
		return wrong(err)
	}
	return p, nil
}

// around returns the period that contains --date; a month's date is the month.
func (r *reporting) around(now time.Time) (report.Period, error) {
	if month, err := time.ParseInLocation(monthLayout, r.date, now.Location()); err == nil {
		if kind := cmp.Or(r.kind, "month"); kind != "month" {
			return report.Period{}, fmt.Errorf("--date %s is a month, and --period is %s: write --date YYYY-MM-DD for a %[2]s", r.date, kind)
		}
		return report.PeriodOf("month", month)
	}
	day, err := parseDay(r.date, now)
	if err != nil {
		return report.Period{}, err
	}
	return report.PeriodOf(cmp.Or(r.kind, "day"), day)
}

// interval returns the period between --from and --to.
func (r *reporting) interval(now time.Time) (report.Period, error) {
	if r.from == "" {
		return report.Period{}, errors.New("--to needs --from")
	}
	from, err := ui.ParseTime(r.from, now)
	if err != nil {
		return report.Period{}, err
	}
	to := now.Truncate(30 * time.Minute).Add(30 * time.Minute)
	if r.to != "" {
		if to, err = ui.ParseTime(r.to, now); err != nil {
			return report.Period{}, err
		}
	}
	return report.Between(from, to)
}

// monthLayout is the format of a month.
const monthLayout = "2006-01"

func parseDay(word string, now time.Time) (time.Time, error) {
	switch word {
	case "today":
		return now, nil
	case "yesterday":
		return now.AddDate(0, 0, -1), nil
	}
	if t, err := time.ParseInLocation(time.DateOnly, word, now.Location()); err == nil {
		return t, nil
	}
	return now, fmt.Errorf("not a date: %q, want YYYY-MM-DD or YYYY-MM", word)
}

// formats are the file formats of reports.
func formats(name string) []string {
	list := []string{"text", "csv", "jsonl", "parquet"}
	switch name {
	case "usage", "credits":
		list = append(list, "focus")
	case "jobs":
		list = append(list, "xdmod")
	}
	return list
}

func checkFormat(name, format string) error {
	if list := formats(name); !slices.Contains(list, format) {
		return &ui.UsageError{Problem: fmt.Sprintf("report %s has no format %q", name, format), Advice: "formats: " + strings.Join(list, ", ")}
	}
	return nil
}

func (t commands) reportVerify() *cobra.Command {
	return &cobra.Command{
		Use: "verify DIR...", Short: "Check written reports against their manifests", Args: cobra.MinimumNArgs(1),
		Long: "Checks that the report in each directory matches its manifest." + reportStatuses,
		RunE: func(_ *cobra.Command, args []string) error {
			bad, absent := false, false
			for _, dir := range args {
				m, err := report.Verify(dir)
				if m.File == "" && errors.Is(err, fs.ErrNotExist) {
					t.Complain(dir+" holds no report: the directory or its manifest does not exist", "give a directory REPORT/FORMAT/period=NAME below that of -o")
					absent = true
					continue
				}
				if err != nil {
					t.Complain(err.Error(), "write it again: gctl report "+m.Report+" -o")
					bad = true
					continue
				}
				if _, err := fmt.Fprintf(t.Stdout, "ok %s\n", filepath.Join(dir, m.File)); err != nil {
					return err
				}
			}
			if bad {
				return ui.Exit(verifyStatus)
			}
			if absent {
				return ui.Exit(ui.Failed)
			}
			return nil
		},
	}
}
