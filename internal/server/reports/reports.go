// Package reports answers ReportService: the rows of reports, for periods, from the archive and the
// state.
package reports

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/report/tally"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/server/joblist"
	"github.com/greylag/greylag/internal/server/views"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// Archive holds finished jobs with their sums, and the journals.
type Archive interface {
	joblist.Archive
	Tallies(bounds []cluster.Instant, add func(period int, k tally.Key, t *tally.Tally)) (archive.Rolled, error)
	Ended(from, to cluster.Instant, after archive.Position, limit int) ([]archive.Record, archive.Position, error)
	LastRow(j archive.Journal) (uint64, error)
	Rows(j archive.Journal, from uint64, limit int) ([]archive.Row, error)
	RowGaps(j archive.Journal) ([]archive.Gap, error)
}

// Service answers ReportService.
type Service struct {
	Views   *views.Source
	Archive Archive
	Clock   func() time.Time
}

// reportPage is the number of rows or jobs in one message.
const reportPage = 500

// query is one request about periods.
type query struct {
	service *Service
	caller  *call.Caller
	bounds  []cluster.Instant
	grace   time.Duration
	asOf    *greylagv1.AsOf
	view    *state.View
}

func (s *Service) ask(ctx context.Context, p *greylagv1.Periods) (*query, error) {
	bounds, grace, err := wire.ReadBounds(p)
	if err != nil {
		return nil, err
	}
	v, asOf, err := s.Views.Fresh(ctx, p.GetRead())
	if err != nil {
		return nil, err
	}
	return &query{service: s, caller: call.From(ctx), bounds: bounds, grace: grace, asOf: asOf, view: v}, nil
}

func (q *query) end() cluster.Instant { return q.bounds[len(q.bounds)-1] }

// period returns the period of an instant; false for an instant outside of all periods.
func (q *query) period(at cluster.Instant) (int, bool) {
	i, exact := slices.BinarySearch(q.bounds, at)
	if !exact {
		i--
	}
	return i, i >= 0 && i < len(q.bounds)-1
}

// now returns the log's clock, or this controller's clock if that is later.
func (q *query) now() cluster.Instant {
	return max(q.view.Now(), cluster.InstantOf(q.service.Clock()))
}

// clocksDiffer exceeds the difference between the clocks of controllers: a leader whose clock is
// off by more than seconds steps down.
const clocksDiffer = time.Minute

// over reports whether no job or entry can still fall before the last bound: the log's clock, which
// never goes back, has passed it. Without new entries in the log this controller's clock counts,
// which may be ahead of the one that stamps the next entry.
func (q *query) over() bool {
	return q.view.Now() >= q.end() || cluster.InstantOf(q.service.Clock()) >= q.end().Add(clocksDiffer)
}

// rolled returns the progress of the archive, for rows that come from it alone. While a controller
// loads a snapshot, its state is ahead of the archive.
func (q *query) rolled() (archive.Rolled, error) {
	rolled, err := q.service.Archive.Tallies(nil, nil)
	rolled.Missing = rolled.Missing || rolled.Seq < q.view.FinishedSeq()
	return rolled, err
}

// head returns the sources of the rows and whether the rows are complete.
func (q *query) head(rolled archive.Rolled) (*greylagv1.ReportHead, error) {
	h := &greylagv1.ReportHead{AsOf: q.asOf, Cluster: q.view.Policy().Cluster, Unreadable: rolled.Illegible}
	if since := historySince(q.view.History()); since > q.bounds[0] {
		h.Since = wire.Timestamp(since)
	}
	last, _, _, err := q.service.Archive.List(archive.Query{Before: q.end(), Limit: 1})
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

// historySince returns the time since which all jobs and entries of the credit journal exist; 0:
// always.
func historySince(h state.History) cluster.Instant {
	if h.Credits > 0 {
		return h.Restored
	}
	return h.JobsSince
}

// missing names the part of the history that this controller lacks; "" for none.
func (q *query) missing(rolled archive.Rolled, journal journalEnd) string {
	switch {
	case rolled.Missing:
		return fmt.Sprintf("controller %s lacks records of finished jobs after number %d and is fetching them from the others", q.asOf.GetController(), rolled.Seq)
	case journal.gap:
		return fmt.Sprintf("controller %s lacks entries of the credit journal and is fetching them from the others", q.asOf.GetController())
	}
	return ""
}

// open returns why there must or may be more rows later. A reason in may ends when the grace has
// passed. O(active jobs + nodes).
func (q *query) open() (must, may string) {
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
		case !j.State.HasAllocation() || j.Started >= q.end():
		case j.State == cluster.Completing && j.Ended < q.end():
			return "", fmt.Sprintf("job %s ended in the period and its nodes have not all cleaned up", j.Ref())
		case len(silent) > 0:
			for i := range j.Alloc.Nodes {
				if node := j.Alloc.Nodes[i].Node; silent[node] {
					return "", fmt.Sprintf("node %s does not answer, and the outcome of job %s on it is unknown", node, j.Ref())
				}
			}
		}
	}
	return "", ""
}

// sees reports whether the caller may see the data of a user in an account.
func (q *query) sees(account, user string) bool {
	return q.caller.Sees(q.view, cluster.AssociationKey{Account: account, User: user})
}

// StreamUsage streams the usage of jobs in periods: of ended jobs by the archive's sums, of others
// up to now.
func (s *Service) StreamUsage(ctx context.Context, p *greylagv1.StreamUsageRequest, stream *connect.ServerStream[greylagv1.StreamUsageResponse]) error {
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

// usagePlace identifies a row of usage.
type usagePlace struct {
	period int
	key    tally.Key
}

func usageOrder(rows map[usagePlace]*tally.Tally) []usagePlace {
	return slices.SortedFunc(maps.Keys(rows), func(a, b usagePlace) int {
		return cmp.Or(cmp.Compare(a.period, b.period), a.key.Compare(b.key))
	})
}

// begin is ask with the head of an answer that comes from the archive alone.
func (s *Service) begin(ctx context.Context, p *greylagv1.Periods) (*query, *greylagv1.ReportHead, error) {
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
func (s *Service) StreamEndedJobs(ctx context.Context, p *greylagv1.StreamEndedJobsRequest, stream *connect.ServerStream[greylagv1.StreamEndedJobsResponse]) error {
	q, head, err := s.begin(ctx, p.GetPeriods())
	if err != nil {
		return err
	}
	message := &greylagv1.StreamEndedJobsResponse{Head: head}
	var at archive.Position
	for {
		var records []archive.Record
		if records, at, err = s.Archive.Ended(q.bounds[0], q.end(), at, reportPage); err != nil {
			return err
		}
		for _, r := range records {
			j, err := command.DecodeJob(r.Data)
			if err != nil {
				head.Unreadable = max(head.Unreadable, 1)
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
