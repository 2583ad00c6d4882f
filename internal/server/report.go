package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/report/tally"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// rollUp is what reports need of the archive.
type rollUp interface {
	Tallies(bounds []cluster.Instant, add func(period int, k tally.Key, t *tally.Tally)) (archive.Rolled, error)
	Ended(from, to cluster.Instant, after archive.Position, limit int) ([]archive.Record, archive.Position, error)
	LastRow(j archive.Journal) (uint64, error)
	RowGaps(j archive.Journal) ([]archive.Gap, error)
}

// reportService hands out rows for reports.
type reportService struct{ *Server }

// reportPage is how many rows or jobs one message holds.
const reportPage = 500

// asking is one question about periods.
type asking struct {
	server *Server
	caller *call.Caller
	bounds []cluster.Instant
	grace  time.Duration
	asOf   *greylagv1.AsOf
	view   *state.View
}

func (s *reportService) ask(ctx context.Context, p *greylagv1.Periods) (*asking, error) {
	bounds, grace, err := wire.ReadBounds(p)
	if err != nil {
		return nil, err
	}
	v, asOf, err := s.fresh(ctx, p.GetRead())
	if err != nil {
		return nil, err
	}
	return &asking{server: s.Server, caller: call.From(ctx), bounds: bounds, grace: grace, asOf: asOf, view: v}, nil
}

func (q *asking) end() cluster.Instant { return q.bounds[len(q.bounds)-1] }

// period is which period an instant lies in; false when it lies in none.
func (q *asking) period(at cluster.Instant) (int, bool) {
	i, exact := slices.BinarySearch(q.bounds, at)
	if !exact {
		i--
	}
	return i, i >= 0 && i < len(q.bounds)-1
}

// now is the log's clock, or this controller's when nothing was logged lately.
func (q *asking) now() cluster.Instant {
	return max(q.view.Now(), cluster.InstantOf(q.server.cfg.Clock()))
}

// clocksDiffer is more than the clocks of controllers do: a leader whose clock is off
// by more than seconds steps down.
const clocksDiffer = time.Minute

// over reports whether nothing can happen before the last bound any more: the log's
// clock, which never goes back, has passed it. In a log that stands still this
// controller's clock counts, but may be ahead of the one that stamps the next entry.
func (q *asking) over() bool {
	return q.view.Now() >= q.end() || cluster.InstantOf(q.server.cfg.Clock()) >= q.end().Add(clocksDiffer)
}

// rolled is how far the archive goes for rows that are made of it alone. While a
// snapshot is being taken over the state is ahead of it.
func (q *asking) rolled() (archive.Rolled, error) {
	rolled, err := q.server.cfg.Archive.Tallies(nil, nil)
	rolled.Missing = rolled.Missing || rolled.Seq < q.view.FinishedSeq()
	return rolled, err
}

