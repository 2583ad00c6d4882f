package server

import (
	"context"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// CreateStep starts a step of a running job.
func (s *jobService) CreateStep(ctx context.Context, p *greylagv1.CreateStepRequest) (*greylagv1.CreateStepResponse, error) {
	spec, err := wire.ReadStepSpec(p.GetStep())
	if err != nil {
		return nil, err
	}
	id, err := jobRequest(ctx, p.GetRequestId(), p)
	if err != nil {
		return nil, err
	}
	cmd := &command.CreateStep{Request: id, Actor: call.From(ctx).Actor(), Job: cluster.JobID(p.GetJob()), Step: spec}
	answer, _, err := call.Propose[*command.StepCreated](ctx, s.cfg.Leader, cmd)
	if err != nil {
		return nil, err
	}
	response := &greylagv1.CreateStepResponse{Step: answer.Step, Attempt: uint32(answer.Attempt), Busy: answer.Busy}
	j, known := s.cfg.State.View().Job(cmd.Job)
	if !known || j.Attempt != answer.Attempt || j.Alloc == nil {
		return nil, call.Refuse(command.Conflict, "", "attempt %d of job %d has ended", answer.Attempt, cmd.Job)
	}
	for _, n := range j.Alloc.Nodes {
		response.JobNodes = append(response.JobNodes, n.Node)
	}
	if at := cluster.FindStep(j.Steps, answer.Step); answer.Busy == "" && at >= 0 {
		response.Nodes = wire.WriteStepNodes(j, j.Steps[at])
	}
	return response, nil
}

// AttachStep connects the node of a step with a terminal to the caller.
func (s *jobService) AttachStep(ctx context.Context, p *greylagv1.AttachStepRequest) (*greylagv1.AttachStepResponse, error) {
	contact, err := wire.ReadStepContact(p)
	if err != nil {
		return nil, err
	}
	id, err := jobRequest(ctx, p.GetRequestId(), p)
	if err != nil {
		return nil, err
	}
	cmd := &command.AttachStep{Request: id, Actor: call.From(ctx).Actor(), Job: cluster.JobID(p.GetJob()), Step: p.GetStep(), Contact: contact}
	if _, _, err := call.Propose[*command.Done](ctx, s.cfg.Leader, cmd); err != nil {
		return nil, err
	}
	response := &greylagv1.AttachStepResponse{}
	if j, known := s.cfg.State.View().Job(cmd.Job); known && j.Alloc != nil {
		if at := cluster.FindStep(j.Steps, cmd.Step); at >= 0 {
			response.Node = wire.WriteStepNodes(j, j.Steps[at])[0]
		}
	}
	return response, nil
}

// SignalStep sends a signal to a step, or ends it.
func (s *jobService) SignalStep(ctx context.Context, p *greylagv1.SignalStepRequest) (*greylagv1.SignalStepResponse, error) {
	id, err := jobRequest(ctx, p.GetRequestId(), p)
	if err != nil {
		return nil, err
	}
	cmd := &command.SignalStep{Request: id, Actor: call.From(ctx).Actor(), Job: cluster.JobID(p.GetJob()), Step: p.GetStep(), Signal: p.GetSignal()}
	_, index, err := call.Propose[*command.Done](ctx, s.cfg.Leader, cmd)
	if err != nil {
		return nil, err
	}
	return &greylagv1.SignalStepResponse{Index: index}, nil
}

// jobRequest returns the request ID of a call about a running job.
func jobRequest(ctx context.Context, id string, p call.Request) (command.RequestID, error) {
	payload, err := call.Payload(p)
	if err != nil {
		return command.RequestID{}, err
	}
	return call.From(ctx).RequestID(id, "", payload)
}
