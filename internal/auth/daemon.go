package auth

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/pkg/cluster"
)

// The conversation on the socket is one line each way: the client sends request, the daemon answers
// "ok TOKEN" or "error CODE TEXT". A line is asked for, so that connecting alone, which a set-user-id
// program might be tricked into, yields nothing.
const (
	request = "greylag token 1\n"

	codeUnknownUser = "unknown_user"
	codeForeign     = "foreign_user"
	codeBusy        = "busy"
	codeNotJoined   = "not_joined"
	codeBadRequest  = "bad_request"
	codeInternal    = "internal"
)

// Bounds of the daemon. One user may hold a few connections, so that nobody can keep the others out
// by connecting and saying nothing.
const (
	maxConns     = 1024
	maxUserConns = 32
	readTime     = 2 * time.Second
	writeTime    = 2 * time.Second
)

// Daemon answers on a Unix socket who is asking. It owns nothing but the connections it serves.
type Daemon struct {
	signer   *Signer
	names    *Names
	log      *slog.Logger
	overflow uint32 // what the kernel calls users that have no uid here
	mu       sync.Mutex
	users    map[uint32]int // connections in service by uid
}

// NewDaemon makes a daemon that vouches with signer's key.
func NewDaemon(signer *Signer, names *Names, log *slog.Logger) *Daemon {
	return &Daemon{signer: signer, names: names, log: log, overflow: overflowUID(), users: make(map[uint32]int)}
}

// Serve answers on listener until ctx ends, then closes it, waits for the connections in service
// (seconds at most) and returns nil. It returns an error only if accepting fails for good.
func (d *Daemon) Serve(ctx context.Context, listener *net.UnixListener) error {
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	defer listener.Close()
	var serving sync.WaitGroup
	defer serving.Wait()
	slots := make(chan struct{}, maxConns)
	for {
		slots <- struct{}{} // full: the kernel's backlog waits with us
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
			d.log.Warn("accept failed, trying again", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		cred, err := peerCredentials(conn)
		if err != nil {
			d.log.Warn("cannot read peer credentials", "error", err)
			conn.Close()
			<-slots
			continue
		}
		admitted := d.enter(cred.Uid) // here, so that connections count in the order they came
		serving.Go(func() {
			defer func() { <-slots }()
			defer conn.Close()
			if admitted {
				defer d.leave(cred.Uid)
			}
			d.serve(ctx, conn, cred, admitted)
		})
	}
}

func (d *Daemon) serve(ctx context.Context, conn *net.UnixConn, cred *syscall.Ucred, admitted bool) {
	answer := "error " + codeBusy + " user has too many connections to gauthd open\n"
	if admitted {
		if err := readRequest(conn); err != nil {
			d.log.Debug("bad request", "uid", cred.Uid, "pid", cred.Pid, "error", err)
			answer = "error " + codeBadRequest + " this gauthd does not speak the caller's language\n"
		} else {
			answer = d.answer(ctx, cred)
		}
	}
	_ = conn.SetWriteDeadline(time.Now().Add(writeTime))
	_, _ = io.WriteString(conn, answer) // a client that is gone asks again
}

// answer is the line for a caller with these credentials.
func (d *Daemon) answer(ctx context.Context, cred *syscall.Ucred) string {
	if cred.Uid == d.overflow {
		return fmt.Sprintf("error %s uid %d stands for users of another user namespace\n", codeForeign, cred.Uid)
	}
	name, err := d.names.Name(ctx, cred.Uid)
	if errors.Is(err, ErrUnknownUser) {
		return fmt.Sprintf("error %s uid %d\n", codeUnknownUser, cred.Uid)
	}
	var token string
	if err == nil {
		token, err = d.signer.Token(cluster.Identity{User: name, UID: cred.Uid, GID: cred.Gid}, time.Now())
	}
	switch {
	case errors.Is(err, pki.ErrNoIdentity):
		d.log.Error("cannot sign", "error", err)
		return "error " + codeNotJoined + " the certificate of this host has ended\n"
	case err != nil:
		d.log.Error("cannot vouch for user", "uid", cred.Uid, "error", err)
		return fmt.Sprintf("error %s cannot vouch for uid %d now\n", codeInternal, cred.Uid)
	}
	d.log.Debug("token signed", "user", name, "uid", cred.Uid, "pid", cred.Pid)
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

// readRequest reads at most the length of a request, however much is sent.
func readRequest(conn *net.UnixConn) error {
	_ = conn.SetReadDeadline(time.Now().Add(readTime))
	line, err := bufio.NewReaderSize(io.LimitReader(conn, int64(len(request))), 64).ReadString('\n')
	if err != nil {
		return err
	}
	if line != request {
		return fmt.Errorf("unknown request %q", strings.TrimSpace(line))
	}
	return nil
}
