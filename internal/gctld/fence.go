package gctld

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/greylag/greylag/internal/config"
)

const (
	maxFenceOutput = 4 << 10     // bytes of the end of the output that are kept
	maxFenceLine   = 200         // bytes of its last line in a message
	fenceEndTime   = time.Second // wait for child processes that keep the output open
)

// fenceBy returns a function that runs the site's program for a node; nil without one. It kills the process group at
// the deadline, or when its ctx ends.
func fenceBy(cfg config.Fence) func(context.Context, string) error {
	if cfg.Program == "" {
		return nil
	}
	return func(ctx context.Context, node string) error {
		ctx, stop := context.WithTimeout(ctx, cfg.Timeout)
		defer stop()
		var out lastOutput
		cmd := exec.CommandContext(ctx, cfg.Program, node)
		cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "GREYLAG_NODE=" + node}
		cmd.Stdout, cmd.Stderr = &out, &out
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		cmd.WaitDelay = fenceEndTime
		err := cmd.Run()
		switch {
		case ctx.Err() != nil && err != nil:
			return fmt.Errorf("%s was killed after %s", cfg.Program, cfg.Timeout)
		case errors.Is(err, exec.ErrWaitDelay):
			_ = cmd.Cancel() // the process group exists as long as the children do
			return fmt.Errorf("%s left child processes", cfg.Program)
		case err != nil && out.line() != "":
			return fmt.Errorf("%s: %w: %s", cfg.Program, err, out.line())
		case err != nil:
			return fmt.Errorf("%s: %w", cfg.Program, err)
		}
		return nil
	}
}

// lastOutput keeps the end of what is written to it. Standard output and error are one, so that it has one writer.
type lastOutput struct{ text []byte }

// Write implements io.Writer.
func (o *lastOutput) Write(p []byte) (int, error) {
	o.text = append(o.text, p[max(0, len(p)-maxFenceOutput):]...)
	o.text = append(o.text[:0], o.text[max(0, len(o.text)-maxFenceOutput):]...)
	return len(p), nil
}

// line returns the last line with text.
func (o *lastOutput) line() string {
	text := strings.TrimSpace(strings.ToValidUTF8(string(o.text), "?"))
	text = text[strings.LastIndexByte(text, '\n')+1:]
	if len(text) > maxFenceLine {
		text = text[:maxFenceLine]
		for !utf8.ValidString(text) {
			text = text[:len(text)-1]
		}
		text += "..."
	}
	return text
}
