package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"sync"
	"time"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	// logPieces is how many pieces of output wait for a slow reader before its node
	// waits too, and pushTime how long the node does before it asks again.
	logPieces = 8
	pushTime  = 5 * time.Second
	// maxReaders bounds the log readers of one node.
	maxReaders = 256
	// maxUserReaders bounds those of one user: a node reads few outputs at a time, for all.
	maxUserReaders = 16
	// maxPiece bounds one piece of output.
	maxPiece = 1 << 20
	// firstPiece is how long a node may take until it answers a log request.
	firstPiece = 15 * time.Second
)

// logBroker is where readers of output and the nodes that hold it meet. Only the
// leader has any.
type logBroker struct {
	mu      sync.Mutex
	desks   map[string]*nodeSession // by node; one for each node that is in session
	readers map[string]*reader
}

// nodeSession is one node's session.
type nodeSession struct {
	requests chan *greylagv1.LogRequest
	closed   chan struct{}
	readers  int
	users    map[string]int // readers of each user
}

// reader is one Logs call.
type reader struct {
	id          string
	node        string
	user        string // "" for operators and administrators
	nodeSession *nodeSession
	pieces      chan logChunk
	gone        chan struct{} // closed when the reader has left
}

// logChunk is what one push brought.
type logChunk struct {
	data []byte
	next int64
	end  bool
	err  string
}

func newLogDesks() *logBroker {
	return &logBroker{desks: make(map[string]*nodeSession), readers: make(map[string]*reader)}
}

// open begins a node's session; an older one of the same node gets no more requests.
func (l *logBroker) open(node string) *nodeSession {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := &nodeSession{requests: make(chan *greylagv1.LogRequest, 2*maxReaders), closed: make(chan struct{}), users: make(map[string]int)}
	l.desks[node] = d
	return d
}

// inSession reports whether a node has a session open.
func (l *logBroker) inSession(node string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.desks[node] != nil
}

// close ends it, and with it every reader that waits for it.
func (l *logBroker) close(node string, d *nodeSession) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.desks[node] == d {
		delete(l.desks, node)
	}
	close(d.closed)
}

// ask hands a request to the node and returns who reads the answer. user "" is not bounded.
func (l *logBroker) ask(node, user string, request *greylagv1.LogRequest) (*reader, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d, ok := l.desks[node]
	if !ok {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("node "+node+" is not in session with the controllers: its output cannot be read now"))
	}
	if d.readers >= maxReaders {
		return nil, call.Refuse(command.Exhausted, "try again later", "node %s has %d log readers already", node, maxReaders)
	}
	if user != "" && d.users[user] >= maxUserReaders {
		return nil, call.Refuse(command.Exhausted, "end one of them", "user %s reads %d outputs of node %s already", user, maxUserReaders, node)
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails on Linux
	request.Id = hex.EncodeToString(id[:])
	r := &reader{id: request.Id, node: node, user: user, nodeSession: d, pieces: make(chan logChunk, logPieces), gone: make(chan struct{})}
	d.readers++
	d.users[user]++
	l.readers[r.id] = r
	d.requests <- request // there is room for two of each reader
	return r, nil
}

// leave ends a reader and tells its node.
func (l *logBroker) leave(r *reader) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(r.gone)
	delete(l.readers, r.id)
	r.nodeSession.readers--
	if r.nodeSession.users[r.user]--; r.nodeSession.users[r.user] == 0 {
		delete(r.nodeSession.users, r.user)
	}
	select {
	case r.nodeSession.requests <- &greylagv1.LogRequest{Id: r.id, Cancelled: true}:
	default: // nobody takes requests: the node learns it from its next push
	}
}

// reader finds who reads what a node pushes; nil when nobody does any more.
func (l *logBroker) reader(id, node string) *reader {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.readers[id]; r != nil && r.node == node {
		return r
	}
	return nil
}

