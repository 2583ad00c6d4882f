package client

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/api/gen/greylag/v1/greylagv1connect"
)

// NodeSession is a node's side of NodeService. Each call finds the leader: a
// controller that does not lead names it.
type NodeSession struct {
	service greylagv1connect.NodeServiceClient
}

// Register describes the node.
func (s *NodeSession) Register(ctx context.Context, request *greylagv1.RegisterNodeRequest) (*greylagv1.RegisterNodeResponse, error) {
	return s.service.RegisterNode(ctx, request)
}

// Wanted calls receive for every message, until receive returns an error or the
// stream ends. It ends when the controller no longer leads; nil means that it
// ended in order.
func (s *NodeSession) Wanted(ctx context.Context, request *greylagv1.WatchTasksRequest, receive func(*greylagv1.WatchTasksResponse) error) error {
	stream, err := s.service.WatchTasks(ctx, request)
	if err != nil {
		return err
	}
	defer stream.Close()
	for stream.Receive() {
		if err := receive(stream.Msg()); err != nil {
			return err
		}
	}
	return stream.Err()
}

// Report tells the full set of tasks on the node.
func (s *NodeSession) Report(ctx context.Context, request *greylagv1.ReportTasksRequest) (*greylagv1.ReportTasksResponse, error) {
	return s.service.ReportTasks(ctx, request)
}

// Fetch returns a script or an environment of one of the node's tasks.
func (s *NodeSession) Fetch(ctx context.Context, request *greylagv1.GetContentRequest) (*greylagv1.GetContentResponse, error) {
	return s.service.GetContent(ctx, request)
}

// Secrets returns the secrets of one of the node's tasks, in clear.
func (s *NodeSession) Secrets(ctx context.Context, request *greylagv1.GetSecretsRequest) (*greylagv1.GetSecretsResponse, error) {
	return s.service.GetSecrets(ctx, request)
}

// PushLog answers a log request with one piece of output. It takes as long as the
// reader does.
func (s *NodeSession) PushLog(ctx context.Context, request *greylagv1.PushLogRequest) (*greylagv1.PushLogResponse, error) {
	return s.service.PushLog(ctx, request)
}

// LeaseEnded reports whether a controller refused a call of a leased node because its lease has ended.
func LeaseEnded(err error) bool {
	var answer *connect.Error
	return errors.As(err, &answer) && answer.Meta().Get(CodeHeader) == CodeLeaseEnded
}
