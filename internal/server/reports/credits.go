package reports

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/report/tally"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/server/joblist"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// journalPage is the number of entries of the journal that are read at a time.
const journalPage = 1000

// journalEnd is the end of the journal before an instant.
type journalEnd struct {
	seq  uint64 // of the first entry at the instant or after it
	head []byte // hash of the entry before; nil for none
	gap  bool   // entries are missing here
}

// journalBefore returns the end of the journal before an instant: the times of entries ascend with
// their numbers. O(log n).
func (q *query) journalBefore(at cluster.Instant) (journalEnd, error) {
	a := q.service.Archive
	gaps, err := a.RowGaps(archive.CreditJournal)
	if err != nil {
		return journalEnd{}, err
	}
	last, err := a.LastRow(archive.CreditJournal)
	if err != nil {
		return journalEnd{}, err
	}
	low, err := q.rowBefore(archive.CreditJournal, at, func(row archive.Row) (cluster.Instant, error) {
		e, err := entryOf(row)
		return e.At, err
	})
	if err != nil {
		return journalEnd{}, err
	}
	booked, _ := q.view.Credits().Head()
	out := journalEnd{seq: low, gap: len(gaps) > 0 || last < booked}
	rows, err := a.Rows(archive.CreditJournal, low-1, 1)
	if err != nil || low == 1 || len(rows) == 0 || rows[0].Seq != low-1 {
		return out, err
	}
	e, err := entryOf(rows[0])
	out.head = e.Hash[:]
	return out, err
}

// rowBefore returns the number of the first row of a journal at an instant or after it. timeOf returns the time of a row;
// times ascend with numbers. O(log n).
func (q *query) rowBefore(j archive.Journal, at cluster.Instant, timeOf func(archive.Row) (cluster.Instant, error)) (uint64, error) {
	last, err := q.service.Archive.LastRow(j)
	if err != nil {
		return 0, err
	}
	low, high := uint64(1), last+1
	for low < high {
		middle := low + (high-low)/2
		rows, err := q.service.Archive.Rows(j, middle, 1)
		if err != nil {
			return 0, err
		}
		if len(rows) == 0 {
			high = middle
			continue
		}
		switch then, err := timeOf(rows[0]); {
		case err != nil:
			return 0, err
		case then < at:
			low = rows[0].Seq + 1
		default:
			high = middle
		}
	}
	return low, nil
}

// entryOf decodes an entry of the journal. If it fails, no sums are returned, since they would be
// wrong.
func entryOf(row archive.Row) (accounting.Entry, error) {
	e, err := accounting.ReadRow(row.Data)
	if err != nil {
		err = connect.NewError(connect.CodeDataLoss, fmt.Errorf("entry %d of the credit journal cannot be read here: %w", row.Seq, err))
	}
	return e, err
}

// creditPlace identifies a row of credits.
type creditPlace struct {
	period  int
	node    string
	kind    accounting.EntryKind
	class   string
	gpuType string
	bucket  accounting.BucketID
	late    bool
}

func (a creditPlace) compare(b creditPlace) int {
	late := func(p creditPlace) int {
		if p.late {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(a.period, b.period), cmp.Compare(a.node, b.node), cmp.Compare(a.kind, b.kind), cmp.Compare(a.class, b.class),
		cmp.Compare(a.gpuType, b.gpuType), cmp.Compare(a.bucket, b.bucket), cmp.Compare(late(a), late(b)),
	)
}

type creditSum struct{ amount, entries int64 }

// StreamCredits streams the sums of entries in the journal of credits in periods. An entry counts
// when it was booked.
func (s *Service) StreamCredits(ctx context.Context, p *greylagv1.StreamCreditsRequest, stream *connect.ServerStream[greylagv1.StreamCreditsResponse]) error {
	q, head, err := s.begin(ctx, p.GetPeriods())
	if err != nil {
		return err
	}
	sums, err := q.credits()
	if err != nil {
		return err
	}
	message := &greylagv1.StreamCreditsResponse{Head: head}
	for _, at := range slices.SortedFunc(maps.Keys(sums), creditPlace.compare) {
		if !q.seesNode(at.node) {
			continue
		}
		message.Rows = append(message.Rows, &greylagv1.CreditRow{
			Period: uint32(at.period), Payer: at.node, Kind: greylagv1.EntryKind(at.kind), Class: wire.Enum[greylagv1.BucketClass](at.class), GpuType: at.gpuType,
			Bucket: uint64(at.bucket), Amount: sums[at].amount, Entries: sums[at].entries, Late: at.late,
		})
		if len(message.Rows) == reportPage {
			if err := stream.Send(message); err != nil {
				return err
			}
			message = &greylagv1.StreamCreditsResponse{}
		}
	}
	return stream.Send(message)
}

// seesNode reports whether the caller may see the data of a payer: an account, or account/user.
func (q *query) seesNode(node string) bool {
	account, user, _ := strings.Cut(node, "/")
	return q.sees(account, user)
}

// credits sums up the entries of the periods. O(entries).
func (q *query) credits() (map[creditPlace]creditSum, error) {
	start, err := q.journalBefore(q.bounds[0])
	if err != nil {
		return nil, err
	}
	sums := make(map[creditPlace]creditSum)
	types := make(map[accounting.LienID]string)
	for seq := start.seq; ; {
		rows, err := q.service.Archive.Rows(archive.CreditJournal, seq, journalPage)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			e, err := entryOf(row)
			if err != nil {
				return nil, err
			}
			i, inside := q.period(e.At)
			if !inside {
				return sums, nil
			}
			at, parts, err := q.placeOf(&e, types)
			if err != nil {
				return nil, err
			}
			at.period = i
			for _, part := range parts {
				at.gpuType = part.GPUType
				sum := sums[at]
				sums[at] = creditSum{sum.amount + int64(part.Amount), sum.entries + 1}
			}
			seq = row.Seq + 1
		}
		if len(rows) < journalPage {
			return sums, nil
		}
	}
}

