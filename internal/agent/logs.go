package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/reconcile"
	tasks "github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/internal/userfile"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	// logChunk is the size of one message of output, in bytes.
	logChunk = 64 << 10
	// pushTimeout is how long a reader may delay one chunk.
	pushTimeout = 10 * time.Minute
	// maxReaders limits the outputs being read at once.
	maxReaders = 64
	// maxServed is the number of remembered requests. A request is repeated with every set while it
	// stands.
	maxServed = 1024
	// minPoll is the first polling interval of a follower; it doubles to maxPoll while no output
	// comes.
	minPoll, maxPoll = 20 * time.Millisecond, 500 * time.Millisecond
)

// output is a file that a task writes.
type output struct {
	path     string
	uid, gid uint32
	done     <-chan struct{} // closed when the file is complete
}

// serveLog begins to answer a request for the output of a task, once. It runs in the loop.
func (a *Agent) serveLog(request *greylagv1.LogRequest) {
	id := request.GetId()
	if cancel := a.logs[id]; cancel != nil {
		if request.GetCancelled() {
			cancel()
		}
		return
	}
	if request.GetCancelled() || slices.Contains(a.served, id) {
		return
	}
	a.served = append(a.served, id)
	if len(a.served) > maxServed {
		a.served = slices.Clone(a.served[1:])
	}
	source, err := a.outputOf(request)
	if err == nil && len(a.logs) >= maxReaders {
		err = errors.New("too many log readers on this node; try again later")
	}
	ctx, cancel := context.WithCancel(context.Background())
	a.logs[id] = cancel
	a.workers.Go(func() {
		defer cancel()
		stop := context.AfterFunc(a.reading, cancel)
		defer stop()
		if err == nil {
			err = a.sendLog(ctx, request, source)
		}
		last := &greylagv1.PushLogRequest{Id: id, Eof: true}
		if err != nil {
			last.Error = err.Error()
		}
		if ctx.Err() == nil {
			if _, err := a.push(ctx, last); err != nil && ctx.Err() == nil { // otherwise its reader has left
				a.log.Warn("cannot answer a log request", "err", err)
			}
		}
		a.post(func() { delete(a.logs, id) })
	})
}

// outputOf returns the file that a request names: the output of a present task, or the path in the
// request if the record of the task is gone.
func (a *Agent) outputOf(request *greylagv1.LogRequest) (output, error) {
	id := reconcile.ID{Job: cluster.JobID(request.GetJob()), Attempt: cluster.Attempt(request.GetAttempt())}
	spec := request.GetTask()
	over := make(chan struct{})
	close(over)
	source := output{done: over}
	if t := a.tasks[id]; t != nil {
		source.done = t.done
		if t.spec != nil {
			spec = t.spec
		}
	}
	switch {
	case spec == nil:
		return source, errors.New("this node does not know the output file of the job")
	case spec.GetIdle():
		return source, errors.New("the job has no output on this node: its script runs on the first node")
	}
	stdout, stderr := a.outputFiles(id, spec)
	source.path, source.uid, source.gid = stdout, spec.GetUid(), spec.GetGid()
	if request.GetError() && stderr != "" {
		source.path = stderr
	}
	return source, nil
}

// sendLog reads the file as its user and pushes its content, and new content until the task ends.
func (a *Agent) sendLog(ctx context.Context, request *greylagv1.LogRequest, source output) error {
	file, err := a.openLog(ctx, source, request.GetFollow())
	if err != nil {
		return err
	}
	defer file.Close()
	at, err := firstByte(ctx, file, request)
	if err != nil {
		return err
	}
	buffer := make([]byte, logChunk)
	for pause := minPoll; ; {
		over := closed(source.done) // read before the file: then EOF is the end
		n, err := file.ReadAt(buffer, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read %s: %w", source.path, err)
		}
		if n > 0 {
			at += int64(n)
			pause = minPoll
			stop, err := a.push(ctx, &greylagv1.PushLogRequest{Id: request.GetId(), Data: buffer[:n], Next: at})
			if stop || err != nil {
				return err
			}
			continue
		}
		if !request.GetFollow() || over {
			return nil
		}
		if info, err := file.Stat(); err == nil && info.Size() < at {
			at = 0 // it was truncated: start again
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-source.done:
		case <-time.After(pause):
			pause = min(2*pause, maxPoll)
		}
	}
}

// firstByte returns the offset of the first byte to send.
func firstByte(ctx context.Context, file *os.File, request *greylagv1.LogRequest) (int64, error) {
	if request.GetOffset() > 0 || request.GetOffset() == 0 && request.GetTail() <= 0 {
		return request.GetOffset(), nil
	}
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	if request.GetTailLines() > 0 {
		return lastLines(ctx, file, info.Size(), request.GetTailLines())
	}
	return max(0, info.Size()-max(request.GetTail(), 0)), nil
}

// lastLines returns the offset of the last lines of the first size bytes. An unterminated line
// counts. O(bytes of those lines).
func lastLines(ctx context.Context, file io.ReaderAt, size, lines int64) (int64, error) {
	buffer := make([]byte, logChunk)
	for end := size; end > 0; {
		if ctx.Err() != nil { // the reader has left
			return 0, ctx.Err()
		}
		begin := max(0, end-logChunk)
		n, err := file.ReadAt(buffer[:end-begin], begin)
		if err != nil && !errors.Is(err, io.EOF) { // truncated meanwhile
			return 0, err
		}
		for i := n - 1; i >= 0; i-- {
			if buffer[i] != '\n' || begin+int64(i) == size-1 {
				continue
			}
			if lines--; lines == 0 {
				return begin + int64(i) + 1, nil
			}
		}
		end = begin
	}
	return 0, nil
}

// openLog opens the file as its user; with follow it waits until the file exists.
func (a *Agent) openLog(ctx context.Context, source output, follow bool) (*os.File, error) {
	account := a.accounts.of(ctx, source.uid, source.gid)
	owner := tasks.Owner{UID: source.uid, GID: source.gid, Groups: account.groups}
	for pause := minPoll; ; pause = min(2*pause, maxPoll) {
		over := closed(source.done)
		file, err := userfile.Read(owner, source.path)
		switch {
		case err == nil:
			return file, nil
		case !errors.Is(err, os.ErrNotExist):
			return nil, err
		case over || !follow:
			return nil, fmt.Errorf("%s does not exist", source.path)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-source.done:
		case <-time.After(pause):
		}
	}
}

// push sends one chunk; stop means that the reader has left.
func (a *Agent) push(ctx context.Context, chunk *greylagv1.PushLogRequest) (stop bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, pushTimeout)
	defer cancel()
	response, err := a.session.PushLog(ctx, chunk)
	return response.GetStop(), err
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
