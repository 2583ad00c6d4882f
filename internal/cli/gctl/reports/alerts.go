package reports

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/report"
	"github.com/greylag/greylag/internal/report/deliver"
	"github.com/greylag/greylag/internal/wire"
)

// alerting holds the options of alerts in addition to those of all reports.
type alerting struct {
	reporting
	floor                     int64
	mailTo                    []string
	mailFrom, relay, sendmail string
	webhook, keyFile          string
	exit                      bool
	alertPause                time.Duration
}

// firstPause is the pause between the first two delivery attempts; it doubles each time.
const firstPause = 2 * time.Second

func (t commands) alertReport() *cobra.Command {
	r := &alerting{reporting: reporting{commands: t}, alertPause: firstPause}
	c := &cobra.Command{
		Use: "alerts", Short: "Report unusual days, budgets, expiries and debts", Args: cobra.NoArgs,
		Long: `Reports days on which the cluster, an account or a user spent more than 130 %
of the daily mean of the 30 days before (credits if jobs are charged,
otherwise GPU hours; with a week of history, above --floor), and the current
state: budgets used to 50, 80 or 100 %, rental budgets of cloud nodes used to 80
or 99 %, credits that expire within 30, 7 or 1 days, and debts.

With --mail-to or --webhook each alert is sent once: DIR/alerts/sent in the
directory of -o lists the sent ones. A webhook gets JSON; Greylag-Signature is
the HMAC-SHA256 of Greylag-Timestamp, a dot and the body under the key in
--webhook-key-file.`,
		RunE: t.On(func(ctx context.Context, c ui.Cluster, _ []string) error {
			if r.JSON {
				r.format = "jsonl"
			}
			if cmp.Or(r.kind, "day") != "day" || r.from != "" {
				return &ui.UsageError{Problem: "alerts are per day", Advice: "choose one with --date YYYY-MM-DD"}
			}
			r.kind = "day"
			period, err := r.period()
			if err != nil {
				return err
			}
			return r.temporary(r.tell(ctx, c, period, true))
		}),
	}
	r.flags(c)
	r.alertFlags(c)
	return c
}

func (r *alerting) alertFlags(c *cobra.Command) {
	f := c.Flags()
	f.Int64Var(&r.floor, "floor", 10, "no alert for days with less usage: credits, or GPU hours")
	f.StringSliceVar(&r.mailTo, "mail-to", nil, "send to these mail addresses")
	f.StringVar(&r.mailFrom, "mail-from", "", "sender of the mails (greylag@HOST)")
	f.StringVar(&r.relay, "smtp", "", "relay for mails, HOST:PORT (the host's sendmail)")
	f.StringVar(&r.sendmail, "sendmail", "/usr/sbin/sendmail", "program that sends mails without a relay")
	f.StringVar(&r.webhook, "webhook", "", "post to this URL")
	f.StringVar(&r.keyFile, "webhook-key-file", "", "file with the signing key")
	f.BoolVar(&r.exit, "exit-on-alert", false, "exit with status 6 when there are alerts")
}

// tell finds the alerts of a day, and optionally current ones, prints or writes them, and sends
// them.
func (r *alerting) tell(ctx context.Context, c ui.Cluster, period report.Period, present bool) error {
	if err := checkFormat("alerts", r.format); err != nil {
		return err
	}
	if r.floor < 0 {
		return &ui.UsageError{Problem: fmt.Sprintf("--floor %d is negative", r.floor), Advice: "0 disables the floor"}
	}
	channels, err := r.channels()
	if err != nil {
		return err
	}
	alerts, head, err := r.find(ctx, c, period)
	if err != nil {
		return err
	}
	if present {
		standing, err := r.standing(ctx, c)
		if err != nil {
			return err
		}
		alerts = append(alerts, standing...)
	}
	table := report.AlertTable(alerts)
	made := &madeReport{head: head, manifest: report.Manifest{Report: "alerts", Format: r.format, Rows: len(alerts)}}
	if made.data, err = written(&table, r.format, period); err != nil {
		return err
	}
	if err := r.put(made, period); err != nil {
		return err
	}
	if len(channels) > 0 {
		sentAlerts, err := deliver.OpenSentAlerts(filepath.Join(r.dir, "alerts", "sent"))
		if err != nil {
			return err
		}
		sent, err := deliver.All(ctx, sentAlerts, channels, alerts, r.alertPause)
		if err = errors.Join(err, sentAlerts.Close()); err != nil {
			r.Complain(err.Error(), "it is retried at the next run")
			return ui.Exit(deliveryStatus)
		}
		if sent > 0 {
			r.Note("%s sent", ui.Count(int64(sent), "message"))
		}
	}
	if r.exit && len(alerts) > 0 {
		return ui.Exit(alertStatus)
	}
	return nil
}

