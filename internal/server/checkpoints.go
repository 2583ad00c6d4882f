package server

import (
	"context"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// BeginCheckpoint gives an attempt a slot of the store that contains its checkpoints, as soon as one is free.
func (s *jobService) BeginCheckpoint(ctx context.Context, p *greylagv1.BeginCheckpointRequest) (*greylagv1.BeginCheckpointResponse, error) {
	if err := cluster.CheckCheckpointDir(p.GetDir()); err != nil {
		return nil, call.Refuse(command.InvalidArgument, "", "%v", err)
	}
	v := s.cfg.State.View()
	w := writer{cluster.JobID(p.GetJob()), cluster.Attempt(p.GetAttempt())}
	if _, refusal := v.Committing(w.job, w.attempt, call.From(ctx).Actor()); refusal != nil {
		return nil, refusal
	}
	store, found := v.Policy().CheckpointStore(p.GetDir())
	if !found {
		return &greylagv1.BeginCheckpointResponse{Granted: true}, nil
	}
	granted, ahead := s.slots.take(v, store, w, s.cfg.Clock())
	return &greylagv1.BeginCheckpointResponse{Granted: granted, Store: store.Path, Slots: store.Slots, Ahead: ahead}, nil
}

// CommitCheckpoint records a checkpoint that the current attempt of a job has written.
func (s *jobService) CommitCheckpoint(ctx context.Context, p *greylagv1.CommitCheckpointRequest) (*greylagv1.CommitCheckpointResponse, error) {
	checkpoint, err := wire.ReadCheckpoint(p.GetCheckpoint())
	if err != nil {
		return nil, err
	}
	id, err := jobRequest(ctx, p.GetRequestId(), p)
	if err != nil {
		return nil, err
	}
	cmd := &command.CommitCheckpoint{
		Request: id, Actor: call.From(ctx).Actor(), Job: cluster.JobID(p.GetJob()), Attempt: cluster.Attempt(p.GetAttempt()), Checkpoint: checkpoint,
	}
	answer, index, err := call.Propose[*command.CheckpointCommitted](ctx, s.cfg.Leader, cmd)
	if err != nil {
		return nil, err
	}
	s.slots.release(writer{cmd.Job, cmd.Attempt})
	return &greylagv1.CommitCheckpointResponse{Number: answer.Number, Index: index}, nil
}

// SetCheckpoint records the result of a verification, or drops a checkpoint.
func (s *jobService) SetCheckpoint(ctx context.Context, p *greylagv1.SetCheckpointRequest) (*greylagv1.SetCheckpointResponse, error) {
	action, err := wire.ReadCheckpointAction(p.GetAction())
	if err != nil {
		return nil, err
	}
	digest, err := wire.ReadManifestDigest(p.GetDigest())
	if err != nil {
		return nil, err
	}
	id, err := jobRequest(ctx, p.GetRequestId(), p)
	if err != nil {
		return nil, err
	}
	cmd := &command.SetCheckpoint{
		Request: id, Actor: call.From(ctx).Actor(), Job: cluster.JobID(p.GetJob()), Number: p.GetNumber(), Digest: digest, Action: action, Detail: cluster.Sanitize(p.GetDetail(), cluster.MaxDamageDetail),
	}
	_, index, err := call.Propose[*command.Done](ctx, s.cfg.Leader, cmd)
	if err != nil {
		return nil, err
	}
	return &greylagv1.SetCheckpointResponse{Index: index}, nil
}
