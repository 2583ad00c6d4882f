package cli_test

import (
	"context"
	"slices"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"google.golang.org/protobuf/proto"
)

// CommitCheckpoint implements JobServiceHandler.
func (m *memory) CommitCheckpoint(_ context.Context, r *greylagv1.CommitCheckpointRequest) (*greylagv1.CommitCheckpointResponse, error) {
	m.note(r)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, j := range m.jobs {
		if j.Id == r.Job {
			k := proto.CloneOf(r.Checkpoint)
			k.Number, k.Attempt, k.Committed = uint32(len(j.Checkpoints))+1, r.Attempt, cronNext
			j.Checkpoints = append(j.Checkpoints, k)
			return &greylagv1.CommitCheckpointResponse{Number: k.Number}, nil
		}
	}
	return nil, refuse(connect.CodeNotFound, "", "no job %d", r.Job)
}

// SetCheckpoint implements JobServiceHandler.
func (m *memory) SetCheckpoint(_ context.Context, r *greylagv1.SetCheckpointRequest) (*greylagv1.SetCheckpointResponse, error) {
	m.note(r)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, j := range m.jobs {
		at := slices.IndexFunc(j.Checkpoints, func(k *greylagv1.Checkpoint) bool { return k.Number == r.Number })
		if j.Id != r.Job || at < 0 {
			continue
		}
		switch r.Action {
		case greylagv1.CheckpointAction_CHECKPOINT_ACTION_DROP:
			j.Checkpoints = slices.Delete(j.Checkpoints, at, at+1)
		case greylagv1.CheckpointAction_CHECKPOINT_ACTION_DAMAGE:
			j.Checkpoints[at].State, j.Checkpoints[at].Detail = greylagv1.CheckpointState_CHECKPOINT_STATE_DAMAGED, r.Detail
		}
	}
	return &greylagv1.SetCheckpointResponse{}, nil
}

// BeginCheckpoint implements JobServiceHandler.
func (m *memory) BeginCheckpoint(context.Context, *greylagv1.BeginCheckpointRequest) (*greylagv1.BeginCheckpointResponse, error) {
	return &greylagv1.BeginCheckpointResponse{Granted: true}, nil
}
