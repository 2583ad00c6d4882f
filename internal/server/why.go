package server

import (
	"context"
	"errors"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/schedule/explain"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/server/joblist"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// ExplainJob explains one job from this controller's own state. One explanation is made at a time,
// since each may cost a pass; others wait for their turn.
func (s *clusterService) ExplainJob(ctx context.Context, p *greylagv1.ExplainJobRequest) (*greylagv1.ExplainJobResponse, error) {
	ref, err := wire.ReadRef(p.GetJob())
	if err != nil {
		return nil, err
	}
	v, asOf, err := s.views.Fresh(ctx, p.GetRead())
	if err != nil {
		return nil, err
	}
	job, err := s.explained(v, ref)
	if err != nil {
		return nil, err
	}
	visibility := joblist.NewVisibility(call.From(ctx), v)
	if job == nil || visibility.See(job) == nil {
		return nil, joblist.NoSuchJob(ref)
	}
	response := &greylagv1.ExplainJobResponse{}
	if job.State == cluster.Pending {
		if response, job, err = s.why(ctx, v, job, visibility); err != nil {
			return nil, err
		}
	}
	if job.Members != nil && job.State == cluster.Running && visibility.See(job) == job { // the limits of an account are private
		if response.Notes, err = s.whyNotMore(ctx, v, job); err != nil {
			return nil, err
		}
	}
	response.Job, response.History, response.Promise = wire.WriteJob(visibility.See(job)), wire.WriteNotes(job.History), wire.WriteShares(job.Promise)
	response.Awaited = wire.WriteAwaited(job, v.Node, v.Policy().NodeTimeout)
	response.RunsAgain = (job.State == cluster.Configuring || job.State == cluster.Running) && job.Spec.Requeue
	response.AsOf = asOf
	return response, nil
}

// why explains a pending job. The job that it returns has the present reason.
func (s *clusterService) why(ctx context.Context, v *state.View, job *cluster.Job, visibility *joblist.Visibility) (*greylagv1.ExplainJobResponse, *cluster.Job, error) {
	expected, err := s.expectations(ctx, v)
	if err != nil {
		return nil, nil, err
	}
	select {
	case s.explaining <- struct{}{}:
		defer func() { <-s.explaining }()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	x, err := explain.Why(v.Snapshot(), job.ID)
	if err != nil && !errors.Is(err, explain.ErrNotPending) {
		return nil, nil, err
	}
	if err == nil {
		now := *job
		now.Reason, now.Detail = x.Reason, x.Detail
		job = &now
	}
	response := wire.WriteWhy(&x, visibility.See)
	response.Licences = licencesOf(v, job)
	response.Expected = wire.Timestamp(explain.ExpectedAt(expected[job.ID], job, cluster.InstantOf(s.cfg.Clock())))
	return response, job, nil
}

// whyNotMore says why a running elastic job gets no more nodes.
func (s *clusterService) whyNotMore(ctx context.Context, v *state.View, job *cluster.Job) ([]string, error) {
	select {
	case s.explaining <- struct{}{}:
		defer func() { <-s.explaining }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if why := explain.Growth(v.Snapshot(), job); why != "" {
		return []string{"gets no more nodes now: " + why}, nil
	}
	return []string{"gets more nodes in the next pass"}, nil
}

// explained returns the job that a reference names: for an array the first pending element, else
// the first one; nil without any.
func (s *clusterService) explained(v *state.View, ref cluster.JobRef) (*cluster.Job, error) {
	ids, err := joblist.Resolve(v, s.cfg.Archive, ref)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	for _, id := range ids {
		if j, ok := v.Job(id); ok && j.State == cluster.Pending {
			return j, nil
		}
	}
	return joblist.Find(v, s.cfg.Archive, ids[0])
}