// placeOf returns the row of an entry, and its amount for each GPU type. An entry without a type
// counts for the type with the most GPUs in its job.
func (q *query) placeOf(e *accounting.Entry, types map[accounting.LienID]string) (creditPlace, []accounting.TypeAmount, error) {
	whole := []accounting.TypeAmount{{Amount: e.Amount}}
	at := creditPlace{node: string(e.Node), kind: e.Kind, late: e.Late}
	bucket := cmp.Or(e.Debit.Bucket, e.Credit.Bucket)
	if b, known := q.view.Credits().Bucket(bucket); known {
		at.class = wire.ClassWord(b.Class)
	}
	switch e.Kind {
	case accounting.Granted, accounting.Expired, accounting.Taken:
		at.bucket = bucket
	case accounting.Captured, accounting.Overshoot, accounting.Refunded:
		if parts := e.ByType(); len(parts) > 0 {
			return at, parts, nil
		}
		if _, known := types[e.Lien]; !known && e.Lien.Job != 0 {
			j, err := joblist.Find(q.view, q.service.Archive, e.Lien.Job)
			if err != nil {
				return at, nil, err
			}
			if len(types) > 1<<16 {
				clear(types)
			}
			if types[e.Lien] = ""; j != nil {
				types[e.Lien] = tally.GPUType(j, e.Lien.Attempt)
			}
		}
		whole[0].GPUType = types[e.Lien]
	}
	return at, whole, nil
}

// GetStanding returns the present budgets, expiries and debts.
func (s *Service) GetStanding(ctx context.Context, p *greylagv1.GetStandingRequest) (*greylagv1.GetStandingResponse, error) {
	v, asOf, err := s.Views.Fresh(ctx, p.GetRead())
	if err != nil {
		return nil, err
	}
	q := &query{service: s, caller: call.From(ctx), view: v}
	now, ledger := q.now(), v.Credits()
	out := &greylagv1.GetStandingResponse{AsOf: asOf}
	for id, n := range ledger.Payers() {
		if !q.seesNode(string(id)) {
			continue
		}
		if n.Budget.Limit > 0 {
			out.Budgets = append(out.Budgets, &greylagv1.BudgetStanding{
				Payer: string(id), Limit: int64(n.Budget.Limit), Used: int64(n.Used(now)), Window: wire.Enum[greylagv1.BudgetWindow](wire.WindowWord(n.Budget.Window)),
			})
		}
		if n.Owes > 0 {
			out.Debts = append(out.Debts, &greylagv1.Debt{Payer: string(id), Amount: int64(n.Owes)})
		}
	}
	if q.caller.Actor().Has(command.RoleOperator) {
		for _, x := range v.Spend(v.Now()) {
			if x.Limited && x.Limit > 0 {
				out.Rentals = append(out.Rentals, &greylagv1.RentalBudgetStanding{
					Account: x.Account, Currency: v.Policy().Burst.Currency, Limit: x.Limit, Spent: x.Spent, Committed: x.Committed,
				})
			}
		}
	}
	for b := range ledger.Buckets() {
		if b.Avail > 0 && b.Expires > now && !b.Voided && len(b.Owner) > 0 && q.seesNode(string(b.Owner[0])) {
			out.Buckets = append(out.Buckets, &greylagv1.ExpiringBucket{
				Bucket: uint64(b.ID), Owner: string(b.Owner[0]), Class: wire.Enum[greylagv1.BucketClass](wire.ClassWord(b.Class)), Available: int64(b.Avail), Expires: wire.Timestamp(b.Expires),
			})
		}
	}
	return out, nil
}
