package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/cli/ui/terminaltest"
	"github.com/greylag/greylag/test/cluster"
)

// session is a command that runs in a terminal of a login node.
type session struct {
	*site
	cmd  *exec.Cmd
	keys *os.File
	err  error         // of cmd.Wait, once gone is closed
	gone chan struct{} // closed when it has ended

	mu  sync.Mutex
	out strings.Builder
}

// session starts a command in a terminal with this number of rows, as the leader of its session.
func (s *site) session(rows uint16, program string, args ...string) *session {
	s.t.Helper()
	keys, terminal := terminaltest.Open(s.t, rows, 80)
	x := &session{site: s, cmd: s.login(program, args...), keys: keys, gone: make(chan struct{})}
	x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = terminal, terminal, terminal
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	s.must(x.cmd.Start())
	s.must(terminal.Close())
	go func() {
		defer close(x.gone)
		x.err = x.cmd.Wait()
	}()
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := keys.Read(buffer)
			x.mu.Lock()
			x.out.Write(buffer[:n])
			x.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return x
}

func (x *session) text() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.out.String()
}

// shows waits until the terminal shows text.
func (x *session) shows(text string) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), time.Minute)
	defer cancel()
	err := cluster.Until(ctx, text, func() (bool, error) {
		select {
		case <-x.gone:
			if !strings.Contains(x.text(), text) {
				return false, fmt.Errorf("it has ended: %w", x.err)
			}
		default:
		}
		return strings.Contains(x.text(), text), nil
	})
	if err != nil {
		x.t.Fatalf("%v: %v; the terminal shows %q", x.cmd.Args, err, x.text())
	}
}

func (x *session) types(text string) {
	x.t.Helper()
	_, err := x.keys.WriteString(text)
	x.must(err)
}

// exits waits for the end of the command.
func (x *session) exits(status int) {
	x.t.Helper()
	<-x.gone
	if got := x.cmd.ProcessState.ExitCode(); got != status {
		x.t.Errorf("%v: %v, want status %d; the terminal shows %q", x.cmd.Args, x.err, status, x.text())
	}
}

// detachKeys are the default ones: Ctrl-\ and d.
const detachKeys = "\x1cd"

// TestAttach leaves programs with a terminal running, and continues them from other commands.
func TestAttach(t *testing.T) {
	t.Parallel()
	s := newSite(t, cluster.Options{Controllers: 3, Nodes: 1, GPUs: 2, CPUs: 16, Memory: "8GiB", Tmpfs: true, Policy: quickKill()})
	t.Run("the login node of grun fails", func(t *testing.T) { attachAfterLoss(s.with(t)) })
	t.Run("keys leave an allocation to its shell", func(t *testing.T) { attachAllocation(s.with(t)) })
	t.Run("a shell in a running job", func(t *testing.T) { attachShell(s.with(t)) })
	s.idle(limited(t, hang))
}

// attachAfterLoss kills grun, and later every controller, and ends the step from the last command.
func attachAfterLoss(s *site) {
	first := s.session(24, "grun", allocated("--pty", "--detach-on-hangup", "sh")...)
	first.types("echo mark-$((20+3)) $GREYLAG_JOB_ID.; stty size\r")
	first.shows("24 80")
	ref := regexp.MustCompile(`mark-23 (\d+)\.`).FindStringSubmatch(first.text())
	if ref == nil {
		s.t.Fatalf("%q", first.text())
	}
	s.must(first.cmd.Process.Kill())
	<-first.gone
	second := s.session(30, "gctl", "attach", ref[1])
	second.shows("mark-23 " + ref[1] + ".")
	second.types("stty size\r")
	second.shows("30 80")
	leader := s.leader(limited(s.t, hang))
	for _, ctl := range append(s.others(leader), leader) {
		s.must(ctl.Kill())
		s.must(ctl.Start())
		s.leader(limited(s.t, hang))
	}
	second.types("echo after-$((20+4))\r")
	second.shows("after-24")
	third := s.session(40, "gslurm", "sattach", ref[1]+".0")
	second.shows("another command attached to step " + ref[1] + ".0")
	second.exits(0)
	third.shows("after-24")
	if r := s.run(alice, "gctl", "attach", ref[1]); r.Exit == 0 {
		s.t.Errorf("another user attaches: %+v", r)
	}
	third.types("exit 5\r")
	third.exits(5)
	var id uint64
	_, err := fmt.Sscan(ref[1], &id)
	s.must(err)
	if j := s.ends(id, "FAILED"); j.ExitCode != 5 {
		s.t.Errorf("%v", j)
	}
}

func attachAllocation(s *site) {
	first := s.session(24, "gctl", append([]string{"alloc"}, allocated()...)...)
	first.types("echo in $GREYLAG_JOB_ID.\r")
	first.until("the job's ID", func() (bool, error) { return regexp.MustCompile(`in \d+\.`).MatchString(first.text()), nil })
	first.types(detachKeys)
	first.shows("detached; reattach with gctl attach ")
	first.exits(0)
	ref := regexp.MustCompile(`detached; reattach with gctl attach ((\d+)\.interactive)`).FindStringSubmatch(first.text())
	if ref == nil {
		s.t.Fatalf("%q", first.text())
	}
	var id uint64
	_, err := fmt.Sscan(ref[2], &id)
	s.must(err)
	s.stillRuns(limited(s.t, hang), id)
	second := s.session(24, "gctl", "attach", "--detach-keys=ctrl-p,ctrl-q", ref[1])
	second.shows("in " + ref[2] + ".")
	second.types("\x10\x11")
	second.exits(0)
	third := s.session(24, "gctl", "attach", ref[1])
	third.shows("in " + ref[2] + ".")
	third.types("exit 0\r")
	third.exits(0)
	s.ends(id, "COMPLETED")
	if r := s.finish(s.login("gctl", "attach", ref[1])); r.Exit == 0 || !strings.Contains(r.Stderr, "not RUNNING") {
		s.t.Errorf("after the end: %+v", r)
	}
}

func attachShell(s *site) {
	id := s.gsubmit(tester, "--wrap", "sleep 1000")
	ref := fmt.Sprint(id)
	s.await(limited(s.t, hang), id, "RUNNING")
	early := s.session(24, "gctl", "attach", ref)
	early.shows("no running step with a terminal")
	early.exits(1)
	first := s.session(24, "gctl", "shell", ref, "--detach-on-hangup")
	first.types("echo in-$GREYLAG_JOB_ID\r")
	first.shows("in-" + ref)
	s.must(first.cmd.Process.Signal(syscall.SIGHUP)) // as when the terminal closes
	first.exits(0)
	second := s.session(24, "gctl", "attach", ref)
	second.shows("in-" + ref)
	second.types("exit 6\r")
	second.exits(6)
	s.stillRuns(limited(s.t, hang), id)
	s.cancel(limited(s.t, hang), id)
	s.ends(id, "CANCELLED")
}
