package server

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/server/joblist"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// private returns a job for a request about what only some users may see.
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

// blob returns a script or an environment; nil for the zero digest.
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

// StreamLogs returns a job's output from the node that writes it, and follows it.
func (s *jobService) StreamLogs(ctx context.Context, p *greylagv1.StreamLogsRequest, stream *connect.ServerStream[greylagv1.StreamLogsResponse]) error {
	j, err := s.private(ctx, p.GetJob())
	if err != nil {
		return err
	}
	switch {
	case j.Alloc != nil && len(j.Alloc.Nodes) > 0:
	case j.State.Final():
		return call.Refuse(command.Conflict, "", "job %s has no output: it ended before it started (%s)", j.Ref(), j.State)
	default:
		return call.Refuse(command.Conflict, "gctl logs -f waits for its start, gctl why "+j.Ref().String()+" shows the reason", "job %s has no output yet: it has not started", j.Ref())
	}
	rank := j.RankOf(p.GetRank())
	if p.GetFrom() < 0 {
		return call.Refuse(command.InvalidArgument, "", "from byte %d: no --bytes before the first", p.GetFrom())
	}
	if p.GetTail() < 0 || p.GetTailLines() < 0 || p.GetTail() > 0 && p.GetTailLines() > 0 {
		return call.Refuse(command.InvalidArgument, "", "the last %d bytes, %d lines: want one of them, and not less than 0", p.GetTail(), p.GetTailLines())
	}
	if rank < 0 || rank >= len(j.Alloc.Nodes) {
		return call.Refuse(command.InvalidArgument, "", "job %s has no node of rank %d", j.Ref(), p.GetRank())
	}
	user := ""
	if c := call.From(ctx); !c.Unlimited() {
		user = c.User.User
	}
	err = s.logs.Stream(ctx, j.Alloc.Nodes[rank].Node, user, s.logRequest(j, rank, p), stream)
	var refused *connect.Error
	if connect.CodeOf(err) == connect.CodeNotFound && j.State == cluster.Configuring && errors.As(err, &refused) {
		return call.Refuse(command.Conflict, "gctl logs -f waits for its start", "job %s has no output yet: its nodes have not begun it (%s)", j.Ref(), refused.Message())
	}
	if connect.CodeOf(err) == connect.CodeNotFound && j.State.Final() && j.Reason == cluster.ReasonLaunchFailed && j.Detail != "" {
		return call.Refuse(command.NotFound, "", "job %s has no output: %s", j.Ref(), j.Detail)
	}
	return err
}

func (s *Server) logRequest(j *cluster.Job, rank int, p *greylagv1.StreamLogsRequest) *greylagv1.LogRequest {
	request := &greylagv1.LogRequest{
		Job: uint64(j.ID), Attempt: uint32(j.Attempt), Error: p.GetError(), Tail: p.GetTail(), TailLines: p.GetTailLines(), Follow: p.GetFollow(),
		Task: wire.WriteWanted(j, rank, command.IndexRange{}, s.cfg.State.View().Policy().KillWait, nil),
	}
	switch {
	case p.GetFrom() > 0:
		request.Offset, request.Tail, request.TailLines = p.GetFrom(), 0, 0
	case p.GetTail() > 0 || p.GetTailLines() > 0:
		request.Offset = -1
	}
	return request
}
