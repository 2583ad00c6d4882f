package health

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"
)

// maxLine limits the line of a program's output that is shown, in bytes.
const maxLine = 200

// timeoutsToDrain is how many runs of the health program in a row may be killed before the node is drained.
const timeoutsToDrain = 3

// Program is the result of the runs of a site's health program.
type Program struct {
	Failed   string // why the node takes no new jobs; "" when it may
	Notice   string // why there is no result
	Timeouts uint64 // runs that were killed
	inRow    int
}

// Ran returns the result after another run, which ended with err and the last line.
func (p Program) Ran(program string, limit time.Duration, line string, err error) Program {
	var exit *exec.ExitError
	p.Failed, p.Notice = "", ""
	switch {
	case err == nil:
		p.inRow = 0
	case errors.Is(err, context.DeadlineExceeded):
		p.Timeouts++
		p.inRow++
		p.Notice = fmt.Sprintf("%s was killed after %s", program, limit)
		if p.inRow >= timeoutsToDrain {
			p.Failed, p.Notice = fmt.Sprintf("%s was killed after %s, %d times in a row", program, limit, p.inRow), ""
		}
	case errors.As(err, &exit):
		p.inRow = 0
		p.Failed = fmt.Sprintf("%s: %v", program, err)
		if line != "" {
			p.Failed = fmt.Sprintf("%s: %s", program, line)
		}
	default:
		p.Notice = fmt.Sprintf("%s cannot be run: %v", program, err)
	}
	return p
}

// Run runs a program as this user, with a limit on its time, and returns the last line of its output. The
// error wraps context.DeadlineExceeded if the program was killed, and *exec.ExitError if it failed.
func Run(ctx context.Context, program, node string, limit time.Duration, environment ...string) (line string, err error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var out lastBytes
	cmd := exec.CommandContext(limited, program)
	cmd.Env, cmd.Dir = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "SLURMD_NODENAME=" + node, "GREYLAG_NODE=" + node}, "/"
	cmd.Env = append(cmd.Env, environment...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // for children that keep our pipe open
	err = cmd.Run()
	switch {
	case errors.Is(err, exec.ErrWaitDelay):
		err = nil
	case ctx.Err() != nil:
		err = ctx.Err()
	case limited.Err() != nil:
		err = limited.Err()
	}
	return out.line(), err
}

// lastBytes keeps the end of what is written to it.
type lastBytes struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (b *lastBytes) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = append(b.text, p...)
	b.text = append(b.text[:0], b.text[max(0, len(b.text)-8*maxLine):]...)
	return len(p), nil
}

// line returns the last line with text.
func (b *lastBytes) line() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := strings.TrimSpace(strings.ToValidUTF8(string(b.text), "?"))
	text = strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
	if len(text) > maxLine {
		text = text[:maxLine]
		for !utf8.ValidString(text) {
			text = text[:len(text)-1]
		}
		text += "..."
	}
	return text
}
