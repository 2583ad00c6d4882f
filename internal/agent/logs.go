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
	// logChunk is how much of an output goes into one message.
	logChunk = 64 << 10
	// pushTimeout is how long a reader may make one chunk wait.
	pushTimeout = 10 * time.Minute
	// maxReaders bounds outputs being read at once.
	maxReaders = 64
	// maxServed is how many answered requests are remembered, since a request
	// comes again with every wanted set for as long as it stands.
	maxServed = 1024
	// A follower looks for more after the shortest pause, doubled to the
	// longest while nothing comes.
	shortestLook, longestLook = 20 * time.Millisecond, 500 * time.Millisecond
)

// output is a file that a task writes.
type output struct {
	path     string
	user     string
	uid, gid uint32
	over     <-chan struct{} // closed when nothing more will be written
}

// serveLog begins to answer a request for a task's output, once, in the loop.
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
		err = errors.New("this node reads too many outputs at once; try again later")
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
			if _, err := a.push(ctx, last); err != nil && ctx.Err() == nil { // else its reader has left
				a.log.Warn("cannot answer a log request", "error", err)
			}
		}
		a.post(func() { delete(a.logs, id) })
	})
}

// outputOf finds the file that a request means: where the task that is here
// writes, or where the request says that one wrote whose record is dropped.
func (a *Agent) outputOf(request *greylagv1.LogRequest) (output, error) {
	id := reconcile.ID{Job: cluster.JobID(request.GetJob()), Attempt: cluster.Attempt(request.GetAttempt())}
	spec := request.GetTask()
	over := make(chan struct{})
	close(over)
	source := output{over: over}
	if t := a.tasks[id]; t != nil {
		source.over = t.over
		if t.spec != nil {
			spec = t.spec
		}
	}
	switch {
	case spec == nil:
		return source, errors.New("this node does not know where the job wrote")
	case spec.GetIdle():
		return source, errors.New("nothing runs on this node for the job: its script runs on the first node")
	}
	_, stdout, stderr := files(spec, a.cfg.Name)
	source.path, source.user, source.uid, source.gid = stdout, spec.GetUser(), spec.GetUid(), spec.GetGid()
	if request.GetError() && stderr != "" {
		source.path = stderr
	}
	return source, nil
}

// sendLog reads the file as its user and pushes what it holds, and what is
// added until the task is over.
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
	for pause := shortestLook; ; {
		over := closed(source.over) // looked at before reading: then EOF is the end
		n, err := file.ReadAt(buffer, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read %s: %w", source.path, err)
		}
		if n > 0 {
			at += int64(n)
			pause = shortestLook
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
			at = 0 // it was truncated: begin again
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-source.over:
		case <-time.After(pause):
			pause = min(2*pause, longestLook)
		}
	}
}

// firstByte is where to begin.
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

// lastLines is where the last so many of the lines in the first size bytes begin; one
// without an end counts. O(bytes of those lines).
func lastLines(ctx context.Context, file io.ReaderAt, size, lines int64) (int64, error) {
	buffer := make([]byte, logChunk)
	for end := size; end > 0; {
		if ctx.Err() != nil { // nobody reads any more
			return 0, ctx.Err()
		}
		begin := max(0, end-logChunk)
		n, err := file.ReadAt(buffer[:end-begin], begin)
		if err != nil && !errors.Is(err, io.EOF) { // it was truncated meanwhile
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

// openLog opens the file as its user, and for a follower waits until it exists.
func (a *Agent) openLog(ctx context.Context, source output, follow bool) (*os.File, error) {
	account := a.accounts.of(ctx, source.user, source.uid, source.gid)
	owner := tasks.Owner{UID: source.uid, GID: source.gid, Groups: account.groups}
	for pause := shortestLook; ; pause = min(2*pause, longestLook) {
		over := closed(source.over)
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
		case <-source.over:
		case <-time.After(pause):
		}
	}
}

// push sends one chunk; stop says that nobody reads any more.
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
