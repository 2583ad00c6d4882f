package client

import (
	"context"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
)

// wellFormed refuses messages that cannot be encoded, such as texts that are not UTF-8, before a
// call begins: connect would send an empty one instead and close, and the controllers would apply
// that.
type wellFormed struct{}

// WrapUnary implements connect.Interceptor.
func (wellFormed) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		if err := writable(request.Any()); err != nil {
			return nil, err
		}
		return next(ctx, request)
	}
}

// WrapStreamingClient implements connect.Interceptor. Streams only read, so an empty request does
// no harm, but is not what the caller meant.
func (wellFormed) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor.
func (wellFormed) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

func writable(message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return nil
	}
	if _, err := proto.Marshal(m); err != nil {
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("the request cannot be sent: %w", err))
	}
	return nil
}
