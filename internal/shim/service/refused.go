//go:build linux

package service

import (
	"context"

	"github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Greylag does not need these calls. gnoded reads control groups itself.

// Pause is refused.
func (s *Service) Pause(context.Context, *task.PauseRequest) (*emptypb.Empty, error) {
	return nil, grpc(errdefs.ErrNotImplemented, "pausing")
}

// Resume is refused.
func (s *Service) Resume(context.Context, *task.ResumeRequest) (*emptypb.Empty, error) {
	return nil, grpc(errdefs.ErrNotImplemented, "pausing")
}

// Checkpoint is refused.
func (s *Service) Checkpoint(context.Context, *task.CheckpointTaskRequest) (*emptypb.Empty, error) {
	return nil, grpc(errdefs.ErrNotImplemented, "checkpoints")
}

// Exec is refused.
func (s *Service) Exec(context.Context, *task.ExecProcessRequest) (*emptypb.Empty, error) {
	return nil, grpc(errdefs.ErrNotImplemented, "more processes in a task")
}

// ResizePty is refused.
func (s *Service) ResizePty(context.Context, *task.ResizePtyRequest) (*emptypb.Empty, error) {
	return nil, grpc(errdefs.ErrNotImplemented, "terminals")
}

// CloseIO is refused.
func (s *Service) CloseIO(context.Context, *task.CloseIORequest) (*emptypb.Empty, error) {
	return nil, grpc(errdefs.ErrNotImplemented, "pipes")
}

// Update is refused.
func (s *Service) Update(context.Context, *task.UpdateTaskRequest) (*emptypb.Empty, error) {
	return nil, grpc(errdefs.ErrNotImplemented, "other limits")
}

// Stats is refused.
func (s *Service) Stats(context.Context, *task.StatsRequest) (*task.StatsResponse, error) {
	return nil, grpc(errdefs.ErrNotImplemented, "statistics")
}
