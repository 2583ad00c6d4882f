package server

import (
	"context"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/server/joblist"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// private returns a job of which the caller wants something that is not for all
// eyes.
func (s *jobService) private(ctx context.Context, word string) (*cluster.Job, error) {
	c := call.From(ctx)
	ref, err := wire.ReadRef(word)
	if err != nil {
		return nil, err
	}
	v, _, err := s.views.Fresh(ctx, nil)
	if err != nil {
		return nil, err
	}
	ids, err := joblist.Resolve(v, s.cfg.Archive, ref)
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, joblist.NoSuchJob(ref)
	}
	j, err := joblist.Find(v, s.cfg.Archive, ids[0])
	if err != nil {
		return nil, err
	}
	if j == nil || auth.ViewOf(v.Policy(), c.Caller, j.Spec.Owner) == auth.Hidden {
		return nil, joblist.NoSuchJob(ref)
	}
	if err := auth.Allow(c.Caller, c.RPC, auth.OwnershipOf(c.Caller, j.Spec.Owner)); err != nil {
		return nil, call.Refuse(command.Denied, "its owner and the cluster's operators may see its script and its output", "job %s belongs to %s", j.Ref(), j.Spec.Owner.User)
	}
	return j, nil
}

// GetScript returns the batch script of a job as it was submitted.
func (s *jobService) GetScript(ctx context.Context, p *greylagv1.GetScriptRequest) (*greylagv1.GetScriptResponse, error) {
	j, err := s.private(ctx, p.GetJob())
	if err != nil {
		return nil, err
	}
	script, err := s.blob(j.Spec.Script)
	if err != nil {
		return nil, err
	}
	environment, err := s.blob(j.Spec.Environment)
	if err != nil {
		return nil, err
	}
	return &greylagv1.GetScriptResponse{Script: script, Environment: wire.Environment(environment)}, nil
}

// blob is a script or an environment; nil for the zero digest.
func (s *Server) blob(d cluster.Digest) ([]byte, error) {
	if d.IsZero() {
		return nil, nil
	}
	content, ok, err := s.cfg.Archive.Blob(d)
	if err == nil && !ok {
		err = call.Refuse(command.NotFound, "scripts of jobs that ended long ago are deleted; where this job has not, ask again in a minute: this controller may be catching up", "content %s is not on this controller", d)
	}
	return content, err
}