// StreamLogs returns a job's output from the node that writes it, and follows it.
func (s *jobService) StreamLogs(ctx context.Context, p *greylagv1.StreamLogsRequest, stream *connect.ServerStream[greylagv1.StreamLogsResponse]) error {
	j, err := s.private(ctx, p.GetJob())
	if err != nil {
		return err
	}
	switch {
	case j.Alloc != nil && len(j.Alloc.Nodes) > 0:
	case j.State.Final():
		return call.Refuse(command.Conflict, "", "job %s has no output: it ended before it started (%s)", j.Ref(), j.State)
	default:
		return call.Refuse(command.Conflict, "gctl logs -f waits for its start, gctl why "+j.Ref().String()+" says what it waits for", "job %s has no output yet: it has not started", j.Ref())
	}
	rank := int(p.GetRank())
	if p.GetFrom() < 0 {
		return call.Refuse(command.InvalidArgument, "", "from byte %d: want none before the first", p.GetFrom())
	}
	if p.GetTail() < 0 || p.GetTailLines() < 0 || p.GetTail() > 0 && p.GetTailLines() > 0 {
		return call.Refuse(command.InvalidArgument, "", "the last %d bytes, %d lines: want one of them, and not less than 0", p.GetTail(), p.GetTailLines())
	}
	if rank < 0 || rank >= len(j.Alloc.Nodes) {
		return call.Refuse(command.InvalidArgument, "", "job %s has ranks 0 to %d", j.Ref(), len(j.Alloc.Nodes)-1)
	}
	user := ""
	if c := call.From(ctx); !c.Unlimited() {
		user = c.User.User
	}
	r, err := s.logs.ask(j.Alloc.Nodes[rank].Node, user, s.logRequest(j, rank, p))
	if err != nil {
		return err
	}
	defer s.logs.leave(r)
	err = r.pump(ctx, stream)
	var told *connect.Error
	if connect.CodeOf(err) == connect.CodeNotFound && j.State == cluster.Configuring && errors.As(err, &told) {
		return call.Refuse(command.Conflict, "gctl logs -f waits for its start", "job %s has no output yet: its nodes have not begun it (%s)", j.Ref(), told.Message())
	}
	if connect.CodeOf(err) == connect.CodeNotFound && j.State.Final() && j.Reason == cluster.ReasonLaunchFailed && j.Detail != "" {
		return call.Refuse(command.NotFound, "", "job %s has no output: %s", j.Ref(), j.Detail)
	}
	return err
}

func (s *Server) logRequest(j *cluster.Job, rank int, p *greylagv1.StreamLogsRequest) *greylagv1.LogRequest {
	request := &greylagv1.LogRequest{
		Job: uint64(j.ID), Attempt: uint32(j.Attempt), Error: p.GetError(), Tail: p.GetTail(), TailLines: p.GetTailLines(), Follow: p.GetFollow(),
		Task: wire.WriteWanted(j, rank, command.IndexRange{}, s.cfg.State.View().Policy().KillWait, nil),
	}
	switch {
	case p.GetFrom() > 0:
		request.Offset, request.Tail, request.TailLines = p.GetFrom(), 0, 0
	case p.GetTail() > 0 || p.GetTailLines() > 0:
		request.Offset = -1
	}
	return request
}

// pump sends what the node pushes until it has sent all.
func (r *reader) pump(ctx context.Context, stream *connect.ServerStream[greylagv1.StreamLogsResponse]) error {
	if err := stream.Send(&greylagv1.StreamLogsResponse{}); err != nil { // the answer begins
		return err
	}
	silence := time.NewTimer(firstPiece)
	defer silence.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-r.nodeSession.closed:
			return connect.NewError(connect.CodeAborted, errors.New("the session with node "+r.node+" ended; ask again"))
		case <-silence.C:
			return connect.NewError(connect.CodeAborted, errors.New("node "+r.node+" does not answer"))
		case p := <-r.pieces:
			silence.Stop() // a quiet job is no fault
			if len(p.data) > 0 {
				if err := stream.Send(&greylagv1.StreamLogsResponse{Data: p.data, Next: p.next}); err != nil {
					return err
				}
			}
			if p.err != "" {
				return connect.NewError(connect.CodeNotFound, errors.New("node "+r.node+": "+p.err))
			}
			if p.end {
				return nil
			}
		}
	}
}

// PushLog answers a log request that came with WatchTasksResponse.
func (s *nodeService) PushLog(ctx context.Context, p *greylagv1.PushLogRequest) (*greylagv1.PushLogResponse, error) {
	node, err := s.node(ctx)
	if err != nil {
		return nil, err
	}
	if len(p.GetData()) > maxPiece {
		return nil, call.Refuse(command.InvalidArgument, "", "%d bytes of output at once: at most %d", len(p.GetData()), maxPiece)
	}
	r := s.logs.reader(p.GetId(), node)
	if r == nil {
		return &greylagv1.PushLogResponse{Stop: true}, nil
	}
	wait := time.NewTimer(pushTime)
	defer wait.Stop()
	select {
	case r.pieces <- logChunk{data: p.GetData(), next: p.GetNext(), end: p.GetEof(), err: p.GetError()}:
		return &greylagv1.PushLogResponse{}, nil
	case <-r.gone:
		return &greylagv1.PushLogResponse{Stop: true}, nil
	case <-wait.C:
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("the reader is slow: push the same again"))
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
