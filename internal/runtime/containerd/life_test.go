//go:build linux

package containerd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"

	"github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/internal/runtime/containerd/private"
)

// begin starts a task and waits for the file that its script creates.
func begin(t *testing.T, r *Runtime, spec runtime.Spec) {
	t.Helper()
	if err := r.Start(limit(t), spec); err != nil {
		t.Fatal(err)
	}
	eventually(t, "task under way", func() bool {
		_, err := os.Stat(filepath.Join(spec.WorkDir, "ready"))
		return err == nil
	})
	if err := os.Remove(filepath.Join(spec.WorkDir, "ready")); err != nil {
		t.Fatal(err)
	}
}

// TestSignals checks what each kind of signal reaches, and how the end is reported.
func TestSignals(t *testing.T) {
	r := newRuntime(t, nil)
	cases := []struct {
		name, script string
		sig          syscall.Signal
		all          bool
		code, signal int
		out          string
	}{
		{"TERM ends a script", "touch ready; sleep 1000 & wait", syscall.SIGTERM, false, 143, 15, ""},
		{"TERM is caught", "trap 'echo got; exit 5' TERM; touch ready; sleep 1000 & wait", syscall.SIGTERM, false, 5, 0, "got\n"},
		{"KILL cannot be ignored", "trap '' TERM INT HUP; touch ready; sleep 1000", syscall.SIGKILL, false, 137, 9, ""},
		{"a signal to the program misses its children", "trap 'echo main; touch go' USR1; sh -c 'touch ready; until [ -e go ]; do sleep 0.02; done; echo lives' & wait; wait", syscall.SIGUSR1, false, 0, 0, "main\nlives\n"},
		{"a signal to all reaches a new session", "trap : USR1; setsid sh -c 'trap \"echo other; exit\" USR1; touch ready; while :; do sleep 0.05; done' & wait; wait", syscall.SIGUSR1, true, 0, 0, "other\n"},
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			spec := job(t, uint64(i+1), c.script+"\n")
			begin(t, r, spec)
			ctx := limit(t)
			if err := r.Signal(ctx, spec.ID, c.sig, c.all); err != nil {
				t.Fatal(err)
			}
			exit := must(r.Wait(ctx, spec.ID))(t)
			// The shell may report children that the same signal ended.
			out := strings.NewReplacer("User defined signal 1\n", "", "Terminated\n", "").Replace(string(must(os.ReadFile(spec.Stdout))(t)))
			if exit.Code != c.code || exit.Signal != c.signal || out != c.out {
				t.Errorf("%+v %q, want %d signal %d %q", exit, out, c.code, c.signal, c.out)
			}
			if err := r.Signal(ctx, spec.ID, syscall.SIGTERM, false); err != nil {
				t.Errorf("signal after the end: %v", err)
			}
		})
	}
	if err := r.Signal(limit(t), runtime.TaskID{Job: 99}, syscall.SIGTERM, false); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("signal without a task: %v", err)
	}
}

// TestSuspend checks that SIGSTOP and SIGCONT reach every process except ginit.
func TestSuspend(t *testing.T) {
	r := newRuntime(t, nil)
	spec := job(t, 1, "date > tick; touch ready; while :; do date +%s%N > tick; sleep 0.01; done\n")
	begin(t, r, spec)
	ctx, tick := limit(t), filepath.Join(spec.WorkDir, "tick")
	text := func() string { return string(must(os.ReadFile(tick))(t)) }
	moves := func() bool { before := text(); time.Sleep(50 * time.Millisecond); return before != text() }
	if err := r.Signal(ctx, spec.ID, syscall.SIGSTOP, false); err != nil {
		t.Fatal(err)
	}
	eventually(t, "stopped", func() bool { return !moves() })
	if err := r.Signal(ctx, spec.ID, syscall.SIGCONT, false); err != nil {
		t.Fatal(err)
	}
	eventually(t, "continued", moves)
}

