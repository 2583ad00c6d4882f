package agent

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	tasks "github.com/greylag/greylag/internal/runtime"
)

// stuck is a runtime that can neither kill nor remove task 1 while its processes do not end.
type stuck struct {
	tasks.Runtime
	killed  atomic.Bool
	silent  atomic.Bool // it accepts no signals
	signals atomic.Int64
	process int // of task 1; 0: none, and a mount is busy
}

// zombie returns a process that has ended, but exists until the end of the test.
func zombie(t *testing.T) int {
	t.Helper()
	c := exec.Command("true")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Wait() })
	waitFor(t, "its end", func() bool { return isKilled("/proc", c.Process.Pid) })
	return c.Process.Pid
}

func (s *stuck) Remove(ctx context.Context, id tasks.TaskID) error {
	switch {
	case id.Job != 1 || s.killed.Load():
	case s.process == 0:
		return errors.New("failed to unmount target /run/task/rootfs: device or resource busy")
	default:
		return errors.New("its processes do not end")
	}
	return s.Runtime.Remove(ctx, id)
}

func (s *stuck) Signal(ctx context.Context, id tasks.TaskID, sig syscall.Signal, all bool) error {
	if id.Job == 1 && s.silent.Load() {
		s.signals.Add(1)
		return errors.New("containerd does not answer")
	}
	if id.Job == 1 && sig != syscall.SIGCONT && !s.killed.Load() {
		return nil // it receives it when its system call ends
	}
	return s.Runtime.Signal(ctx, id, sig, all)
}

// Processes implements tasks.ProcessLister.
func (s *stuck) Processes(tasks.TaskID) ([]int, error) {
	if s.process == 0 {
		return nil, nil
	}
	return []int{s.process}, nil
}

// stuckNode returns a node whose task 1 ends when rt.killed is set.
func stuckNode(t *testing.T, rt *stuck) *node {
	return newNode(t, "process", func(n *node) {
		open := n.open
		n.cfg.UnkillableAfter = time.Second
		n.open = func() (tasks.Runtime, func() error, error) {
			inner, end, err := open()
			rt.Runtime = inner
			return rt, end, err
		}
	})
}

// TestUnkillableTask: the node reports a draining condition of its job that names the process, another task
// ends as usual, and the condition ends with the task.
func TestUnkillableTask(t *testing.T) {
	t.Parallel()
	rt := &stuck{process: zombie(t)}
	n := stuckNode(t, rt)
	n.want(at(1, 1), "#!/bin/sh\n", nil)
	n.until("a condition", func() bool {
		c := n.condition(causeUnkillable)
		return strings.HasPrefix(c, "drains 1: the task of job 1 cannot be removed: its processes do not end; process ") && strings.Contains(c, "(true)")
	})
	n.until("a report of the end without the processes", func() bool { return n.last(at(1, 1)).GetStuck() })
	n.want(at(2, 1), "#!/bin/sh\n", nil)
	n.settled(at(2, 1))
	rt.killed.Store(true)
	n.settled(at(1, 1))
	n.until("its end", func() bool { return n.condition(causeUnkillable) == "" })
}

