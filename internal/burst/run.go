package burst

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/greylag/greylag/internal/runas"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	maxOutput   = 4 << 20         // bytes of standard output
	maxLogged   = 64 << 10        // bytes of standard error that are logged for each call
	maxLogLine  = 1 << 10         // bytes of a line of it
	endTime     = 2 * time.Second // wait for processes outside the process group that keep the output open
	hiddenToken = "[join token]"
)

var errTooLarge = errors.New("the answer is larger than 4 MiB")

// run runs the program once, and returns its output and exit status. At the deadline, and when the program has ended, it
// kills the process group. raw replaces the question as its input.
func (p *Program) run(ctx context.Context, call string, q *Question, raw []byte, log *slog.Logger) (output []byte, status int, _ *Error) {
	var attr syscall.SysProcAttr
	attr.Setpgid = true
	if p.cfg.User != "" {
		credential, err := runas.Credential(p.cfg.User)
		if err != nil {
			return nil, 0, fail(ErrProgram, "%v", err)
		}
		attr.Credential = credential
	}
	ctx, stop := context.WithTimeout(ctx, p.cfg.Timeout)
	defer stop()
	q.Deadline, _ = ctx.Deadline()
	q.Deadline = q.Deadline.UTC()
	input, err := json.Marshal(q)
	if err != nil {
		return nil, 0, fail(ErrProgram, "%v", err)
	}
	if raw != nil {
		input = raw
	}
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	out := &limitedBuffer{over: func() { abort(errTooLarge) }}
	errs := &lineLogger{log: log}
	if q.Launch != nil {
		errs.secret = q.Launch.UserData.Token
	}
	cmd := exec.CommandContext(ctx, p.cfg.Program, append(p.cfg.Args[:len(p.cfg.Args):len(p.cfg.Args)], call)...)
	cmd.Dir = "/"
	cmd.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"}, p.cfg.Environment...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = bytes.NewReader(append(input, '\n')), out, errs, &attr
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = endTime
	if err := cmd.Start(); err != nil {
		return nil, 0, fail(ErrProgram, "%v", err)
	}
	awaitExit(cmd.Process.Pid)
	_ = cmd.Cancel() // what it left behind; the group exists until the program is reaped
	err = cmd.Wait()
	errs.flush()
	return out.kept, cmd.ProcessState.ExitCode(), failure(ctx, err, log)
}

// failure returns why a run gave no answer; nil if it did, whatever its exit status.
func failure(ctx context.Context, err error, log *slog.Logger) *Error {
	var exit *exec.ExitError
	switch {
	case errors.Is(context.Cause(ctx), errTooLarge):
		return fail(ErrAnswer, "%v", errTooLarge)
	case ctx.Err() != nil && err != nil:
		return fail(ErrTimeout, "killed at its deadline")
	case errors.Is(err, exec.ErrWaitDelay):
		log.Warn("the provider program left processes that keep its output open")
		return nil
	case errors.As(err, &exit) && exit.Exited():
		return nil
	case err != nil:
		return fail(ErrProgram, "%v", err)
	}
	return nil
}

// awaitExit waits until a child process has ended, but does not reap it.
func awaitExit(pid int) {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// limitedBuffer keeps the first maxOutput bytes, and calls over if more follow.
type limitedBuffer struct {
	kept []byte // no bytes.Buffer, whose ReadFrom has no limit
	over func()
}

// Write never fails: the program may continue to write until it is killed.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	left := maxOutput - len(b.kept)
	if len(p) > left {
		b.over()
	}
	b.kept = append(b.kept, p[:min(left, len(p))]...)
	return len(p), nil
}

// lineLogger logs what the program writes to standard error, line by line.
type lineLogger struct {
	log    *slog.Logger
	secret string // is not logged
	line   []byte
	total  int
}

// Write never fails.
func (l *lineLogger) Write(p []byte) (int, error) {
	written := len(p)
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		part := p
		if i >= 0 {
			part = p[:i]
		}
		l.line = append(l.line, part[:min(len(part), max(0, maxLogLine+len(l.secret)-len(l.line)))]...)
		if i < 0 {
			break
		}
		l.flush()
		p = p[i+1:]
	}
	return written, nil
}

// flush logs the present line.
func (l *lineLogger) flush() {
	text := string(l.line)
	l.line = l.line[:0]
	if l.secret != "" {
		text = strings.ReplaceAll(text, l.secret, hiddenToken)
	}
	before := l.total
	l.total += len(text) + 1
	switch {
	case strings.TrimSpace(text) == "" || before > maxLogged:
	case l.total > maxLogged:
		l.log.Warn("the provider program wrote more than 64 KiB to standard error; the rest is not logged")
	default:
		l.log.Info("provider program", "line", cluster.Sanitize(text, maxLogLine))
	}
}