// head says what rows are made of and whether they are all there will be.
func (q *asking) head(rolled archive.Rolled) (*greylagv1.ReportHead, error) {
	h := &greylagv1.ReportHead{AsOf: q.asOf, Cluster: q.view.Policy().Cluster, Illegible: rolled.Illegible}
	if since := historySince(q.view.History()); since > q.bounds[0] {
		h.Since = wire.Timestamp(since)
	}
	last, _, _, err := q.server.cfg.Archive.List(archive.Query{Before: q.end(), Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(last) > 0 {
		h.WatermarkSeq = last[0].Seq
	}
	journal, err := q.journalBefore(q.end())
	if err != nil {
		return nil, err
	}
	h.HeadHash = journal.head
	h.Incomplete = q.missing(rolled, journal)
	must, may := q.open()
	must = cmp.Or(h.Incomplete, must)
	h.Open, h.Ready = cmp.Or(must, may), must == "" && (may == "" || q.now() >= q.end().Add(q.grace))
	return h, nil
}

// historySince is from when on jobs and entries of the credit journal all exist; 0: always.
func historySince(h state.History) cluster.Instant {
	if h.Credits > 0 {
		return h.Restored
	}
	return h.JobsSince
}

// missing is what of the history this controller lacks, so that rows are too few.
func (q *asking) missing(rolled archive.Rolled, journal journalEnd) string {
	switch {
	case rolled.Missing:
		return fmt.Sprintf("controller %s lacks records of finished jobs after number %d and is fetching them from the others", q.asOf.GetController(), rolled.Seq)
	case journal.gap:
		return fmt.Sprintf("controller %s lacks entries of the journal of credits and is fetching them from the others", q.asOf.GetController())
	}
	return ""
}

// open is why there may be more rows still: for certain, and unless nothing comes any
// more. O(active jobs + nodes).
func (q *asking) open() (must, may string) {
	if !q.over() {
		return "the period is not over until " + q.end().Time().Format(time.RFC3339), ""
	}
	silent := make(map[string]bool)
	for n := range q.view.Nodes() {
		if n.Liveness == cluster.Silent {
			silent[n.Name] = true
		}
	}
	for j := range q.view.Jobs(0) {
		switch {
		case !j.State.Holds() || j.Started >= q.end():
		case j.State == cluster.Completing && j.Ended < q.end():
			return "", fmt.Sprintf("job %s ended in the period and its nodes have not all cleaned up", j.Ref())
		case len(silent) > 0:
			for i := range j.Alloc.Nodes {
				if node := j.Alloc.Nodes[i].Node; silent[node] {
					return "", fmt.Sprintf("node %s does not answer, and what became of job %s on it is not known", node, j.Ref())
				}
			}
		}
	}
	return "", ""
}

// sees reports whether the caller may see what concerns a user in an account.
func (q *asking) sees(account, user string) bool {
	return sees(q.caller, q.view, cluster.AssociationKey{Account: account, User: user})
}

// StreamUsage streams what jobs came to in periods: those that have ended by the archive's
// sums, those that have not up to now.
func (s *reportService) StreamUsage(ctx context.Context, p *greylagv1.StreamUsageRequest, stream *connect.ServerStream[greylagv1.StreamUsageResponse]) error {
	q, err := s.ask(ctx, p.GetPeriods())
	if err != nil {
		return err
	}
	rows, rolled, err := q.usage()
	if err != nil {
		return err
	}
	head, err := q.head(rolled)
	if err != nil {
		return err
	}
	message := &greylagv1.StreamUsageResponse{Head: head}
	for _, at := range usageOrder(rows) {
		if !q.sees(at.key.Account, at.key.User) {
			continue
		}
		message.Rows = append(message.Rows, wire.WriteUsageRow(at.period, at.key, rows[at]))
		if len(message.Rows) == reportPage {
			if err := stream.Send(message); err != nil {
				return err
			}
			message = &greylagv1.StreamUsageResponse{}
		}
	}
	return stream.Send(message)
}

// usagePlace is where a row of usage stands.
type usagePlace struct {
	period int
	key    tally.Key
}

func usageOrder(rows map[usagePlace]*tally.Tally) []usagePlace {
	order := make([]usagePlace, 0, len(rows))
	for at := range rows {
		order = append(order, at)
	}
	slices.SortFunc(order, func(a, b usagePlace) int {
		return cmp.Or(cmp.Compare(a.period, b.period), a.key.Compare(b.key))
	})
	return order
}

// begin is ask with the head of an answer that is made of the archive alone.
func (s *reportService) begin(ctx context.Context, p *greylagv1.Periods) (*asking, *greylagv1.ReportHead, error) {
	q, err := s.ask(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	rolled, err := q.rolled()
	if err != nil {
		return nil, nil, err
	}
	head, err := q.head(rolled)
	return q, head, err
}

// StreamEndedJobs streams the jobs that ended in a period.
func (s *reportService) StreamEndedJobs(ctx context.Context, p *greylagv1.StreamEndedJobsRequest, stream *connect.ServerStream[greylagv1.StreamEndedJobsResponse]) error {
	q, head, err := s.begin(ctx, p.GetPeriods())
	if err != nil {
		return err
	}
	message := &greylagv1.StreamEndedJobsResponse{Head: head}
	var at archive.Position
	for {
		var records []archive.Record
		if records, at, err = s.cfg.Archive.Ended(q.bounds[0], q.end(), at, reportPage); err != nil {
			return err
		}
		for _, r := range records {
			j, err := command.DecodeJob(r.Data)
			if err != nil {
				head.Illegible = max(head.Illegible, 1)
				continue
			}
			if q.sees(j.Spec.Account, j.Spec.Owner.User) {
				message.Jobs = append(message.Jobs, wire.WriteEndedJob(j))
			}
		}
		if err := stream.Send(message); err != nil || len(records) < reportPage {
			return err
		}
		message = &greylagv1.StreamEndedJobsResponse{}
	}
}
