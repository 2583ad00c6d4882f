// Package userchild runs a program of Greylag as a user for a daemon with more rights: work in files that the user named.
//
// A file server that does not answer holds only the child. The child reads one order and writes one answer, both JSON. It
// gets no variable of the daemon, and can be limited by a control group.
package userchild

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Group limits what a child uses.
type Group interface {
	Add(pid int) error // before the child has read its order
	Remove() error     // after the child has ended
}

// Command is how a child is run.
type Command struct {
	Program string              // its path; the user need not be able to follow it
	Name    string              // first argument
	As      *syscall.Credential // nil: this process
	Cores   int
	Env     []string // as KEY=VALUE
	Group   Group    // nil: that of this process
	// Secret is a file that the child may read and whose path the user may not be able to follow, and SecretVariable the
	// variable with the path at which the child finds it. nil: none.
	Secret         *os.File
	SecretVariable string
	// Private sends the order, which has secrets, only after the child has called Hide: other processes of the user
	// cannot read its memory then.
	Private bool
}

// ErrNoAnswer means that a child has ended without an answer.
var ErrNoAnswer = errors.New("no answer")

// Run starts a child, sends it the order, and reads its answer. When ctx ends it kills the child, which may outlive the
// call if a file server holds it, and returns the error of ctx.
func Run(ctx context.Context, c Command, order, answer any) error {
	text, err := json.Marshal(order)
	if err != nil {
		return err
	}
	file, err := os.Open(c.Program)
	if err != nil {
		return err
	}
	defer file.Close()
	out := limitedBuffer{begun: make(chan struct{})}
	cmd := exec.Command("/proc/self/fd/3", c.Name)
	cmd.ExtraFiles = []*os.File{file}
	cmd.Stdout, cmd.Dir = &out, "/"
	cmd.Env = append(append([]string{}, c.Env...), "GOMAXPROCS="+strconv.Itoa(max(c.Cores, 1)))
	if c.Secret != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, c.Secret)
		cmd.Env = append(cmd.Env, c.SecretVariable+"=/proc/self/fd/4")
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: c.As}
	var ready <-chan struct{}
	if c.Private {
		ready = out.begun
	}
	ended, err := start(ctx, cmd, c.Group, text, ready)
	if err != nil {
		return err
	}
	select {
	case err = <-ended:
	case <-ctx.Done():
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended
		return ctx.Err()
	}
	switch {
	case err != nil:
		return err
	case json.Unmarshal(out.text, answer) != nil:
		return ErrNoAnswer
	}
	return nil
}

// maxAnswer is the most bytes of an answer: the user's processes may change what the child writes.
const maxAnswer = 1 << 20

// limitedBuffer is a buffer that refuses more than maxAnswer bytes. It has no method ReadFrom, as [bytes.Buffer] has:
// [io.Copy] would call that in place of Write.
type limitedBuffer struct {
	text  []byte
	begun chan struct{} // closed with the first byte
}

// Write fails at the limit.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	if len(b.text) == 0 && len(p) > 0 {
		close(b.begun)
	}
	if len(b.text)+len(p) > maxAnswer {
		return 0, ErrNoAnswer
	}
	b.text = append(b.text, p...)
	return len(p), nil
}

// start starts a child in a group and sends it its order, once it is ready. The child waits for the order, so that all that
// it uses counts for the group. How it ends is sent when nothing of the group is left.
func start(ctx context.Context, cmd *exec.Cmd, group Group, order []byte, ready <-chan struct{}) (<-chan error, error) {
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	// Its memory may grow with what a user wrote: it is killed before the daemons and the jobs.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", cmd.Process.Pid), []byte("900"), 0) // it may have ended
	if group != nil {
		err = group.Add(cmd.Process.Pid)
	}
	exited, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		failed := cmd.Wait()
		close(exited)
		if group != nil {
			_ = group.Remove() // the next start of the daemon removes it
		}
		ended <- cmp.Or(err, failed)
	}()
	if ready != nil {
		select {
		case <-ready:
		case <-exited:
		case <-ctx.Done():
		}
	}
	if err == nil && ctx.Err() == nil {
		_, _ = input.Write(order) // if it has ended, its exit says more
	}
	_ = input.Close()
	return ended, nil
}

// Hide keeps other processes of the user from reading the memory and the files of this one, and says so to the daemon.
func Hide(out io.Writer) error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hide the process: %w", err)
	}
	_, err := io.WriteString(out, "\n") // space before the answer
	return err
}

// Serve is the child: it reads an order, and writes the answer of work. It returns the exit status.
func Serve[Order, Answer any](in io.Reader, out io.Writer, work func(Order) Answer) int {
	var order Order
	if json.NewDecoder(in).Decode(&order) != nil {
		return 2
	}
	if json.NewEncoder(out).Encode(work(order)) != nil {
		return 1
	}
	return 0
}
