package joblist

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	defaultPage, maxPage = 1000, 10_000
	// streamPage is the size of a message of a stream. The overhead of a frame is small, and
	// reading, sending and writing overlap.
	streamPage = 2000
)

// cursor is where the next page begins: first the active jobs by ID, then the finished ones, newest
// first.
type cursor struct {
	finished bool
	after    cluster.JobID
	position archive.Position
}

// String returns the page token.
func (c cursor) String() string {
	if c.finished {
		return fmt.Sprintf("f%d.%d", int64(c.position.Ended), c.position.Seq)
	}
	return "a" + c.after.String()
}

func readCursor(token string) (cursor, error) {
	var c cursor
	var err error
	if token == "" {
		return c, nil
	}
	if rest, ok := strings.CutPrefix(token, "f"); ok {
		ended, seq, _ := strings.Cut(rest, ".")
		var i int64
		i, err = strconv.ParseInt(ended, 10, 64)
		c.finished, c.position.Ended = true, cluster.Instant(i)
		if err == nil {
			c.position.Seq, err = strconv.ParseUint(seq, 10, 64)
		}
	} else {
		var id uint64
		id, err = strconv.ParseUint(strings.TrimPrefix(token, "a"), 10, 64)
		c.after = cluster.JobID(id)
	}
	if err != nil {
		return c, call.Refuse(command.InvalidArgument, "use next_page_token unchanged", "%.40q is not a page token", token)
	}
	return c, nil
}

// listing answers one call that lists jobs.
type listing struct {
	archive    Archive
	view       *state.View
	q          *selection
	visibility *Visibility
	at         cursor
	ids        []cluster.JobID // of the selection's refs, ascending
}

// newListing prepares the answer to p.
func (s *Service) newListing(ctx context.Context, p *greylagv1.ListJobsRequest) (*listing, *greylagv1.AsOf, error) {
	c := call.From(ctx)
	q, err := readFilter(p.GetFilter(), c)
	if err != nil {
		return nil, nil, err
	}
	at, err := readCursor(p.GetPageToken())
	if err != nil {
		return nil, nil, err
	}
	v, asOf, err := s.Views.Fresh(ctx, p.GetRead())
	if err != nil {
		return nil, nil, err
	}
	l := &listing{archive: s.Archive, view: v, q: q, visibility: NewVisibility(c, v), at: at}
	l.ids, err = q.resolve(v, s.Archive)
	return l, asOf, err
}

// page returns up to size jobs, and whether there may be more.
func (l *listing) page(size int) ([]*cluster.Job, bool, error) {
	if l.q.refs != nil {
		return l.named(size)
	}
	jobs := make([]*cluster.Job, 0, min(size, streamPage))
	if l.q.active && !l.at.finished {
		for j := range l.activeJobs() {
			if len(jobs) == size {
				return jobs, true, nil
			}
			l.at.after = j.ID
			if seen := l.visibility.See(j); seen != nil && l.q.matches(seen) {
				jobs = append(jobs, seen)
			}
		}
	}
	if !l.q.finished {
		return jobs, false, nil
	}
	l.at.finished = true
	return l.ended(jobs, size)
}

func (l *listing) activeJobs() iter.Seq[*cluster.Job] {
	if user := l.q.only(); user != "" {
		return l.view.UserJobs(user, l.at.after)
	}
	return l.view.Jobs(l.at.after)
}

// named returns a page of the jobs that the selection names by ID.
func (l *listing) named(size int) ([]*cluster.Job, bool, error) {
	var jobs []*cluster.Job
	from, _ := slices.BinarySearch(l.ids, l.at.after+1)
	for _, id := range l.ids[from:] {
		if len(jobs) == size {
			return jobs, true, nil
		}
		l.at.after = id
		j, err := Find(l.view, l.archive, id)
		if err != nil {
			return nil, false, err
		}
		if j == nil {
			continue
		}
		if seen := l.visibility.See(j); seen != nil && l.q.matches(seen) {
			jobs = append(jobs, seen)
		}
	}
	return jobs, false, nil
}

// ended fills a page with finished jobs.
func (l *listing) ended(jobs []*cluster.Job, size int) ([]*cluster.Job, bool, error) {
	for len(jobs) < size {
		// No more than the page still holds, so that the position is right.
		records, next, more, err := l.archive.List(archive.Query{User: l.q.only(), After: l.at.position, Limit: size - len(jobs)})
		if err != nil {
			return nil, false, err
		}
		for _, r := range records {
			j, err := command.DecodeJob(r.Data)
			if err != nil {
				return nil, false, fmt.Errorf("archived job %d: %w", r.ID, err)
			}
			if seen := l.visibility.See(j); seen != nil && l.q.matches(seen) {
				jobs = append(jobs, seen)
			}
		}
		l.at.position = next
		if !more {
			return jobs, false, nil
		}
	}
	return jobs, true, nil
}

