package reports

import (
	"context"
	"errors"
	"strconv"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/report"
)

// endedLeases are the leases that ended in periods.
type endedLeases struct {
	periods    [][]report.Lease
	partitions []string // that have or had leased nodes
}

// leases fetches the leases that ended, by periods. It notes how many have not.
func (r *reporting) leases(ctx context.Context, c ui.Cluster, bounds []time.Time) (endedLeases, *greylagv1.ReportHead, error) {
	out := endedLeases{periods: make([][]report.Lease, len(bounds)-1)}
	stream, err := c.Reports().StreamEndedLeases(ctx, &greylagv1.StreamEndedLeasesRequest{Periods: r.request(bounds)})
	if err != nil {
		return out, nil, err
	}
	defer stream.Close()
	var head *greylagv1.ReportHead
	for stream.Receive() {
		m := stream.Msg()
		if m.GetHead() != nil {
			head, out.partitions = m.GetHead(), m.GetPartitions()
			if m.GetRunning() > 0 {
				r.noteOnce(ui.Count(int64(m.GetRunning()), "lease") + " not ended; each counts in the period in which it ends")
			}
		}
		for _, x := range m.GetLeases() {
			if i := int(x.GetPeriod()); i < len(out.periods) {
				out.periods[i] = append(out.periods[i], leaseOf(x))
			}
		}
	}
	return out, head, stream.Err()
}

func leaseOf(x *greylagv1.EndedLease) report.Lease {
	return report.Lease{
		Lease: x.GetLease(), Account: x.GetAccount(), Job: strconv.FormatUint(x.GetJob(), 10), Partition: x.GetPartition(), Offer: x.GetOffer(), Market: x.GetMarket(),
		Region: x.GetRegion(), Type: x.GetType(), Currency: x.GetCurrency(), Month: x.GetMonth().AsTime(), Launched: x.GetLaunched() != nil,
		Reclaimed: x.GetInterrupted(), Instance: x.GetInstance(), Ran: x.GetRan().AsDuration(), Cost: x.GetCost(),
	}
}

// errNoLeases is the error of a report of leased nodes that cron does not write: the cluster has none.
var errNoLeases = errors.New("no partition has leased nodes")

// burst returns the report of leased nodes.
func (r *reporting) burst(ctx context.Context, c ui.Cluster, bounds []time.Time) (report.Table, *greylagv1.ReportHead, error) {
	leases, head, err := r.leases(ctx, c, bounds)
	if err != nil {
		return report.Table{}, nil, err
	}
	rows, other, err := r.usage(ctx, c, bounds)
	if err != nil {
		return report.Table{}, nil, err
	}
	if r.inCron && len(leases.partitions)+len(leases.periods[0]) == 0 {
		return report.Table{}, nil, errNoLeases
	}
	return report.Burst(leases.periods[0], rows[0], leases.partitions), worse(head, other), nil
}

// noteOnce writes a note, unless it was the last one: cron writes many reports.
func (r *reporting) noteOnce(text string) {
	if text != r.lastNote {
		r.Note("%s", text)
		r.lastNote = text
	}
}
