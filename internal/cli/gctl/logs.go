package gctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// stream prints a job's output. If it is followed and has not begun, stream waits for it.
func (t commands) stream(ctx context.Context, c ui.Cluster, request *greylagv1.StreamLogsRequest) error {
	if _, err := cluster.ParseJobRef(request.Job); err != nil || request.Rank < 0 {
		return &ui.UsageError{Problem: fmt.Sprintf("not a job ID, or a negative rank: %q", request.Job), Advice: "write gctl logs 123, or 123_4 for an element of an array"}
	}
	if err := t.tellElement(ctx, c, request.Job); err != nil {
		return err
	}
	some, err := t.pour(ctx, c, request)
	if code := connect.CodeOf(err); some || !request.Follow || code != connect.CodeFailedPrecondition && code != connect.CodeNotFound {
		return err
	}
	waited, failed := t.awaitStart(ctx, c, request)
	switch {
	case failed != nil:
		return failed
	case waited:
		_, err = t.pour(ctx, c, request)
	}
	return err
}

// tellElement names the element whose output is printed, if the user named an array.
func (t commands) tellElement(ctx context.Context, c ui.Cluster, job string) error {
	answer, err := c.Jobs().GetJob(ctx, &greylagv1.GetJobRequest{Job: job})
	if err != nil || len(answer.Jobs) < 2 {
		return err
	}
	t.Note("job %s is an array: this is the output of %s; for the next, run gctl logs %s", job, answer.Jobs[0].Ref, answer.Jobs[1].Ref)
	return nil
}

const (
	// rejoin is how long a follower tries to continue after its stream broke off: longer than
	// controllers take to elect a leader and nodes to find it. A stream that lasted for joined
	// counts as found again.
	rejoin, joined = time.Minute, 10 * time.Second
	// rejoinPause is the time between two attempts.
	rejoinPause = 500 * time.Millisecond
)

// errPrint reports that output could not be printed here, whatever its source.
var errPrint = errors.New("cannot print the output")

// pour prints a job's output. When followed output breaks off, since a controller or the node's
// daemon ended, it continues after the last printed byte, and from the first byte if the job runs
// again. It reports whether there was any output.
func (t commands) pour(ctx context.Context, c ui.Cluster, request *greylagv1.StreamLogsRequest) (some bool, err error) {
	run, err := attempt(ctx, c, request)
	if err != nil {
		return false, err
	}
	var at position
	err = t.pourFrom(ctx, c, request, &at)
	if !request.Follow || at.printed == 0 || !brokeOff(err) {
		return at.printed > 0, err
	}
	tail := request.Tail > 0 || request.TailLines > 0
	note := "the output stream was interrupted: reconnected"
	if tail && at.next == 0 { // its start is unknown
		note += " from its end; some of it may be missing or repeated"
	}
	t.Note("%s", note)
	for lost := time.Now(); brokeOff(err) && time.Since(lost) < rejoin; {
		select {
		case <-time.After(rejoinPause):
		case <-ctx.Done():
			return true, ctx.Err()
		}
		now, failed := attempt(ctx, c, request)
		if failed != nil {
			return true, failed
		}
		if now != run {
			run, at = now, position{}
		}
		if tail && at.next == 0 {
			at.printed = 0
		}
		began, before := time.Now(), at.printed
		err = t.pourFrom(ctx, c, request, &at)
		if at.printed > before || time.Since(began) > joined {
			lost = time.Now()
		}
	}
	return true, err
}

// position is how far an output is printed.
type position struct {
	printed int64 // bytes of it
	next    int64 // the file offset after them; 0: not reported by the node
}

// attempt returns which run of its job a request means, as far as it is followed.
func attempt(ctx context.Context, c ui.Cluster, request *greylagv1.StreamLogsRequest) (uint32, error) {
	if !request.Follow {
		return 0, nil
	}
	answer, err := c.Jobs().GetJob(ctx, &greylagv1.GetJobRequest{Job: request.Job})
	if err != nil || len(answer.Jobs) == 0 {
		return 0, err
	}
	return answer.Jobs[0].Attempt, nil
}

// brokeOff reports whether an output stream ended before the job's: it broke, its node is between
// two sessions, or its job between two runs.
func brokeOff(err error) bool {
	code := connect.CodeOf(err)
	return err != nil && !errors.Is(err, errPrint) && (client.Broken(err) || code == connect.CodeAborted || code == connect.CodeFailedPrecondition)
}

// pourFrom prints output from a position on, unchanged: it is the caller's own. It advances the
// position by what it printed.
func (t commands) pourFrom(ctx context.Context, c ui.Cluster, request *greylagv1.StreamLogsRequest, at *position) error {
	request = proto.CloneOf(request)
	request.From = at.next
	stream, err := c.Jobs().StreamLogs(ctx, request)
	if err != nil {
		return err
	}
	defer stream.Close()
	skip := at.printed
	for stream.Receive() {
		data := stream.Msg().Data
		if stream.Msg().Next > 0 && request.From > 0 { // it begins where requested
			skip = 0
		}
		known := min(skip, int64(len(data)))
		skip -= known
		n, err := t.Stdout.Write(data[known:])
		if at.printed += int64(n); err != nil {
			return fmt.Errorf("%w: %w", errPrint, err)
		}
		if len(data) > 0 {
			at.next = stream.Msg().Next
		}
	}
	return stream.Err()
}

// errStarted ends the watch for a job's start.
var errStarted = errors.New("the job has started")

// awaitStart waits until the job of a request runs or has ended. It reports whether it had to wait.
// For an array it is the first element, as on the cluster.
func (t commands) awaitStart(ctx context.Context, c ui.Cluster, request *greylagv1.StreamLogsRequest) (waited bool, err error) {
	before := func(j *greylagv1.Job) bool {
		return wire.Word(j.State) == cluster.Pending.String() || wire.Word(j.State) == cluster.Configuring.String()
	}
	answer, err := c.Jobs().GetJob(ctx, &greylagv1.GetJobRequest{Job: request.Job})
	if err != nil || len(answer.Jobs) == 0 || !before(answer.Jobs[0]) {
		return false, err
	}
	request.Job = answer.Jobs[0].Ref
	t.Note("job %s has not started (%s): waiting for its output", request.Job, cmp.Or(wire.Word(answer.Jobs[0].Reason), wire.Word(answer.Jobs[0].State)))
	watch := &greylagv1.WatchJobsRequest{Filter: &greylagv1.Filter{Jobs: []string{request.Job}}, UntilEnded: true}
	err = c.Watch(ctx, watch, func(m *greylagv1.WatchJobsResponse) error {
		for _, j := range m.Jobs {
			if !before(j) {
				return errStarted
			}
		}
		return nil
	})
	if errors.Is(err, errStarted) {
		err = nil
	}
	return true, err
}
