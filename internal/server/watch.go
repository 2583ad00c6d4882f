package server

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

// watcher is one Watch: it sends the present state of the chosen jobs, then what
// changes. A watcher that does not keep up is sent the present state again, and
// each job that left the queue meanwhile once more, as it ended.
type watcher struct {
	archive Archive
	q       *selection
	ids     []cluster.JobID // of the selection's refs, ascending
	eye     *visibility
	send    func(*greylagv1.WatchJobsResponse) error
	open    map[cluster.JobID]bool // sent, and not final then
	index   uint64                 // of the view that was presented last
}

// WatchJobs sends each change of the chosen jobs, first the present state of each.
func (s *jobService) WatchJobs(ctx context.Context, p *greylagv1.WatchJobsRequest, stream *connect.ServerStream[greylagv1.WatchJobsResponse]) error {
	c := call.From(ctx)
	changes := s.cfg.Subscribe("") // before the first view: nothing is missed between
	defer changes.Close()
	l, _, err := s.newListing(ctx, &greylagv1.ListJobsRequest{Filter: p.GetFilter()})
	if err != nil {
		return err
	}
	q := l.q
	if q.refs != nil && len(l.ids) == 0 {
		return noSuchJob(q.refs[0])
	}
	if q.refs != nil && q.states == nil { // who names a job wants to see it end
		q.anyState = true
	}
	w := &watcher{archive: s.cfg.Archive, q: q, ids: l.ids, eye: l.eye, send: stream.Send}
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
		v := s.cfg.State.View()
		w.eye = newEye(c, v)
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

// present sends every chosen job as it is now. Of finished jobs only those that are
// named by id: history is List's.
func (w *watcher) present(v *state.View) error {
	before := w.open
	w.index = v.Index()
	w.open = make(map[cluster.JobID]bool, len(before))
	now := *w.q
	now.active, now.finished = true, false
	l := &listing{archive: w.archive, view: v, q: &now, eye: w.eye, ids: w.ids}
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

// left sends those that have ended since they were sent.
func (w *watcher) left(v *state.View, ids map[cluster.JobID]bool) error {
	var jobs []*cluster.Job
	for id := range ids {
		j, err := find(v, w.archive, id)
		if err != nil {
			return err
		}
		if j == nil {
			continue
		}
		if seen := w.eye.see(j); seen != nil {
			jobs = append(jobs, seen)
		}
	}
	return w.tell(v, jobs, true)
}

// changes sends those of the changes that are meant. The view may be newer than
// they are, so it does not move w.index: changes that are in it already and have
// not been taken yet would never be sent.
func (w *watcher) changes(v *state.View, changed []state.Change) error {
	var jobs []*cluster.Job
	for _, ch := range changed {
		if ch.Kind != state.JobChanged || ch.New == nil || ch.New.Version <= w.index || !w.named(ch.Job) {
			continue // among the changes are those that the present state had already
		}
		seen := w.eye.see(ch.New)
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

// tell sends jobs in the order of their ids and notes which of them go on.
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
