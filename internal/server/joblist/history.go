package joblist

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	// pastPage is the number of records read at a time.
	pastPage = 1000
	// pastWeight is the size of a message: each job counts one, and each of its tasks one, which
	// keeps messages of jobs on many nodes small.
	pastWeight = 2000
)

// pastJobs answers one call of StreamHistory.
type pastJobs struct {
	archive      Archive
	view         *state.View
	q            *selection
	visibility   *Visibility
	finished     uint64 // number of ended jobs in the view
	since, until cluster.Instant
	atTheTime    bool
	notes        bool // with the scheduling notes
	send         func(*greylagv1.StreamHistoryResponse) error
	message      *greylagv1.StreamHistoryResponse // not sent yet
	weight       int
}

// StreamHistory sends the chosen jobs. It reads on only when the caller has received what was sent,
// and ends when the caller is gone.
func (s *Service) StreamHistory(ctx context.Context, p *greylagv1.StreamHistoryRequest, stream *connect.ServerStream[greylagv1.StreamHistoryResponse]) error {
	h, err := s.newPastJobs(ctx, p)
	if err != nil {
		return err
	}
	h.send = func(m *greylagv1.StreamHistoryResponse) error {
		if err := stream.Send(m); err != nil {
			return err
		}
		return ctx.Err()
	}
	if err := h.flush(); err != nil { // the index and time of the answer, at once
		return err
	}
	if h.q.refs != nil {
		err = h.named()
	} else {
		err = h.all(ctx)
	}
	if err != nil || h.weight == 0 {
		return err
	}
	return h.flush()
}

func (s *Service) newPastJobs(ctx context.Context, p *greylagv1.StreamHistoryRequest) (*pastJobs, error) {
	c := call.From(ctx)
	q, err := readFilter(p.GetFilter(), c)
	if err != nil {
		return nil, err
	}
	q.anyState = q.anyState || q.states == nil
	h := &pastJobs{archive: s.Archive, q: q, atTheTime: p.GetStatesInInterval(), notes: p.GetNotes()}
	if h.since, h.until, err = wire.ReadInterval(p); err != nil {
		return nil, err
	}
	v, asOf, err := s.Views.Fresh(ctx, p.GetRead())
	if err != nil {
		return nil, err
	}
	h.view, h.visibility = v, NewVisibility(c, v)
	if q.refs == nil && auth.ViewOf(v.Policy(), c.Caller, cluster.Identity{}) == auth.Hidden { // their records are not read
		if q.users != nil && !q.users[c.User.User] {
			q.states, q.anyState = nil, false // no job
		}
		q.users = set([]string{c.User.User})
	}
	h.finished = v.FinishedSeq()
	h.message = &greylagv1.StreamHistoryResponse{AsOf: asOf, Finished: h.finished}
	return h, nil
}

// flush sends the pending message.
func (h *pastJobs) flush() error {
	m := h.message
	h.message, h.weight = &greylagv1.StreamHistoryResponse{}, 0
	return h.send(m)
}

// add queues a job, or sends it with others, if the filter chooses it and the caller may see it.
func (h *pastJobs) add(j *cluster.Job) error {
	seen := h.visibility.See(j)
	if seen == nil || !h.q.wanted(seen) || !h.inTime(seen) {
		return nil
	}
	past := wire.WritePast(seen, seen == j) // else it is a summary
	if h.notes && seen == j {
		past.Notes = wire.WriteNotes(j.History)
	}
	h.message.Jobs = append(h.message.Jobs, past)
	if h.weight += 1 + seen.Tasks.Len(); seen.Alloc != nil {
		h.weight += len(seen.Alloc.Nodes)
	}
	if h.weight < pastWeight {
		return nil
	}
	return h.flush()
}

// inTime reports whether a job was in the interval in one of the chosen states.
func (h *pastJobs) inTime(j *cluster.Job) bool {
	if h.q.anyState {
		return h.overlaps(j.Submitted, j.Ended)
	}
	if h.atTheTime && h.q.states[cluster.Pending] && h.overlaps(j.Submitted, cmp.Or(j.Started, j.Ended)) {
		return true
	}
	if h.atTheTime && h.q.states[cluster.Running] && j.Started != 0 && h.overlaps(j.Started, j.Ended) {
		return true
	}
	if !h.q.states[j.State] {
		return false
	}
	if j.State.Final() {
		return j.Ended >= h.since && (h.until == 0 || j.Ended < h.until)
	}
	return h.overlaps(j.Submitted, 0)
}

// overlaps reports whether the time from from until to overlaps the interval; to is 0 for a present
// state.
func (h *pastJobs) overlaps(from, to cluster.Instant) bool {
	return (h.until == 0 || from < h.until) && (to == 0 || to >= h.since)
}

// named answers about jobs that the filter names by ID.
func (h *pastJobs) named() error {
	ids, err := h.q.resolve(h.view, h.archive)
	if err != nil {
		return err
	}
	for _, id := range ids {
		j, err := Find(h.view, h.archive, id)
		if err == nil && j != nil {
			err = h.add(j)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// all answers about all jobs as of the view, each once: from the archive, from the jobs that it
// does not have yet, and from the state.
func (h *pastJobs) all(ctx context.Context) error {
	archived, err := h.archive.Through()
	if err != nil {
		return err
	}
	question, asked := h.question(min(archived, h.finished))
	for more := asked; more; {
		var records []archive.Record
		if records, question.After, more, err = h.archive.Answer(question); err != nil {
			return err
		}
		for i := range records {
			j, err := command.DecodeJob(records[i].Data)
			if err != nil {
				return fmt.Errorf("archived job %d: %w", records[i].ID, err)
			}
			if err := h.add(j); err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return h.rest(archived)
}

// rest adds the jobs that ended after those in the archive, and those that have not ended.
func (h *pastJobs) rest(archived uint64) error {
	for f := range h.view.Tail(archived) {
		if err := h.add(f.Job); err != nil {
			return err
		}
	}
	jobs := h.view.Jobs(0)
	if user := h.q.only(); user != "" {
		jobs = h.view.UserJobs(user, 0)
	}
	for j := range jobs {
		if err := h.add(j); err != nil {
			return err
		}
	}
	return nil
}

// question returns a question to the archive whose answer holds all chosen jobs. asked is false if
// the archive cannot have any.
func (h *pastJobs) question(through uint64) (q archive.Question, asked bool) {
	q = archive.Question{
		Users: slices.Sorted(maps.Keys(h.q.users)), Accounts: slices.Sorted(maps.Keys(h.q.accounts)), Since: h.since, Until: h.until,
		Through: through, Limit: pastPage,
	}
	if through == 0 || h.q.anyState || h.atTheTime && (h.q.states[cluster.Pending] || h.q.states[cluster.Running]) {
		return q, through > 0
	}
	for s := range h.q.states {
		if s.Final() {
			q.States = append(q.States, s)
		}
	}
	q.EndedBy = h.until
	slices.Sort(q.States)
	return q, len(q.States) > 0
}
