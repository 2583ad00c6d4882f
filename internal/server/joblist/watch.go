package joblist

import (
	"cmp"
	"context"
	"slices"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// watcher answers one call of WatchJobs: it sends the present state of the chosen jobs, then
// changes. A watcher that falls behind sends the present state again, and once more each job that
// has ended meanwhile.
type watcher struct {
	archive    Archive
	q          *selection
	ids        []cluster.JobID // of the selection's refs, ascending
	visibility *Visibility
	send       func(*greylagv1.WatchJobsResponse) error
	open       map[cluster.JobID]bool // sent, and not final then
	index      uint64                 // of the view that was sent last
}

// WatchJobs sends the present state of the selected jobs, then each change of them.
func (s *Service) WatchJobs(ctx context.Context, p *greylagv1.WatchJobsRequest, stream *connect.ServerStream[greylagv1.WatchJobsResponse]) error {
	c := call.From(ctx)
	changes := s.Subscribe() // before the first view: no change is lost in between
	defer changes.Close()
	l, _, err := s.newListing(ctx, &greylagv1.ListJobsRequest{Filter: p.GetFilter()})
	if err != nil {
		return err
	}
	q := l.q
	if q.refs != nil && len(l.ids) == 0 {
		return NoSuchJob(q.refs[0])
	}
	if q.refs != nil && q.states == nil { // a caller that names a job waits for its end
		q.anyState = true
	}
	w := &watcher{archive: s.Archive, q: q, ids: l.ids, visibility: l.visibility, send: stream.Send}
	if err := w.present(l.view); err != nil {
		return err
	}
	for !p.GetUntilEnded() || len(w.open) > 0 {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changes.C():
		}
		changed, resync := changes.Take()
		v := s.Views.View()
		w.visibility = NewVisibility(c, v)
		if resync {
			err = w.present(v)
		} else {
			err = w.changes(v, changed)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// present sends every chosen job as it is now. It sends only finished jobs that the filter names by
// ID.
func (w *watcher) present(v *state.View) error {
	before := w.open
	w.index = v.Index()
	w.open = make(map[cluster.JobID]bool, len(before))
	now := *w.q
	now.active, now.finished = true, false
	l := &listing{archive: w.archive, view: v, q: &now, visibility: w.visibility, ids: w.ids}
	for more := true; more; {
		var jobs []*cluster.Job
		var err error
		if jobs, more, err = l.page(streamPage); err != nil {
			return err
		}
		for _, j := range jobs {
			delete(before, j.ID)
		}
		if err := w.tell(v, jobs, !more && len(before) == 0); err != nil {
			return err
		}
	}
	if len(before) == 0 {
		return nil
	}
	return w.left(v, before)
}

// left sends the jobs that have ended since they were sent.
func (w *watcher) left(v *state.View, ids map[cluster.JobID]bool) error {
	var jobs []*cluster.Job
	for id := range ids {
		j, err := Find(v, w.archive, id)
		if err != nil {
			return err
		}
		if j == nil {
			continue
		}
		if seen := w.visibility.See(j); seen != nil {
			jobs = append(jobs, seen)
		}
	}
	return w.tell(v, jobs, true)
}

// changes sends the chosen jobs among the changes. The view may be newer than the changes, so
// w.index does not move: changes that the view already holds, and that Take has not returned yet,
// would never be sent.
func (w *watcher) changes(v *state.View, changed []state.Change) error {
	var jobs []*cluster.Job
	for _, ch := range changed {
		if ch.Kind != state.JobChanged || ch.New == nil || ch.New.Version <= w.index || !w.named(ch.Job) {
			continue // the present state already held some of the changes
		}
		seen := w.visibility.See(ch.New)
		if seen != nil && w.q.wanted(seen) && (w.q.inState(seen) || w.open[seen.ID]) {
			jobs = append(jobs, seen)
		}
	}
	for len(jobs) > streamPage {
		if err := w.tell(v, jobs[:streamPage], false); err != nil {
			return err
		}
		jobs = jobs[streamPage:]
	}
	if len(jobs) == 0 {
		return nil
	}
	return w.tell(v, jobs, true)
}

func (w *watcher) named(id cluster.JobID) bool {
	if w.q.refs == nil {
		return true
	}
	_, found := slices.BinarySearch(w.ids, id)
	return found
}

// tell sends jobs in the order of their IDs and notes which of them have not ended.
func (w *watcher) tell(v *state.View, jobs []*cluster.Job, caughtUp bool) error {
	slices.SortFunc(jobs, func(a, b *cluster.Job) int { return cmp.Compare(a.ID, b.ID) })
	for _, j := range jobs {
		if j.State.Final() {
			delete(w.open, j.ID)
		} else {
			w.open[j.ID] = true
		}
	}
	return w.send(&greylagv1.WatchJobsResponse{Jobs: write(jobs), Index: v.Index(), CaughtUp: caughtUp})
}
