package auth

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/greylag/greylag/internal/hint"
)

// ErrNoDaemon marks a host on which no gauthd answers.
var ErrNoDaemon = errors.New("cannot authenticate: gauthd does not respond")

// ErrForeign marks a caller of another user namespace, whom the kernel cannot identify here.
var ErrForeign = errors.New("cannot authenticate the user")

// errBusy is the daemon's answer to a user with many open connections; it is temporary.
var errBusy = errors.New("gauthd is busy")

// Times of a fetch: gauthd answers in a millisecond, or in a few seconds when it must query a
// directory.
const (
	fetchTime    = 10 * time.Second
	restartTime  = 500 * time.Millisecond // how long a daemon that does not answer may be restarting
	firstBackoff = 20 * time.Millisecond
	mostBackoff  = 500 * time.Millisecond
)

// FetchToken asks the gauthd of this host for a token of the calling user. It retries while the
// daemon restarts or is busy with many calls of this user. The errors wrap ErrNoDaemon,
// ErrUnknownUser or ErrForeign where applicable, and carry a hint. One exchange over a Unix socket,
// about 130 µs.
func FetchToken(ctx context.Context, socket string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	began := time.Now()
	token, err := fetch(ctx, socket)
	for wait := firstBackoff; errors.Is(err, errBusy) || restarting(err) && time.Since(began) < restartTime; wait = min(2*wait, mostBackoff) {
		select {
		case <-ctx.Done():
			return "", fetchFailed(socket, err)
		case <-time.After(wait/2 + rand.N(wait)):
			token, err = fetch(ctx, socket)
		}
	}
	if err != nil {
		return "", fetchFailed(socket, err)
	}
	return token, nil
}

// AwaitDaemon returns when the gauthd of this host has answered, whatever the answer is, or ctx ends.
func AwaitDaemon(ctx context.Context, socket string) {
	for ctx.Err() == nil {
		once, cancel := context.WithTimeout(ctx, fetchTime)
		_, err := ask(once, socket)
		if cancel(); err == nil {
			return
		}
		time.Sleep(mostBackoff)
	}
}

// restarting reports whether err is typical of a daemon that ends or has not started yet.
func restarting(err error) bool {
	for _, e := range []error{syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE, io.EOF} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// fetchFailed adds a hint to an error without one.
func fetchFailed(socket string, err error) error {
	if hint.Of(err) != "" {
		return err
	}
	return hint.New(fmt.Errorf("%w on %s: %w", ErrNoDaemon, socket, err), fetchHint(err))
}

func fetchHint(err error) string {
	switch {
	case errors.Is(err, syscall.ENOENT):
		return "jobs are submitted from login nodes; on one, start the daemon: systemctl start gauthd"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the daemon has ended; start it: systemctl start gauthd"
	case errors.Is(err, syscall.EACCES):
		return "the socket must be accessible to all users (mode 0666), and so must its directory"
	}
	return "see why in the daemon's log: journalctl -u gauthd"
}

func fetch(ctx context.Context, socket string) (string, error) {
	line, err := ask(ctx, socket)
	if err != nil {
		return "", err
	}
	return parseAnswer(line)
}

// ask returns the daemon's answer to one request.
func ask(ctx context.Context, socket string) (line string, err error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	_, sent := io.WriteString(conn, request) // a daemon that is busy may answer without reading
	line, err = bufio.NewReader(io.LimitReader(conn, maxToken+4)).ReadString('\n')
	if err != nil {
		return "", errors.Join(sent, err)
	}
	return strings.TrimSuffix(line, "\n"), nil
}

// parseAnswer reads the daemon's line.
func parseAnswer(line string) (string, error) {
	if token, ok := strings.CutPrefix(line, "ok "); ok && token != "" {
		return token, nil
	}
	text, ok := strings.CutPrefix(line, "error ")
	if !ok {
		return "", fmt.Errorf("answer %.40q is not gauthd's", line)
	}
	code, detail, _ := strings.Cut(text, " ")
	switch code {
	case codeUnknownUser:
		return "", hint.New(fmt.Errorf("%w: %s", ErrUnknownUser, detail), "your account was removed, or its directory service is down: try id")
	case codeForeign:
		return "", hint.New(fmt.Errorf("%w: %s", ErrForeign, detail), "run the command outside the container or user namespace")
	case codeBusy:
		return "", hint.New(fmt.Errorf("%w: %w: %s", ErrNoDaemon, errBusy, detail), "many commands run at once; try again")
	case codeNotJoined:
		return "", hint.New(fmt.Errorf("%w: %s", ErrNoDaemon, detail), "an administrator joins this host again: gctl join TOKEN@HOST")
	}
	return "", hint.New(fmt.Errorf("%w: %.200q", ErrNoDaemon, detail), "see why in the daemon's log: journalctl -u gauthd")
}
