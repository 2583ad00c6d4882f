package reports

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/report"
)

// cronReport writes all usual reports of a site, in one command for cron: existing, unchanged
// reports cost only a check.
func (t commands) cronReport() *cobra.Command {
	r := &alerting{reporting: reporting{commands: t, inCron: true}, alertPause: firstPause}
	var formats string
	c := &cobra.Command{
		Use: "cron -o DIR", Short: "Write all reports of the last day, week and month, and alerts", Args: cobra.NoArgs,
		Long: `Writes all reports of the last complete day, week and month into the directory
of -o, then sends the alerts of the last day. Reports that exist and are
unchanged are skipped, so it can run at any interval. Missing or non-final
reports of the six days, the week and the month before are written as well.`,
		RunE: t.On(func(ctx context.Context, c ui.Cluster, _ []string) error {
			if r.dir == "" {
				return &ui.UsageError{Problem: "no output directory", Advice: "name one with -o DIR"}
			}
			if _, err := r.channels(); err != nil {
				return err
			}
			return r.all(ctx, c, strings.Split(formats, ","))
		}),
	}
	r.flags(c)
	r.alertFlags(c)
	c.Flags().StringVar(&formats, "formats", "csv", "formats of the reports, separated by commas")
	for _, hidden := range [...]string{"format", "period", "date", "from", "to"} {
		_ = c.Flags().MarkHidden(hidden) // it exists
	}
	return c
}

// lookBack is the number of periods of a kind that cron checks: a host may be down for days, and
// late reports of nodes may arrive.
func lookBack(kind string) int {
	if kind == "day" {
		return 7
	}
	return 2
}

// lately returns the last completed periods of a kind, newest first.
func (r *reporting) lately(kind string) ([]report.Period, error) {
	r.kind = kind
	p, err := r.period()
	if err != nil {
		return nil, err
	}
	list := []report.Period{p}
	for len(list) < lookBack(kind) {
		if p, err = p.Before(); err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

// all writes every report and continues after failures; its status is the worst of all.
func (r *alerting) all(ctx context.Context, c ui.Cluster, formats []string) error {
	var statuses []error
	for _, kind := range report.Kinds() {
		periods, err := r.lately(kind)
		if err != nil {
			return err
		}
		for i, period := range periods {
			for _, r.format = range formats {
				some, hopeless := r.every(ctx, c, period, i > 0)
				if statuses = append(statuses, some...); hopeless {
					return worst(statuses)
				}
			}
		}
	}
	return worst(append(statuses, r.allAlerts(ctx, c, formats[0])...))
}

// every writes every report of a period in the format; final ones may be kept. hopeless: no
// controller answers, or none answers this user, so that others would fail as well.
func (r *alerting) every(ctx context.Context, c ui.Cluster, period report.Period, leave bool) (statuses []error, hopeless bool) {
	for _, name := range append(report.Reports(), "cluster", "credits", "burst") {
		if checkFormat(name, r.format) != nil && (r.format == "focus" || r.format == "xdmod") {
			continue
		}
		if _, final := report.Look(r.folder(name, r.format, period)); final && leave {
			continue
		}
		err := r.one(ctx, c, name, period)
		if errors.Is(err, errNoLeases) {
			continue
		}
		hopeless = ctx.Err() != nil || silent(err) || err != nil && ui.StatusOf(err) == ui.Denied
		if err = r.temporary(err); err != nil {
			statuses = append(statuses, err)
		}
		if hopeless {
			break
		}
	}
	return statuses, hopeless
}

// allAlerts sends alerts for the last day, and for earlier days that were not checked.
func (r *alerting) allAlerts(ctx context.Context, c ui.Cluster, format string) (statuses []error) {
	if r.format = format; checkFormat("alerts", format) != nil {
		r.format = "csv"
	}
	days, err := r.lately("day")
	if err != nil {
		return []error{err}
	}
	missed := 1
	for missed < len(days) {
		if made, _ := report.Look(r.folder("alerts", r.format, days[missed])); made {
			break
		}
		missed++
	}
	if missed == len(days) { // the first run: older days are no longer of interest
		missed = 1
	}
	for i := missed - 1; i >= 0; i-- {
		if err := r.temporary(r.tell(ctx, c, days[i], i == 0)); err != nil {
			statuses = append(statuses, err)
		}
	}
	return statuses
}

// worst returns the status for cron: errors that need attention before temporary ones, alerts last.
func worst(all []error) error {
	for _, status := range [...]ui.Status{integrityStatus, notReadyStatus, deliveryStatus, alertStatus} {
		for _, err := range all {
			if ui.StatusOf(err) == status {
				return err
			}
		}
	}
	return errors.Join(all...)
}
