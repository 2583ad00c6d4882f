package auth

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/pkg/cluster"
)

// The protocol on the socket is one line each way: the client sends request, the daemon answers "ok
// TOKEN" or "error CODE TEXT"; otherwise it is HTTP (relay.go). A line is required, so that
// connecting alone, which a set-user-id program might be tricked into, yields nothing.
const (
	request = "greylag token 1\n"

	codeUnknownUser = "unknown_user"
	codeForeign     = "foreign_user"
	codeBusy        = "busy"
	codeNotJoined   = "not_joined"
	codeBadRequest  = "bad_request"
	codeInternal    = "internal"
)

// Bounds of the daemon. Each user may hold a few connections, so that idle connections of one do
// not lock the others out.
const (
	maxConns     = 1024
	maxUserConns = 32
	readTime     = 2 * time.Second
	writeTime    = 2 * time.Second
)

// Daemon identifies callers on a Unix socket, and forwards calls in their name. It owns only the
// connections that it serves.
type Daemon struct {
	signer   *Signer
	names    *Names
	log      *slog.Logger
	overflow uint32 // the kernel's uid for users of other user namespaces
	calls    Forwarder
	httpLog  *stdlog.Logger

	mu     sync.Mutex
	users  map[uint32]int           // connections in service by uid
	tokens map[peerUser]cachedToken // for forwarded calls
}

// NewDaemon returns a daemon that signs with signer's key, and forwards calls through calls.
func NewDaemon(signer *Signer, names *Names, calls Forwarder, log *slog.Logger) *Daemon {
	return &Daemon{
		signer: signer, names: names, calls: calls, log: log, overflow: overflowUID(),
		httpLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), // users cause these
		users:   make(map[uint32]int), tokens: make(map[peerUser]cachedToken),
	}
}

// Serve answers on listener until ctx ends, then closes it, waits for the connections in service
// (seconds at most) and returns nil. It returns an error only if accepting fails permanently.
func (d *Daemon) Serve(ctx context.Context, listener *net.UnixListener) error {
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	defer listener.Close()
	var serving sync.WaitGroup
	defer serving.Wait()
	calls := &connListener{conns: make(chan net.Conn), done: make(chan struct{}), addr: listener.Addr()}
	defer calls.Close()
	serving.Go(func() { d.relay(calls) })
	slots := make(chan struct{}, maxConns)
	for {
		slots <- struct{}{} // full: the kernel's backlog waits too
		conn, err := listener.AcceptUnix()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				conn.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept on %s: %w", listener.Addr(), err)
		case err != nil: // out of descriptors, or the client is gone already
			<-slots
			d.log.Warn("accept failed, trying again", "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		cred, err := peerCredentials(conn)
		if err != nil {
			d.log.Warn("cannot read peer credentials", "err", err)
			conn.Close()
			<-slots
			continue
		}
		admitted := d.enter(cred.Uid) // here, so that connections count in order of arrival
		serving.Go(func() {
			defer func() { <-slots }()
			defer conn.Close()
			if admitted {
				defer d.leave(cred.Uid)
			}
			d.serve(ctx, &visit{conn, cred, calls}, admitted)
		})
	}
}

// visit is one connection.
type visit struct {
	conn  *net.UnixConn
	cred  *syscall.Ucred
	calls *connListener // for anything that is no token request
}

func (d *Daemon) serve(ctx context.Context, v *visit, admitted bool) {
	conn, cred := v.conn, v.cred
	answer := "error " + codeBusy + " user has too many connections to gauthd open\n"
	if admitted {
		said := bufio.NewReader(conn)
		_ = conn.SetReadDeadline(time.Now().Add(readTime))
		if beginsCall(said) {
			v.handOver(said)
			return
		}
		if err := readRequest(said); err != nil {
			d.log.Debug("bad request", "uid", cred.Uid, "pid", cred.Pid, "err", err)
			answer = "error " + codeBadRequest + " this gauthd does not speak the caller's language\n"
		} else {
			answer = d.answer(ctx, cred)
		}
	}
	_ = conn.SetWriteDeadline(time.Now().Add(writeTime))
	_, _ = io.WriteString(conn, answer) // a client that left asks again
}

// beginsCall distinguishes a call from a token request by as few bytes as possible.
func beginsCall(said *bufio.Reader) bool {
	for n := 1; n <= len(callStart); n++ {
		if start, err := said.Peek(n); err != nil || start[n-1] != callStart[n-1] {
			return false
		}
	}
	return true
}

// handOver leaves a connection to the HTTP server until it is closed.
func (v *visit) handOver(said *bufio.Reader) {
	c := &relayed{Conn: v.conn, front: said, user: peerUser{v.cred.Uid, v.cred.Gid}, over: make(chan struct{})}
	select {
	case v.calls.conns <- c:
		<-c.over
	case <-v.calls.done:
	}
}

// vouch signs the identity that the kernel reports.
func (d *Daemon) vouch(ctx context.Context, user peerUser, now time.Time) (string, error) {
	if user.uid == d.overflow {
		return "", ErrForeign
	}
	name, err := d.names.Name(ctx, user.uid)
	if err != nil {
		return "", err
	}
	return d.signer.Token(cluster.Identity{User: name, UID: user.uid, GID: user.gid}, now)
}

// answer returns the line for a caller with these credentials.
func (d *Daemon) answer(ctx context.Context, cred *syscall.Ucred) string {
	token, err := d.vouch(ctx, peerUser{cred.Uid, cred.Gid}, time.Now())
	switch {
	case errors.Is(err, ErrForeign):
		return fmt.Sprintf("error %s uid %d is the overflow UID of another user namespace\n", codeForeign, cred.Uid)
	case errors.Is(err, ErrUnknownUser):
		return fmt.Sprintf("error %s uid %d\n", codeUnknownUser, cred.Uid)
	case errors.Is(err, pki.ErrNoIdentity):
		d.log.Error("cannot sign", "err", err)
		return "error " + codeNotJoined + " the certificate of this host has ended\n"
	case err != nil:
		d.log.Error("cannot issue a token for the user", "uid", cred.Uid, "err", err)
		return fmt.Sprintf("error %s cannot issue a token for uid %d now\n", codeInternal, cred.Uid)
	}
	d.log.Debug("token signed", "uid", cred.Uid, "pid", cred.Pid)
	return "ok " + token + "\n"
}

func (d *Daemon) enter(uid uint32) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.users[uid] >= maxUserConns {
		return false
	}
	d.users[uid]++
	return true
}

func (d *Daemon) leave(uid uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.users[uid]--; d.users[uid] == 0 {
		delete(d.users, uid)
	}
}

// readRequest reads at most the length of a request, whatever was sent.
func readRequest(said io.Reader) error {
	line, err := bufio.NewReaderSize(io.LimitReader(said, int64(len(request))), 64).ReadString('\n')
	if err != nil {
		return err
	}
	if line != request {
		return fmt.Errorf("unknown request %q", strings.TrimSpace(line))
	}
	return nil
}
