package server

import (
	"context"
	"slices"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/server/joblist"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// maxResubmit is the number of ended jobs that one requeue resubmits.
const maxResubmit = 100

// resubmitEnded resubmits the jobs of a requeue that have ended, with their script, environment and
// options, and replaces their outcomes with the new jobs'. Dependencies are left out: they were
// satisfied when the job ran. Only the owner may resubmit a job, since it runs as the user who
// submits it. Elements of an array are resubmitted as single jobs if the request names them.
func (s *jobService) resubmitEnded(ctx context.Context, p *greylagv1.UpdateJobsRequest, outcomes []*greylagv1.Outcome, held bool) error {
	n := 0
	for _, o := range outcomes {
		named := p.GetFilter().GetJobs()
		if o.Error == "" || !slices.Contains(named, o.Ref) && !slices.Contains(named, cluster.JobID(o.Id).String()) {
			continue
		}
		j, err := s.ended(ctx, o)
		if err != nil {
			return err
		}
		if j == nil {
			continue
		}
		if n++; n > maxResubmit {
			o.Error += "; at most " + cluster.JobID(maxResubmit).String() + " ended jobs can be resubmitted at a time"
			continue
		}
		id, notes, err := s.resubmit(ctx, p.GetRequestId(), j, held)
		if err != nil {
			return err
		}
		o.Error, o.Code, o.Id, o.State = "", 0, uint64(id), greylagv1.JobState(cluster.Pending)
		o.Note = strings.Join(append([]string{"it had already ended; resubmitted as job " + id.String()}, notes...), "; ")
	}
	return nil
}

// ended returns the caller's own job that an outcome is about if it has ended; nil for others.
func (s *jobService) ended(ctx context.Context, o *greylagv1.Outcome) (*cluster.Job, error) {
	ref, err := wire.ReadRef(o.Ref)
	if err != nil {
		return nil, err
	}
	v := s.cfg.State.View()
	ids, err := joblist.Resolve(v, s.cfg.Archive, ref)
	if err != nil || len(ids) != 1 {
		return nil, err
	}
	j, err := joblist.Find(v, s.cfg.Archive, ids[0])
	if err != nil || j == nil || !j.State.Final() || auth.OwnershipOf(call.From(ctx).Caller, j.Spec.Owner) != auth.Own {
		return nil, err
	}
	return j, nil
}

// resubmit submits an ended job again; a repeated request does so only once. notes are those of the
// submission filter. held holds the new job.
func (s *jobService) resubmit(ctx context.Context, request string, j *cluster.Job, held bool) (id cluster.JobID, notes []string, err error) {
	c := call.From(ctx)
	spec := *j.Spec
	spec.Owner = c.User.Identity
	spec.ArraySize, spec.ArrayLimit, spec.Depends = 0, 0, nil
	sub := wire.Submission{Submission: command.Submission{Spec: spec}}
	if sub.Script, err = s.blob(spec.Script); err != nil {
		return 0, nil, err
	}
	if sub.Environment, err = s.blob(spec.Environment); err != nil {
		return 0, nil, err
	}
	asked, err := c.RequestID(request, "resubmit "+j.ID.String(), nil)
	if err != nil {
		return 0, nil, err
	}
	var changes string
	if s.cfg.Filter != nil && !s.cfg.State.View().Answered(asked) {
		f, err := s.filter(ctx, c, []*greylagv1.JobSpec{wire.WriteSubmission(&sub)}, false)
		if err != nil {
			return 0, nil, err
		}
		if sub, err = readSubmission(f.jobs[0], c.User.Identity); err != nil {
			return 0, nil, err
		}
		changes, notes = command.Sanitize(strings.Join(f.changes, "; ")), f.notes
	}
	subs := []wire.Submission{sub}
	cmd, err := submission(c, "", subs)
	if err != nil {
		return 0, nil, err
	}
	cmd.Request, cmd.Filtered = asked, changes
	for i := range cmd.Jobs {
		cmd.Jobs[i].Held = held
	}
	answer, err := s.submit(ctx, cmd, subs)
	if err != nil {
		return 0, nil, err
	}
	return answer.First[0], notes, nil
}