func write(jobs []*cluster.Job) []*greylagv1.Job {
	list := make([]*greylagv1.Job, len(jobs))
	for i, j := range jobs {
		list[i] = wire.WriteJob(j)
	}
	return list
}

// answer writes a page. It encodes brief jobs itself for a reader of the binary form: the generated
// code passes them on unchanged as unknown fields.
func (l *listing) answer(ctx context.Context, jobs []*cluster.Job, brief, fold bool) *greylagv1.ListJobsResponse {
	p := &greylagv1.ListJobsResponse{}
	switch {
	case !brief:
		p.Jobs = write(jobs)
	case binaryForm(ctx):
		p.ProtoReflect().SetUnknown(wire.AppendBrief(make([]byte, 0, 128*len(jobs)), jobs, fold))
	default:
		p.Jobs = wire.WriteBrief(jobs, fold)
	}
	return p
}

// binaryForm reports whether the caller reads protobuf, not JSON.
func binaryForm(ctx context.Context) bool {
	info, ok := connect.CallInfoForHandlerContext(ctx)
	if !ok {
		return false
	}
	kind := info.RequestHeader().Get("Content-Type")
	return kind == "application/grpc" || strings.HasSuffix(kind, "proto")
}

// ListJobs returns one page of jobs.
func (s *Service) ListJobs(ctx context.Context, p *greylagv1.ListJobsRequest) (*greylagv1.ListJobsResponse, error) {
	size, err := pageSize(p, defaultPage)
	if err != nil {
		return nil, err
	}
	l, asOf, err := s.newListing(ctx, p)
	if err != nil {
		return nil, err
	}
	jobs, more, err := l.page(size)
	if err != nil {
		return nil, err
	}
	response := l.answer(ctx, jobs, p.GetBrief(), p.GetFold())
	response.AsOf = asOf
	if more {
		response.NextPageToken = l.at.String()
	}
	return response, nil
}

func pageSize(p *greylagv1.ListJobsRequest, usual int) (int, error) {
	size := int(p.GetPageSize())
	if size < 0 || size > maxPage {
		return 0, call.Refuse(command.InvalidArgument, "", "page size %d: want 0 to %d", size, maxPage)
	}
	if size == 0 {
		size = usual
	}
	return size, nil
}

// StreamJobs returns all pages, one after the other. It always sends the first message.
func (s *Service) StreamJobs(ctx context.Context, p *greylagv1.ListJobsRequest, stream *connect.ServerStream[greylagv1.ListJobsResponse]) error {
	size, err := pageSize(p, streamPage)
	if err != nil {
		return err
	}
	l, asOf, err := s.newListing(ctx, p)
	if err != nil {
		return err
	}
	for more := true; more; {
		var jobs []*cluster.Job
		if jobs, more, err = l.page(size); err != nil {
			return err
		}
		response := l.answer(ctx, jobs, p.GetBrief(), p.GetFold())
		response.AsOf = asOf
		if err := stream.Send(response); err != nil {
			return err
		}
		asOf = nil
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// GetJob returns one job, or all elements of an array.
func (s *Service) GetJob(ctx context.Context, p *greylagv1.GetJobRequest) (*greylagv1.GetJobResponse, error) {
	ref, err := wire.ReadRef(p.GetJob())
	if err != nil {
		return nil, err
	}
	l, asOf, err := s.newListing(ctx, &greylagv1.ListJobsRequest{
		Read: p.GetRead(), Filter: &greylagv1.Filter{Jobs: []string{ref.String()}, AllStates: true},
	})
	if err != nil {
		return nil, err
	}
	jobs, _, err := l.page(maxArray)
	if err != nil {
		return nil, err
	}
	if len(jobs) == 0 {
		return nil, NoSuchJob(ref)
	}
	answer := &greylagv1.GetJobResponse{Jobs: write(jobs), AsOf: asOf}
	for i, j := range jobs {
		if l.visibility.full(j) {
			setAside(l.view, j, answer.Jobs[i])
		}
	}
	return answer, nil
}

// NoSuchJob returns the refusal for a job that does not exist.
func NoSuchJob(ref cluster.JobRef) error {
	return call.Refuse(command.NotFound, "gqueue --states=all lists yours", "no such job: %s", ref)
}

// setAside adds the amount that is set aside for a job now, and until when it lasts.
func setAside(v *state.View, j *cluster.Job, p *greylagv1.Job) {
	attempt := j.Attempt
	if j.State == cluster.Pending {
		attempt++
	}
	l := v.Credits()
	n, found := l.Lien(accounting.LienID{Job: j.ID, Attempt: attempt})
	if p == nil || !found || n.State != accounting.Open {
		return
	}
	p.Lien, p.PaidIn = int64(n.Holds()), v.PaidIn(j)
	limit := cluster.Never
	if at := j.Limit(); at > 0 { // it is charged no more after its limit
		limit = at
	}
	if until := l.FundedUntil(&n, limit); until != cluster.Never {
		p.FundedUntil = wire.Timestamp(until)
	}
}
