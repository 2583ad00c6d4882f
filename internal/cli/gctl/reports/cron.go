package reports

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/report"
)

// cronReport makes all that a site usually wants, in one command for cron: what is
// there and has not changed costs a look.
func (t commands) cronReport() *cobra.Command {
	r := &alerting{reporting: reporting{commands: t}, alertPause: firstPause}
	var formats string
	c := &cobra.Command{
		Use: "cron -o DIR", Short: "All reports of the last day, week and month, and alerts", Args: cobra.NoArgs,
		Long: `Makes every report of the last day, week and month that are over into the folder of -o,
then the alerts of the last day, and tells about them. Reports that are there and would
be the same are left alone, so that it can run as often as one likes. Of the six days,
the week and the month before, what is missing or was not final is made as well.`,
		RunE: t.On(func(ctx context.Context, c ui.Cluster, _ []string) error {
			if r.dir == "" {
				return &ui.UsageError{Problem: "no folder to write into", Advice: "name one with -o DIR"}
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
		_ = c.Flags().MarkHidden(hidden) // it is there
	}
	return c
}

// lookBack is how many periods of a kind cron looks at: a host may be down for days, and
// late facts may come.
func lookBack(kind string) int {
	if kind == "day" {
		return 7
	}
	return 2
}

// lately are the last periods of a kind that are over, newest first.
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

// all makes every report and goes on after what fails; the worst status is that of all.
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

// every makes every report of a period that there is in the format; those that are
// final may be left as they are. hopeless: nobody answers or answers this user, so that
// others would fail as well.
func (r *alerting) every(ctx context.Context, c ui.Cluster, period report.Period, leave bool) (statuses []error, hopeless bool) {
	for _, name := range append(report.Reports(), "cluster", "credits") {
		if checkFormat(name, r.format) != nil && (r.format == "focus" || r.format == "xdmod") {
			continue
		}
		if _, final := report.Look(r.folder(name, r.format, period)); final && leave {
			continue
		}
		err := r.one(ctx, c, name, period)
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

// allAlerts tells about the last day, and about days before on which nobody looked.
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
	if missed == len(days) { // it has never looked: what is long ago is no news
		missed = 1
	}
	for i := missed - 1; i >= 0; i-- {
		if err := r.temporary(r.tell(ctx, c, days[i], i == 0)); err != nil {
			statuses = append(statuses, err)
		}
	}
	return statuses
}

// worst is what cron is told of several: what must be looked at before what passes by
// itself, and alerts last.
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
