package auth

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
)

// SocketFile is the name of a task's socket in the folder that Open returns.
const SocketFile = "socket"

// maxJobConns bounds the connections that the commands of one task hold. Others wait.
const maxJobConns = 64

// errNotOwner refuses a process of another user than the job's.
var errNotOwner = errors.New("this socket accepts only processes of the job's user")

// AttemptForwarder forwards the calls of commands inside jobs to the controllers.
type AttemptForwarder interface {
	// ForwardFor answers a call with a controller's answer, in the name of an attempt of a user.
	ForwardFor(w http.ResponseWriter, request *http.Request, a Attempt, uid uint32)
}

// JobSockets serves one Unix socket for each task of a node. Commands inside the task make their
// calls on it. It answers only processes of the task's user, and forwards their calls in the name of
// the attempt. The controllers check whether the attempt is still running. Safe for concurrent use.
type JobSockets struct {
	dir     string
	calls   AttemptForwarder
	httpLog *stdlog.Logger

	mu   sync.Mutex
	open map[Attempt]*jobSocket
}

// NewJobSockets keeps the sockets below dir, one folder per attempt.
func NewJobSockets(dir string, calls AttemptForwarder, log *slog.Logger) *JobSockets {
	return &JobSockets{
		dir: dir, calls: calls, open: make(map[Attempt]*jobSocket),
		httpLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), // users cause these
	}
}

// Open serves the socket of an attempt for the processes of uid, and returns its folder. The folder
// survives a restart of the daemon, since the task sees that very folder. An attempt that is
// already served is not changed.
func (s *JobSockets) Open(a Attempt, uid uint32) (folder string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	folder = filepath.Join(s.dir, a.String())
	if s.open[a] != nil {
		return folder, nil
	}
	listener, err := listenFor(folder, uid)
	if err != nil {
		return "", fmt.Errorf("socket for the commands of job %d: %w", a.Job, err)
	}
	j := &jobSocket{attempt: a, uid: uid, calls: s.calls}
	j.server = &http.Server{
		Handler: j, ReadHeaderTimeout: readTime, ReadTimeout: jobCallTime, IdleTimeout: callIdleTime,
		MaxHeaderBytes: 16 << 10, ErrorLog: s.httpLog,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, peerKey{}, c.(*jobConn).user)
		},
	}
	s.open[a] = j
	go func() { _ = j.server.Serve(&jobListener{listener, make(chan struct{}, maxJobConns)}) }() // until Close
	return folder, nil
}

// Close closes the socket of an attempt with all its connections, and removes its folder.
func (s *JobSockets) Close(a Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.open[a]; j != nil {
		j.server.Close()
		delete(s.open, a)
	}
	_ = os.RemoveAll(filepath.Join(s.dir, a.String())) // RemoveOthers removes what is left
}

// RemoveOthers removes the folders of attempts for which keep returns false.
func (s *JobSockets) RemoveOthers(keep func(Attempt) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entries, _ := os.ReadDir(s.dir) // a folder that does not exist holds none
	for _, e := range entries {
		if a, err := ParseAttempt(e.Name()); err != nil || !keep(a) {
			_ = os.RemoveAll(filepath.Join(s.dir, e.Name()))
		}
	}
}

// Stop closes all sockets and keeps their folders for the next daemon.
func (s *JobSockets) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a, j := range s.open {
		j.server.Close()
		delete(s.open, a)
	}
}

// listenFor opens the socket in folder, which it creates. It replaces a socket of an earlier
// daemon. The kernel lets only the user and root connect.
func listenFor(folder string, uid uint32) (*net.UnixListener, error) {
	if err := errors.Join(os.MkdirAll(filepath.Dir(folder), 0o700), os.MkdirAll(folder, 0o755), os.Chmod(folder, 0o755)); err != nil {
		return nil, err
	}
	path := filepath.Join(folder, SocketFile)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false) // the next daemon may have opened its own by then
	err = os.Chmod(path, 0o600)
	if err == nil && os.Geteuid() == 0 {
		err = os.Lchown(path, int(uid), -1)
	}
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// jobSocket is the socket of one attempt.
type jobSocket struct {
	attempt Attempt
	uid     uint32
	calls   AttemptForwarder
	server  *http.Server
}

// ServeHTTP forwards one call.
func (j *jobSocket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, known := r.Context().Value(peerKey{}).(peerUser)
	switch {
	case !known || user.uid != j.uid:
		RefuseRelay(w, http.StatusForbidden, fmt.Errorf("%w: %w, not uid %d", ErrDenied, errNotOwner, user.uid))
	case !isAPICall(r):
		RefuseRelay(w, http.StatusNotFound, errNotAPI)
	case r.Header.Get("Authorization") != "":
		RefuseRelay(w, http.StatusBadRequest, errJobToken)
	default:
		j.calls.ForwardFor(w, r, j.attempt, j.uid)
	}
}

var (
	errNotAPI   = errors.New("only API calls are forwarded")
	errJobToken = errors.New("a call from inside a job must not carry a token: gnoded adds the identity of the attempt")
)

// jobListener accepts at most cap(slots) connections at a time.
type jobListener struct {
	*net.UnixListener
	slots chan struct{}
}

// Accept returns the next connection with its user.
func (l *jobListener) Accept() (net.Conn, error) {
	for {
		l.slots <- struct{}{} // freed by the Close of each connection, so also by the server's
		conn, err := l.AcceptUnix()
		if err != nil {
			<-l.slots
			return nil, err
		}
		cred, err := peerCredentials(conn)
		if err == nil {
			return &jobConn{Conn: conn, user: peerUser{cred.Uid, cred.Gid}, free: sync.OnceFunc(func() { <-l.slots })}, nil
		}
		conn.Close()
		<-l.slots
	}
}

// jobConn is a connection of one user.
type jobConn struct {
	net.Conn
	user peerUser
	free func()
}

// Slotted is a connection that counts against the limit of a task's commands, until FreeSlot or Close.
type Slotted interface{ FreeSlot() }

// FreeSlot lets another connection take the place of this one, which lasts for longer than a call.
func (c *jobConn) FreeSlot() { c.free() }

// Close ends the connection.
func (c *jobConn) Close() error {
	defer c.free()
	return c.Conn.Close()
}
