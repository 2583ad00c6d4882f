package client

import (
	"context"
	"time"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

// Watch calls receive for the current state of the selected jobs and then for each change, until
// receive returns an error, ctx ends, or, with UntilEnded, every selected job has ended. A broken
// stream is opened again, which begins with the current state again; the returned error is that of
// a stream that could not be opened within the client's timeout.
func (c *Client) Watch(ctx context.Context, request *greylagv1.WatchJobsRequest, receive func(*greylagv1.WatchJobsResponse) error) error {
	for {
		began := time.Now()
		stream, err := c.jobs().WatchJobs(ctx, request)
		if err != nil {
			return err
		}
		for stream.Receive() {
			if err := receive(stream.Msg()); err != nil {
				stream.Close()
				return err
			}
		}
		err = stream.Err()
		stream.Close()
		if err == nil || ctx.Err() != nil || !Broken(err) {
			return err
		}
		if time.Since(began) < firstPause {
			select {
			case <-time.After(mostPause):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// Broken reports whether a stream ended without a reason of its own.
func Broken(err error) bool {
	code := connect.CodeOf(err)
	return code == connect.CodeUnavailable || !connect.IsWireError(err) && (code == connect.CodeUnknown || code == connect.CodeInternal || code == connect.CodeInvalidArgument)
}
