package control

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/greylag/greylag/internal/cli"
	"github.com/greylag/greylag/internal/report"
)

// cronReport makes all that a site usually wants, in one command for cron: what is
// there and has not changed costs a look.
func (t *tool) cronReport() *cobra.Command {
	r := &alerting{reporting: reporting{tool: t}, alertPause: firstPause}
	var formats string
	c := &cobra.Command{
		Use: "cron -o DIR", Short: "All reports of the last day, week and month, and alerts", Args: cobra.NoArgs,
		Long: `Makes every report of the last day, week and month that are over into the folder of -o,
then the alerts of the last day, and tells about them. Reports that are there and would
be the same are left alone, so that it can run as often as one likes.`,
		RunE: t.on(func(ctx context.Context, c cli.Cluster, _ []string) error {
			if r.dir == "" {
				return &cli.UsageError{Problem: "no folder to write into", Advice: "name one with -o DIR"}
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

// all makes every report and goes on after what fails; the worst status is that of all.
func (r *alerting) all(ctx context.Context, c cli.Cluster, formats []string) error {
	var statuses []error
	note := func(err error) bool {
		if err != nil {
			statuses = append(statuses, err)
		}
		return ctx.Err() == nil
	}
	for _, kind := range report.Kinds() {
		r.kind = kind
		period, err := r.period()
		if err != nil {
			return err
		}
		for _, name := range append(report.Reports(), "credits") {
			for _, format := range formats {
				if r.format = format; checkFormat(name, format) != nil && (format == "focus" || format == "xdmod") {
					continue
				}
				if !note(r.temporary(r.one(ctx, c, name, period))) {
					return worst(statuses)
				}
			}
		}
	}
	r.kind = "day"
	period, err := r.period()
	if err != nil {
		return err
	}
	if r.format = formats[0]; checkFormat("alerts", r.format) != nil {
		r.format = "csv"
	}
	note(r.temporary(r.tell(ctx, c, period)))
	return worst(statuses)
}

// worst is what cron is told of several: what must be looked at before what passes by
// itself, and alerts last.
func worst(all []error) error {
	for _, status := range [...]cli.Status{integrityStatus, notReadyStatus, deliveryStatus, alertStatus} {
		for _, err := range all {
			if cli.ExitOf(err) == status {
				return err
			}
		}
	}
	return errors.Join(all...)
}