// find returns the alerts of a day.
func (r *alerting) find(ctx context.Context, c ui.Cluster, period report.Period) ([]report.Alert, *greylagv1.ReportHead, error) {
	bounds := period.DaysBefore(report.Most + 1)
	before, past, err := r.usage(ctx, c, []time.Time{bounds[0].AddDate(-1, 0, 0), bounds[0]})
	if err != nil {
		return nil, nil, err
	}
	days, head, err := r.days(ctx, c, bounds)
	if err != nil {
		return nil, nil, err
	}
	head = worse(head, past)
	series, spent := report.Dailies(days, before[0])
	floor := r.floor * 1_000_000
	if !spent {
		floor = r.floor * int64(time.Hour/time.Millisecond)
	}
	return report.Anomalies(series, period, spent, floor), head, nil
}

// standing returns the current alerts.
func (r *alerting) standing(ctx context.Context, c ui.Cluster) ([]report.Alert, error) {
	now, err := c.Reports().GetStanding(ctx, &greylagv1.GetStandingRequest{})
	if err != nil {
		return nil, err
	}
	standing := &report.Standing{}
	for _, b := range now.GetBudgets() {
		standing.Budgets = append(standing.Budgets, report.BudgetStanding{Node: b.GetPayer(), Window: wire.Word(b.GetWindow()), Limit: b.GetLimit(), Used: b.GetUsed()})
	}
	for _, b := range now.GetBuckets() {
		standing.Buckets = append(standing.Buckets, report.Expiring{Bucket: b.GetBucket(), Owner: b.GetOwner(), Available: b.GetAvailable(), Expires: b.GetExpires().AsTime()})
	}
	for _, x := range now.GetRentals() {
		standing.Rentals = append(standing.Rentals, report.RentalStanding{
			Account: x.GetAccount(), Currency: x.GetCurrency(), Limit: x.GetLimit(), Spent: x.GetSpent(), Committed: x.GetCommitted(),
		})
	}
	for _, d := range now.GetDebts() {
		standing.Debts = append(standing.Debts, report.Owing{Node: d.GetPayer(), Amount: d.GetAmount()})
	}
	return standing.Alerts(r.Now()), nil
}

// channels returns the channels that the options name.
func (r *alerting) channels() ([]deliver.Channel, error) {
	wrong := func(format string, args ...any) ([]deliver.Channel, error) {
		return nil, &ui.UsageError{Problem: fmt.Sprintf(format, args...), Advice: "see gctl report alerts --help"}
	}
	if (len(r.mailTo) > 0 || r.webhook != "") && r.dir == "" {
		return wrong("--mail-to and --webhook need -o DIR, which records sent alerts")
	}
	var out []deliver.Channel
	if len(r.mailTo) > 0 {
		m := &deliver.Mail{Cluster: "greylag", From: r.mailFrom, To: slices.Sorted(slices.Values(r.mailTo)), Relay: r.relay, Sendmail: r.sendmail, Clock: r.Now}
		if m.From == "" {
			m.From = sender()
		}
		if err := m.Check(); err != nil {
			return wrong("%s", err)
		}
		out = append(out, m)
	}
	if r.webhook != "" {
		if r.keyFile == "" || !strings.Contains(r.webhook, "://") {
			return wrong("--webhook requires a URL and --webhook-key-file")
		}
		key, err := os.ReadFile(r.keyFile)
		if err != nil {
			return nil, err
		}
		if key = bytes.TrimSpace(key); len(key) < 16 {
			return wrong("the key in %s has %d bytes, want at least 16", r.keyFile, len(key))
		}
		out = append(out, &deliver.Webhook{URL: r.webhook, Key: key, Clock: r.Now})
	}
	return out, nil
}

// sender returns the default sender of mails.
func sender() string {
	name, host := "greylag", "localhost"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil && h != "" {
		host = h
	}
	return name + "@" + host
}
