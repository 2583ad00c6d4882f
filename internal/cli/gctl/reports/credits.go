package reports

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/report"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/accounting"
)

// creditCost is the purchase price of credits, for FOCUS.
type creditCost struct{ currency, price, provider string }

func (m *creditCost) flags(c *cobra.Command) {
	c.Flags().StringVar(&m.currency, "currency", "USD", "for FOCUS: the currency in which credits are bought (ISO 4217)")
	c.Flags().StringVar(&m.price, "credit-price", "1", "for FOCUS: price of one credit in that currency")
	c.Flags().StringVar(&m.provider, "cloud-provider", "cloud", "for FOCUS: name of the cloud whose nodes are leased")
}

func (m *creditCost) billing(cluster string) (report.Billing, error) {
	price, err := accounting.ParseCredits(m.price)
	if err != nil || price < 0 || len(m.currency) != 3 {
		return report.Billing{}, &ui.UsageError{Problem: fmt.Sprintf("invalid price of a credit: %s %s", m.price, m.currency), Advice: "such as --currency EUR --credit-price 0.85"}
	}
	if m.provider == "" {
		return report.Billing{}, &ui.UsageError{Problem: "the name of the cloud is empty", Advice: "such as --cloud-provider AWS"}
	}
	return report.Billing{Cluster: cluster, Currency: m.currency, Price: int64(price), Provider: m.provider}, nil
}

// credits fetches the journal's movements, by periods.
func (r *reporting) credits(ctx context.Context, c ui.Cluster, bounds []time.Time) ([][]report.Credit, *greylagv1.ReportHead, error) {
	stream, err := c.Reports().StreamCredits(ctx, &greylagv1.StreamCreditsRequest{Periods: r.request(bounds)})
	if err != nil {
		return nil, nil, err
	}
	defer stream.Close()
	periods := make([][]report.Credit, len(bounds)-1)
	var head *greylagv1.ReportHead
	for stream.Receive() {
		if h := stream.Msg().GetHead(); h != nil {
			head = h
		}
		for _, x := range stream.Msg().GetRows() {
			if i := int(x.GetPeriod()); i < len(periods) {
				periods[i] = append(periods[i], report.Credit{
					Node: x.GetPayer(), Kind: wire.Word(x.GetKind()), Class: wire.Word(x.GetClass()), GPUType: x.GetGpuType(),
					Bucket: x.GetBucket(), Amount: x.GetAmount(), Entries: x.GetEntries(), Late: x.GetLate(),
				})
			}
		}
	}
	return periods, head, stream.Err()
}

// days fetches usage and credits of consecutive days.
func (r *reporting) days(ctx context.Context, c ui.Cluster, bounds []time.Time) ([]report.Day, *greylagv1.ReportHead, error) {
	usage, head, err := r.usage(ctx, c, bounds)
	if err != nil {
		return nil, nil, err
	}
	credits, other, err := r.credits(ctx, c, bounds)
	if err != nil {
		return nil, nil, err
	}
	head = worse(head, other)
	days := make([]report.Day, len(bounds)-1)
	for i := range days {
		days[i] = report.Day{From: bounds[i], To: bounds[i+1], Usage: usage[i], Credits: credits[i]}
	}
	return days, head, nil
}

// worse returns the freshness of two answers together: they may come from different controllers.
func worse(a, b *greylagv1.ReportHead) *greylagv1.ReportHead {
	out := proto.CloneOf(a)
	out.Incomplete, out.Open = cmp.Or(a.GetIncomplete(), b.GetIncomplete()), cmp.Or(a.GetOpen(), b.GetOpen())
	if since := b.GetSince(); since != nil && (out.Since == nil || since.AsTime().After(out.Since.AsTime())) {
		out.Since = since
	}
	out.Ready, out.Unreadable = a.GetReady() && b.GetReady(), max(a.GetUnreadable(), b.GetUnreadable())
	return out
}

// focus returns the days of a period in the FinOps FOCUS form.
func (r *reporting) focus(ctx context.Context, c ui.Cluster, period report.Period) (*madeReport, error) {
	if period.From.Location() != time.UTC {
		return nil, &ui.UsageError{Problem: "FOCUS is written for UTC only", Advice: "omit --tz"}
	}
	days, head, err := r.days(ctx, c, period.Days())
	if err != nil {
		return nil, err
	}
	leases, more, err := r.leases(ctx, c, period.Days())
	if err != nil {
		return nil, err
	}
	head = worse(head, more)
	for i := range days {
		days[i].Leases = leases.periods[i]
	}
	billing, err := r.cost.billing(head.GetCluster())
	if err != nil {
		return nil, err
	}
	table, err := report.FOCUS(days, billing)
	if err != nil {
		return nil, err
	}
	return &madeReport{head: head, manifest: report.Manifest{FOCUSVersion: report.FOCUSVersion, Rows: len(table.Rows)}, data: table.CSV()}, nil
}