// TestTaskOutlivesSIGKILL: a task whose first process waits in the kernel counts as ended, also after a
// restart of gnoded, and its job does not wait for its processes.
func TestTaskOutlivesSIGKILL(t *testing.T) {
	t.Parallel()
	rt := &stuck{process: zombie(t)}
	rt.silent.Store(true)
	n := stuckNode(t, rt)
	n.want(at(1, 1), "#!/bin/sh\nexec sleep 600\n", func(w *greylagv1.WantedTask) { w.KillWait = nil })
	n.reach(at(1, 1), "started")
	n.change(func() { n.wanted[at(1, 1)].Stop = true })
	waitFor(t, "SIGKILLs that fail for longer than UnkillableAfter", func() bool { return rt.signals.Load() > 6 })
	if phase := n.reach(at(1, 1), "started").GetPhase(); phase != greylagv1.TaskPhase_TASK_PHASE_STARTED {
		t.Fatalf("%v although no SIGKILL was delivered", phase)
	}
	rt.silent.Store(false)
	reported := func() bool {
		r := n.last(at(1, 1))
		return r.GetStuck() && r.GetCause() == greylagv1.TaskCause_TASK_CAUSE_STOPPED && r.GetExitSignal() == int32(syscall.SIGKILL) &&
			strings.Contains(n.condition(causeUnkillable), "its processes still exist")
	}
	n.until("its end without the processes", reported)
	n.change(func() { delete(n.wanted, at(1, 1)) }) // its job has ended
	n.stop()
	n.change(func() { n.reports = nil })
	n.start()
	n.until("a report", func() bool { return len(n.reports) > 0 })
	if c := n.condition(causeUnkillable); c == "" {
		t.Error("the condition ended with the restart")
	}
	n.until("the same after a restart", func() bool { return n.last(at(1, 1)).GetStuck() })
	rt.killed.Store(true)
	n.until("its end", func() bool { return n.last(at(1, 1)) == nil && n.condition(causeUnkillable) == "" })
}

// TestRemovalFailsWhileProcessesRun: the node is drained, but the job waits for processes that did not receive SIGKILL.
func TestRemovalFailsWhileProcessesRun(t *testing.T) {
	t.Parallel()
	rt := &stuck{process: os.Getpid()}
	n := stuckNode(t, rt)
	n.want(at(1, 1), "#!/bin/sh\n", nil)
	n.until("a condition", func() bool { return strings.Contains(n.condition(causeUnkillable), "(agent.test)") })
	if n.reach(at(1, 1), "ended").GetStuck() {
		t.Error("reported without its processes, which run")
	}
	rt.killed.Store(true)
	n.settled(at(1, 1))
}

func TestSignalsOfAThread(t *testing.T) {
	for status, want := range map[string]bool{
		"State:\tD\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n": true,
		"State:\tD\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000100\n": true,
		"State:\tD\nSigPnd:\t0000000000004000\nSigCgt:\t0000000000000100\n": false,
	} {
		if got := hasSIGKILL(status); got != want {
			t.Errorf("%q: %v", status, got)
		}
	}
	for stat, want := range map[string]bool{
		"7 (a) Z) D 1 7 7 0 -1 4194560 0": false, "7 (sh) D 1 7 7 0 -1 4194564 0": true, "7 (sh) Z 1 7 7 0 -1 0 0": true, "": false,
	} {
		if got := isExiting(stat); got != want {
			t.Errorf("%q: %v", stat, got)
		}
	}
}

func TestProcessText(t *testing.T) {
	proc := t.TempDir()
	for path, text := range map[string]string{"7/comm": "python\n", "7/wchan": "nfs_wait", "8/comm": "sh\n", "8/wchan": "0"} {
		if err := os.MkdirAll(filepath.Join(proc, filepath.Dir(path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := processText(proc, []int{7, 8, 9, 10, 11}), "; process 7 (python) waits in nfs_wait, process 8 (sh), process 9 (), 2 more"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := processText(proc, nil); got != "" {
		t.Errorf("%q", got)
	}
}

// TestBusyMount: a mount that stays busy after the processes of a task have ended drains the node, with its path, and
// its job ends.
func TestBusyMount(t *testing.T) {
	t.Parallel()
	rt := &stuck{}
	n := stuckNode(t, rt)
	n.want(at(1, 1), "#!/bin/sh\n", nil)
	n.until("a condition", func() bool {
		c := n.condition(causeUnkillable)
		return strings.HasPrefix(c, "drains 1: the task of job 1 cannot be removed: a mount is still busy after all processes of the task ended: ") && strings.Contains(c, "/run/task/rootfs")
	})
	n.until("a report of the end without the mount", func() bool { return n.last(at(1, 1)).GetStuck() })
	rt.killed.Store(true)
	n.settled(at(1, 1))
	n.until("its end", func() bool { return n.condition(causeUnkillable) == "" })
}
