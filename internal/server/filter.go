package server

import (
	"context"
	"slices"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/submitfilter"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// filtered holds the jobs of a request after the submission filter.
type filtered struct {
	jobs    []*greylagv1.JobSpec
	changes []string // of each changed job, for the audit journal
	notes   []string // for the caller
}

// filter runs the submission filter for each job. Without a filter the jobs do not change. testOnly means
// that the request submits no job.
func (s *Server) filter(ctx context.Context, c *call.Caller, jobs []*greylagv1.JobSpec, testOnly bool) (filtered, error) {
	f := filtered{jobs: jobs}
	if s.cfg.Filter == nil {
		return f, nil
	}
	f.jobs = slices.Clone(jobs)
	user := submitfilter.Caller{User: c.User.User, UID: c.User.UID, GID: c.User.GID, Source: c.Source, TestOnly: testOnly}
	for i, spec := range jobs {
		answer, err := s.cfg.Filter.Apply(ctx, user, spec)
		if err != nil {
			return filtered{}, ofJob(err, i, len(jobs))
		}
		f.jobs[i] = answer.Job
		prefix := ""
		if len(jobs) > 1 {
			prefix = "job " + cluster.JobID(i+1).String() + " of the request: "
		}
		if len(answer.Changes) > 0 {
			text := prefix + strings.Join(answer.Changes, ", ")
			f.changes = append(f.changes, text)
			f.notes = append(f.notes, "the submission filter of this site changed the job: "+text)
		}
		if answer.Message != "" {
			f.notes = append(f.notes, prefix+answer.Message)
		}
	}
	return f, nil
}

// prepare returns the command that submits the jobs of a request, and notes for the caller. The command
// has no jobs if the answer to the request is stored.
func (s *jobService) prepare(ctx context.Context, c *call.Caller, p *greylagv1.SubmitJobsRequest) (cmd *command.SubmitJobs, subs []wire.Submission, notes []string, err error) {
	var request command.RequestID // of the unfiltered jobs; only used with a filter
	if s.cfg.Filter != nil {
		if request, err = c.Identify(p); err != nil {
			return nil, nil, nil, err
		}
	}
	f, err := s.filter(ctx, c, p.GetJobs(), false)
	if err != nil {
		if s.cfg.State.View().Answered(request) {
			return &command.SubmitJobs{Request: request, Actor: c.Actor()}, nil, nil, nil
		}
		return nil, nil, nil, err
	}
	subs = make([]wire.Submission, len(f.jobs))
	for i, spec := range f.jobs {
		if subs[i], err = readSubmission(spec, c.User.Identity); err != nil {
			return nil, nil, nil, ofJob(err, i, len(subs))
		}
	}
	if cmd, err = submission(c, p.GetRequestId(), subs); err != nil {
		return nil, nil, nil, err
	}
	if s.cfg.Filter != nil {
		cmd.Request, cmd.Filtered = request, command.Sanitize(strings.Join(f.changes, "; "))
	}
	return cmd, subs, f.notes, nil
}
