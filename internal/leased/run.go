package leased

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// maxOutput bounds what is read of a source or a program, in bytes.
const maxOutput = 64 << 10

// Run runs a program in a process group, which ends with ctx, and returns its output. Errors contain the end of its
// error output.
func Run(ctx context.Context, words []string, input string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir, cmd.Stdin, cmd.WaitDelay = "/", strings.NewReader(input), time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out, problem limited
	cmd.Stdout, cmd.Stderr = &out, &problem
	err := cmd.Run()
	switch {
	case err == nil || errors.Is(err, exec.ErrWaitDelay):
		return out.text.Bytes(), nil
	case ctx.Err() != nil:
		err = ctx.Err()
	}
	return nil, fmt.Errorf("%s: %w %s", strings.Join(words, " "), err, outputOf(problem.text.Bytes()))
}

// limited keeps the first maxOutput bytes that are written to it.
type limited struct{ text bytes.Buffer } // not embedded: io.Copy would call its ReadFrom, which has no limit

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	if left := maxOutput - l.text.Len(); left > 0 {
		_, _ = l.text.Write(p[:min(len(p), left)]) // never fails
	}
	return len(p), nil
}
