package submitfilter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"github.com/greylag/greylag/internal/runas"
)

const (
	maxOutput = 1 << 20     // bytes of standard output
	maxStderr = 4 << 10     // bytes of standard error that are logged
	endTime   = time.Second // wait for child processes that keep the output open
)

var errTooLarge = errors.New("its answer is larger than 1 MiB")

// run runs the program once. It kills the process group at the deadline, or when the output is too
// large.
func (f *Filter) run(ctx context.Context, input []byte) (output []byte, stderr string, err error) {
	credential, err := runas.Credential(f.cfg.User)
	if err != nil {
		return nil, "", err
	}
	ctx, stop := context.WithTimeout(ctx, f.cfg.Deadline)
	defer stop()
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	cmd := exec.CommandContext(ctx, f.cfg.Program)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"}
	out := &bounded{most: maxOutput, over: func() { abort(errTooLarge) }}
	log := &bounded{most: maxStderr, over: func() {}}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), out, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: credential}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = endTime
	err = cmd.Run()
	stderr = string(log.kept)
	switch {
	case errors.Is(context.Cause(ctx), errTooLarge):
		return nil, stderr, errTooLarge
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, stderr, fmt.Errorf("it did not answer within %v", f.cfg.Deadline)
	case errors.Is(err, exec.ErrWaitDelay):
		_ = cmd.Cancel() // the process group exists as long as the children do
		return nil, stderr, errors.New("it left child processes")
	case err != nil:
		return nil, stderr, err
	}
	return out.kept, stderr, nil
}

// bounded keeps the first most bytes of an output, and calls over if more follow.
type bounded struct {
	kept []byte // no bytes.Buffer, whose ReadFrom has no bound
	most int
	over func()
}

// Write never fails: the program may continue to write until it is killed.
func (b *bounded) Write(p []byte) (int, error) {
	left := b.most - len(b.kept)
	if len(p) > left {
		b.over()
	}
	b.kept = append(b.kept, p[:min(left, len(p))]...)
	return len(p), nil
}
