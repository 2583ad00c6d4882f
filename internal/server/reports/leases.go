package reports

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// StreamEndedLeases streams the leases that ended in periods. A lease counts when its end was recorded, by the log's clock:
// no lease is added to a period that is over.
func (s *Service) StreamEndedLeases(ctx context.Context, p *greylagv1.StreamEndedLeasesRequest, stream *connect.ServerStream[greylagv1.StreamEndedLeasesResponse]) error {
	q, head, err := s.begin(ctx, p.GetPeriods())
	if err != nil {
		return err
	}
	if err := q.leaseHead(head); err != nil {
		return err
	}
	leases, partitions, err := q.leases()
	if err != nil {
		return err
	}
	message := &greylagv1.StreamEndedLeasesResponse{Head: head, Partitions: partitions, Running: uint64(len(q.view.LeaseWork()))}
	for _, x := range leases {
		message.Leases = append(message.Leases, x)
		if len(message.Leases) == reportPage {
			if err := stream.Send(message); err != nil {
				return err
			}
			message = &greylagv1.StreamEndedLeasesResponse{}
		}
	}
	return stream.Send(message)
}

// leaseHead adds to a head what this controller lacks of the ended leases.
func (q *query) leaseHead(head *greylagv1.ReportHead) error {
	gaps, err := q.service.Archive.RowGaps(archive.LeaseJournal)
	if err != nil {
		return err
	}
	last, err := q.service.Archive.LastRow(archive.LeaseJournal)
	if err != nil {
		return err
	}
	if len(gaps) > 0 || last < q.view.EndedLeases() {
		lacks := fmt.Sprintf("controller %s lacks records of ended leases and is fetching them from the others", q.asOf.GetController())
		head.Incomplete, head.Open, head.Ready = cmp.Or(head.Incomplete, lacks), cmp.Or(head.Open, lacks), false
	}
	if h := q.view.History(); h.Leases > 0 && h.Restored > q.bounds[0] {
		head.Since = wire.Timestamp(h.Restored)
	}
	return nil
}

// leases returns the leases that ended in the periods and that the caller may see, and the partitions that have or had
// leased nodes. O(log n + leases).
func (q *query) leases() (list []*greylagv1.EndedLease, partitions []string, err error) {
	if part, cloud := q.view.Policy().Cloud(); cloud {
		partitions = append(partitions, part.Name)
	}
	seq, err := q.rowBefore(archive.LeaseJournal, q.bounds[0], func(row archive.Row) (cluster.Instant, error) {
		x, err := endedLease(row)
		return x.Lease.Since, err
	})
	for err == nil {
		var rows []archive.Row
		if rows, err = q.service.Archive.Rows(archive.LeaseJournal, seq, journalPage); err != nil {
			break
		}
		for _, row := range rows {
			x, err := endedLease(row)
			if err != nil {
				return nil, nil, err
			}
			i, inside := q.period(x.Lease.Since)
			if !inside {
				return list, partitions, nil
			}
			if seq = row.Seq + 1; !q.sees(x.Lease.Account, "") {
				continue
			}
			if x.Partition != "" && !slices.Contains(partitions, x.Partition) {
				partitions = append(partitions, x.Partition)
			}
			list = append(list, wire.WriteEndedLease(uint32(i), &x))
		}
		if len(rows) < journalPage {
			break
		}
	}
	return list, partitions, err
}

// endedLease decodes a lease of the archive. If it fails, no report is made, since it would be wrong.
func endedLease(row archive.Row) (cluster.EndedLease, error) {
	x, err := command.DecodeEndedLease(row.Data)
	if err != nil {
		err = connect.NewError(connect.CodeDataLoss, fmt.Errorf("ended lease %d cannot be read here: %w", row.Seq, err))
	}
	return x, err
}
