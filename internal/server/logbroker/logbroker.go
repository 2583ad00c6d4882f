// Package logbroker connects the readers of job output with the nodes that hold it.
package logbroker

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
)

const (
	// logPieces is how many chunks of output wait for a slow reader before its node waits too.
	// pushTime is how long the node waits before it pushes again.
	logPieces = 8
	pushTime  = 5 * time.Second
	// maxReaders bounds the log readers of one node.
	maxReaders = 256
	// maxUserReaders bounds those of one user: a node reads few outputs at a time, for all users.
	maxUserReaders = 16
	// maxPiece bounds one chunk of output, in bytes.
	maxPiece = 1 << 20
	// firstPiece bounds the time until a node answers a log request.
	firstPiece = 15 * time.Second
)

// Broker connects readers of output with the nodes that hold it. Only the leader's has sessions.
type Broker struct {
	mu       sync.Mutex
	sessions map[string]*Session // by node; one for each node in session
	readers  map[string]*reader
}

// Session is the session of one node.
type Session struct {
	Requests chan *greylagv1.LogRequest
	closed   chan struct{}
	readers  int
	users    map[string]int // readers of each user
}

// reader is one call of StreamLogs.
type reader struct {
	id      string
	node    string
	user    string // "" for operators and administrators
	session *Session
	pieces  chan logChunk
	gone    chan struct{} // closed when the reader has disconnected
}

// logChunk is the content of one push.
type logChunk struct {
	data []byte
	next int64
	end  bool
	err  string
}

// New returns a broker without sessions.
func New() *Broker {
	return &Broker{sessions: make(map[string]*Session), readers: make(map[string]*reader)}
}

// Open begins the session of a node; an older one of the same node gets no more requests.
func (b *Broker) Open(node string) *Session {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &Session{Requests: make(chan *greylagv1.LogRequest, 2*maxReaders), closed: make(chan struct{}), users: make(map[string]int)}
	b.sessions[node] = s
	return s
}

// InSession reports whether a node has an open session.
func (b *Broker) InSession(node string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sessions[node] != nil
}

// Close ends a session and all its readers.
func (b *Broker) Close(node string, s *Session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sessions[node] == s {
		delete(b.sessions, node)
	}
	close(s.closed)
}

// ask sends a request to the node and returns the reader of the answer. user "" has no limit.
func (b *Broker) ask(node, user string, request *greylagv1.LogRequest) (*reader, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, ok := b.sessions[node]
	if !ok {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("node "+node+" is not connected to the controllers: its output is not available now"))
	}
	if s.readers >= maxReaders {
		return nil, call.Refuse(command.Exhausted, "try again later", "node %s has %d log readers already", node, maxReaders)
	}
	if user != "" && s.users[user] >= maxUserReaders {
		return nil, call.Refuse(command.Exhausted, "end one of them", "user %s reads %d outputs of node %s already", user, maxUserReaders, node)
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails on Linux
	request.Id = hex.EncodeToString(id[:])
	r := &reader{id: request.Id, node: node, user: user, session: s, pieces: make(chan logChunk, logPieces), gone: make(chan struct{})}
	s.readers++
	s.users[user]++
	b.readers[r.id] = r
	s.Requests <- request // the channel has room for two of each reader
	return r, nil
}

// leave ends a reader and cancels its request.
func (b *Broker) leave(r *reader) {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(r.gone)
	delete(b.readers, r.id)
	r.session.readers--
	if r.session.users[r.user]--; r.session.users[r.user] == 0 {
		delete(r.session.users, r.user)
	}
	select {
	case r.session.Requests <- &greylagv1.LogRequest{Id: r.id, Cancelled: true}:
	default: // no session takes requests: the node learns it from its next push
	}
}

// reader returns the reader of a node's push; nil if it has left.
func (b *Broker) reader(id, node string) *reader {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.readers[id]; r != nil && r.node == node {
		return r
	}
	return nil
}

// Stream asks the node for output and sends it to stream until its end. user "" has no limit.
func (b *Broker) Stream(ctx context.Context, node, user string, request *greylagv1.LogRequest, stream *connect.ServerStream[greylagv1.StreamLogsResponse]) error {
	r, err := b.ask(node, user, request)
	if err != nil {
		return err
	}
	defer b.leave(r)
	return r.pump(ctx, stream)
}

// pump sends the chunks of the node until the last one.
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
		case <-r.session.closed:
			return connect.NewError(connect.CodeAborted, errors.New("the session with node "+r.node+" ended; ask again"))
		case <-silence.C:
			return connect.NewError(connect.CodeAborted, errors.New("node "+r.node+" does not answer"))
		case p := <-r.pieces:
			silence.Stop() // a job without output is no error
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

// Push passes a chunk of output to its reader.
func (b *Broker) Push(ctx context.Context, node string, p *greylagv1.PushLogRequest) (*greylagv1.PushLogResponse, error) {
	if len(p.GetData()) > maxPiece {
		return nil, call.Refuse(command.InvalidArgument, "", "%d bytes of output at once: at most %d", len(p.GetData()), maxPiece)
	}
	r := b.reader(p.GetId(), node)
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
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("the reader is slow: resend the chunk"))
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