// TestRemoveRunning checks that nothing of a task survives Remove.
func TestRemoveRunning(t *testing.T) {
	r := newRuntime(t, nil)
	spec := job(t, 1, "trap '' TERM HUP INT\n(setsid sh -c 'sleep 1234567 & sleep 1234567' &)\ntouch ready /tmp/x /var/tmp/y\nsleep 1234567\n")
	begin(t, r, spec)
	ctx := limit(t)
	eventually(t, "all its processes seen", func() bool {
		stats := must(r.Stats(ctx, spec.ID))(t)
		return stats.Processes >= 5 && stats.Memory > 0 && stats.CPUTime > 0
	})
	for range 2 { // idempotent
		if err := r.Remove(ctx, spec.ID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Wait(ctx, spec.ID); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("wait after remove: %v", err)
	}
	if _, err := r.Stats(ctx, spec.ID); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("stats after remove: %v", err)
	}
	shims := must(shared.daemon.Shims())(t)
	eventually(t, "shim gone", func() bool { shims = must(shared.daemon.Shims())(t); return len(shims) == 0 })
}

// TestAdopt opens the same directories again, as after a crash of the daemon. The new runtime finds
// the task, does not start it again, and learns how it ended.
func TestAdopt(t *testing.T) {
	r := newRuntime(t, nil)
	spec := job(t, 1, "echo run >> runs; touch ready; while [ ! -e go ]; do sleep 0.02; done; exit 3\n")
	begin(t, r, spec)
	ended := job(t, 2, "exit 4\n")
	run(t, r, ended)
	later := must(New(r.config))(t)
	defer later.client.Close()
	ctx := limit(t)
	found := must(later.List(ctx))(t)
	if len(found) != 2 || found[0].ID != spec.ID || !found[0].Running || found[1].ID != ended.ID || found[1].Running {
		t.Errorf("found %+v", found)
	}
	if found[0].Labels["greylag/test"] != t.Name() {
		t.Errorf("labels %v", found[0].Labels)
	}
	for _, again := range []runtime.Spec{spec, ended} {
		if err := later.Start(ctx, again); err != nil {
			t.Fatal(err)
		}
	}
	if exit := must(later.Wait(ctx, ended.ID))(t); exit.Code != 4 {
		t.Errorf("ended before: %+v", exit)
	}
	if err := os.WriteFile(filepath.Join(spec.WorkDir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if exit := must(later.Wait(ctx, spec.ID))(t); exit.Code != 3 || exit.Started.IsZero() || exit.Ended.Before(exit.Started) {
		t.Errorf("ended after: %+v", exit)
	}
	if runs := string(must(os.ReadFile(filepath.Join(spec.WorkDir, "runs")))(t)); runs != "run\n" {
		t.Errorf("ran %q", runs)
	}
}

// TestAdoptUnnoted kills the daemon after the task began and before it recorded the process. The
// next one finds the process and can signal it.
func TestAdoptUnnoted(t *testing.T) {
	r := newRuntime(t, nil)
	spec := job(t, 1, "echo run >> runs; trap 'exit 7' TERM; touch ready; while :; do sleep 0.02; done\n")
	begin(t, r, spec)
	if err := os.Remove(filepath.Join(string(r.tasks.Dir(spec.ID)), "pid")); err != nil {
		t.Fatal(err)
	}
	later := must(New(r.config))(t)
	defer later.client.Close()
	ctx := limit(t)
	if err := later.Start(ctx, spec); err != nil {
		t.Fatal(err)
	}
	if err := later.Signal(ctx, spec.ID, syscall.SIGTERM, false); err != nil {
		t.Fatal(err)
	}
	if exit := must(later.Wait(ctx, spec.ID))(t); exit.Code != 7 {
		t.Errorf("%+v", exit)
	}
	if runs := string(must(os.ReadFile(filepath.Join(spec.WorkDir, "runs")))(t)); runs != "run\n" {
		t.Errorf("ran %q", runs)
	}
}

// TestAdoptUnnotedEnded does the same with a process that has ended, whose ID may be reused.
func TestAdoptUnnotedEnded(t *testing.T) {
	r := newRuntime(t, nil)
	spec := job(t, 1, "exit 7\n")
	run(t, r, spec)
	dir := r.tasks.Dir(spec.ID)
	if err := os.Remove(filepath.Join(string(dir), "pid")); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	eventually(t, "containerd knows", func() bool {
		answer, err := r.client.TaskService().Get(r.scope(limit(t)), &tasks.GetRequest{ContainerID: spec.ID.String()})
		return err == nil && answer.Process.Status == task.Status_STOPPED
	})
	if err := r.Start(limit(t), spec); err != nil {
		t.Fatal(err)
	}
	if handle, known, err := dir.Process(); known || err != nil {
		t.Errorf("noted %v, %v", handle, err)
	}
	if exit := must(r.Wait(limit(t), spec.ID))(t); exit.Code != 7 {
		t.Errorf("%+v", exit)
	}
}

// TestAbandonedStartNeverRuns abandons a start that hangs in the OCI runtime. If the container is
// completed later, its program does not run.
func TestAbandonedStartNeverRuns(t *testing.T) {
	for _, shim := range []string{shared.shim, ""} {
		t.Run(filepath.Base(cmp.Or(shim, ownShim)), func(t *testing.T) {
			needContainers(t)
			dir := t.TempDir()
			program := filepath.Join(dir, "slow-runc")
			text := fmt.Sprintf("#!/bin/sh\ncase \" $* \" in *' run '*|*' create '*) touch %[1]s/hangs; until [ -e %[1]s/go ]; do sleep 0.02; done;; esac\nexec %[2]s \"$@\"\n", dir, installed(t))
			if err := os.WriteFile(program, []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
			r := newRuntime(t, func(c *Config) { c.OCIRuntime, c.Shim = program, shim })
			spec := job(t, 1, "touch ran\n")
			ctx, cancel := context.WithCancel(limit(t))
			started := make(chan error, 1)
			go func() { started <- r.Start(ctx, spec) }()
			exists := func(path string) bool { _, err := os.Lstat(path); return err == nil }
			eventually(t, "the OCI runtime hangs", func() bool { return exists(filepath.Join(dir, "hangs")) })
			cancel()
			eventually(t, "the task is fenced, or gone", func() bool { return r.tasks.Dir(spec.ID).Fenced() || len(started) == 1 })
			if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := <-started; !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
			eventually(t, "removed", func() bool { return r.Remove(limit(t), spec.ID) == nil && !r.tasks.Dir(spec.ID).Exists() })
			if exists(filepath.Join(spec.WorkDir, "ran")) {
				t.Error("the program ran")
			}
			// containerd may still be cleaning up after its shim.
			eventually(t, "started again", func() bool { return r.Start(limit(t), spec) == nil })
			if exit := must(r.Wait(limit(t), spec.ID))(t); exit.Code != 0 || !exists(filepath.Join(spec.WorkDir, "ran")) {
				t.Errorf("the second time: %+v", exit)
			}
		})
	}
}

// TestShimKilled checks that all processes below the shim end and nothing remains.
func TestShimKilled(t *testing.T) {
	r := newRuntime(t, nil)
	before := must(shared.daemon.Shims())(t)
	spec := job(t, 1, "touch ready; exec sleep 1000\n")
	begin(t, r, spec)
	for _, pid := range must(shared.daemon.Shims())(t) {
		if !slices.Contains(before, pid) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	ctx := limit(t)
	if exit := must(r.Wait(ctx, spec.ID))(t); !exit.Lost && exit.Signal != 9 {
		t.Errorf("%+v", exit)
	}
	eventually(t, "no process of it", func() bool { pids, err := r.Processes(spec.ID); return err != nil || len(pids) == 0 })
	if exit, _ := run(t, r, job(t, 2, "exit 3\n")); exit.Code != 3 {
		t.Errorf("the next: %+v", exit)
	}
}

// TestShimGone checks that a node without its shim reports that for each task, and works again when
// the shim is back.
func TestShimGone(t *testing.T) {
	bin := t.TempDir()
	r := newRuntime(t, func(c *Config) {
		for _, name := range []string{"gshim", "gshimd"} {
			if err := os.Link(filepath.Join(filepath.Dir(shared.shim), name), filepath.Join(bin, name)); err != nil {
				t.Fatal(err)
			}
		}
		c.Shim = filepath.Join(bin, "gshim")
	})
	away := filepath.Join(bin, "away")
	if err := os.Rename(filepath.Join(bin, "gshimd"), away); err != nil {
		t.Fatal(err)
	}
	if err := r.Ready(limit(t)); !errors.Is(err, runtime.ErrUnfit) || !strings.Contains(err.Error(), bin+"/gshimd") {
		t.Errorf("ready: %v", err)
	}
	if err := r.Start(limit(t), job(t, 1, "exit 0\n")); !errors.Is(err, runtime.ErrUnfit) ||
		!strings.HasPrefix(err.Error(), "start task j1-a1: container runtime cannot be used: shim "+bin+"/gshimd: install it") {
		t.Errorf("start: %v", err)
	}
	if err := os.Rename(away, filepath.Join(bin, "gshimd")); err != nil {
		t.Fatal(err)
	}
	if err := r.Ready(limit(t)); err != nil {
		t.Errorf("ready again: %v", err)
	}
	if exit, _ := run(t, r, job(t, 1, "exit 3\n")); exit.Code != 3 {
		t.Errorf("the same again: %+v", exit)
	}
}

// TestStartOnce starts one task concurrently and checks that it runs once.
func TestStartOnce(t *testing.T) {
	r := newRuntime(t, nil)
	spec := job(t, 1, "echo run >> runs\n")
	results := make(chan error)
	for range 5 {
		go func() { results <- r.Start(limit(t), spec) }()
	}
	for range 5 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if exit := must(r.Wait(limit(t), spec.ID))(t); exit.Code != 0 {
		t.Errorf("%+v", exit)
	}
	if runs := string(must(os.ReadFile(filepath.Join(spec.WorkDir, "runs")))(t)); runs != "run\n" {
		t.Errorf("ran %q", runs)
	}
}

// TestContainerdKilled checks that tasks run and end without containerd, that their exit is known
// at once, and that they can be removed when it is back.
func TestContainerdKilled(t *testing.T) {
	needContainers(t)
	own := must(private.Start(filepath.Join(shared.dir, "k"), private.Options{}))(t)
	t.Cleanup(func() {
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
	r := newRuntime(t, func(c *Config) { c.Address = own.Address() })
	runs := job(t, 1, "touch ready; while [ ! -e go1 ]; do sleep 0.02; done; exit 11\n")
	ends := job(t, 2, "touch ready; while [ ! -e go2 ]; do sleep 0.02; done; exit 12\n")
	oom := job(t, 3, "touch ready; while [ ! -e go2 ]; do sleep 0.02; done; exec sh -c 'x=$(yes | head -c 400000000)'\n")
	oom.Memory = 64 << 20
	begin(t, r, runs)
	begin(t, r, ends)
	begin(t, r, oom)
	if err := own.Kill(); err != nil {
		t.Fatal(err)
	}
	ctx := limit(t)
	if err := os.WriteFile(filepath.Join(ends.WorkDir, "go2"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if exit := must(r.Wait(ctx, ends.ID))(t); exit.Code != 12 {
		t.Errorf("ended while containerd was away: %+v", exit)
	}
	if exit := must(r.Wait(ctx, oom.ID))(t); !exit.OOM || exit.Code != 137 {
		t.Errorf("killed for memory while containerd was away: %+v", exit)
	}
	short, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := r.Start(short, job(t, 4, "exit 0\n")); !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("start without containerd: %v", err)
	}
	if err := r.Ready(short); !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("ready without containerd: %v", err)
	}
	if err := own.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(runs.WorkDir, "go1"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if exit := must(r.Wait(ctx, runs.ID))(t); exit.Code != 11 {
		t.Errorf("ended after containerd came back: %+v", exit)
	}
	eventually(t, "containerd answers", func() bool { return r.Ready(ctx) == nil })
	if exit, _ := run(t, r, job(t, 4, "exit 9\n")); exit.Code != 9 {
		t.Errorf("the start that failed, again: %+v", exit)
	}
}
