//go:build linux

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/internal/runtime/proc"
	"github.com/greylag/greylag/internal/runtime/taskdir"
)

var ginitPath string // set once by TestMain, before any test

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "gl-process-")
	if err == nil {
		ginitPath = filepath.Join(dir, "ginit")
		build := exec.Command("go", "build", "-o", ginitPath, "../../../cmd/ginit")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		var out []byte
		if out, err = build.CombinedOutput(); err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func newRuntime(t *testing.T) *Runtime {
	t.Helper()
	r, err := New(Config{StateDir: t.TempDir(), GInit: ginitPath, AllowRoot: os.Geteuid() == 0})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		found, err := r.List(context.Background())
		if err != nil {
			t.Error(err)
		}
		for _, task := range found {
			if err := r.Remove(context.Background(), task.ID); err != nil {
				t.Error(err)
			}
			if left := r.processes(task.ID); len(left) != 0 {
				t.Errorf("task %s left %v", task.ID, left)
			}
		}
	})
	return r
}

func job(t *testing.T, script string) runtime.Spec {
	t.Helper()
	dir := t.TempDir()
	return runtime.Spec{
		ID: runtime.TaskID{Job: 1, Attempt: 1}, Owner: runtime.Owner{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())},
		Script: []byte("#!/bin/sh\n" + script), Env: []string{"PATH=/usr/bin:/bin", "A=b c"},
		WorkDir: dir, Stdout: filepath.Join(dir, "out"), Labels: map[string]string{"k": "v"},
	}
}

func start(t *testing.T, r *Runtime, spec runtime.Spec) {
	t.Helper()
	if err := r.Start(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
}

func wait(t *testing.T, r *Runtime, spec runtime.Spec) (runtime.Exit, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	exit, err := r.Wait(ctx, spec.ID)
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.ReadFile(spec.Stdout)
	if err != nil && exit.LaunchError == "" && !exit.Lost {
		t.Fatal(err)
	}
	return exit, string(out)
}

// ready waits for a file that the script creates.
func ready(t *testing.T, spec runtime.Spec) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(spec.WorkDir, "ready")); err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the script never got under way")
		}
	}
}

func TestEnds(t *testing.T) {
	cases := []struct {
		script, out  string
		code, signal int
		launch       string
	}{
		{"echo $A; echo err >&2", "b c\nerr\n", 0, 0, ""},
		{"exit 7", "", 7, 0, ""},
		{"kill -KILL $$", "", 137, 9, ""},
		{"cat; umask; pwd | wc -l", "0022\n1\n", 0, 0, ""},
	}
	r := newRuntime(t)
	for i, c := range cases {
		spec := job(t, c.script+"\n")
		spec.ID.Job = uint64(i + 1)
		start(t, r, spec)
		exit, out := wait(t, r, spec)
		if exit.Code != c.code || exit.Signal != c.signal || out != c.out || exit.LaunchError != c.launch {
			t.Errorf("%q: %+v %q", c.script, exit, out)
		}
	}
	spec := job(t, "")
	spec.ID.Job, spec.WorkDir = 50, "/nowhere"
	start(t, r, spec)
	if exit, _ := wait(t, r, spec); exit.Code != 117 || !strings.Contains(exit.LaunchError, "/nowhere") {
		t.Errorf("%+v", exit)
	}
}

func TestSignals(t *testing.T) {
	r := newRuntime(t)
	spec := job(t, "trap 'echo got; exit 5' TERM; touch ready; while :; do sleep 0.05; done\n")
	start(t, r, spec)
	ready(t, spec)
	if err := r.Signal(t.Context(), spec.ID, syscall.SIGTERM, false); err != nil {
		t.Fatal(err)
	}
	if exit, out := wait(t, r, spec); exit.Code != 5 || !strings.HasSuffix(out, "got\n") {
		t.Errorf("%+v %q", exit, out)
	}
	ignoresTerm := job(t, "trap '' TERM; touch ready; while :; do sleep 0.05; done\n")
	ignoresTerm.ID.Job = 2
	start(t, r, ignoresTerm)
	ready(t, ignoresTerm)
	if err := r.Signal(t.Context(), ignoresTerm.ID, syscall.SIGKILL, false); err != nil {
		t.Fatal(err)
	}
	if exit, _ := wait(t, r, ignoresTerm); exit.Code != 137 || exit.Signal != 9 {
		t.Errorf("%+v", exit)
	}
}

// TestSignalBeforeTheProgram checks that a signal before ginit is ready reaches the task once.
func TestSignalBeforeTheProgram(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		r, gate := newRuntime(t), filepath.Join(t.TempDir(), "gate")
		if err := syscall.Mkfifo(gate, 0o600); err != nil {
			t.Fatal(err)
		}
		late := filepath.Join(t.TempDir(), "ginit")
		// The script waits by opening the gate, without another process.
		text := fmt.Sprintf("#!/bin/sh\nread line < %s\nexec %s \"$@\"\n", gate, r.config.GInit)
		if err := os.WriteFile(late, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		r.config.GInit = late
		spec := job(t, "sleep 987654\n")
		start(t, r, spec)
		sent := make(chan error, 1)
		go func() { sent <- r.Signal(t.Context(), spec.ID, sig, true) }()
		if err := os.WriteFile(gate, []byte("go\n"), 0); err != nil {
			t.Fatal(err)
		}
		if exit, _ := wait(t, r, spec); exit.Lost || exit.LaunchError != "" || exit.Signal != int(syscall.SIGTERM) && exit.Signal != int(sig) {
			t.Errorf("%v: %+v", sig, exit)
		}
		if err := <-sent; err != nil {
			t.Errorf("%v: %v", sig, err)
		}
	}
}

// TestLeftovers checks that processes that left their parents, group and session end with the task,
// and by Remove if ginit was killed.
func TestLeftovers(t *testing.T) {
	r := newRuntime(t)
	spec := job(t, "(setsid sh -c 'sleep 987654 & sleep 987654' &)\nsleep 0.1\n")
	start(t, r, spec)
	wait(t, r, spec)
	if left := r.processes(spec.ID); len(left) != 0 {
		t.Errorf("left %v", left)
	}
	lost := job(t, "(setsid sh -c 'touch ready; sleep 987654 & sleep 987654' &)\nsleep 987654\n")
	lost.ID.Job = 2
	start(t, r, lost)
	ready(t, lost)
	handle, _, err := r.tasks.Dir(lost.ID).Process()
	if err != nil {
		t.Fatal(err)
	}
	if err := handle.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if exit, _ := wait(t, r, lost); !exit.Lost {
		t.Errorf("%+v", exit)
	}
	if err := r.Remove(t.Context(), lost.ID); err != nil {
		t.Fatal(err)
	}
	if left := r.processes(lost.ID); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}

// TestAdopt checks that another object for the same directory adopts tasks and starts nothing.
func TestAdopt(t *testing.T) {
	r := newRuntime(t)
	spec := job(t, "echo run >> runs; touch ready; while [ ! -e go ]; do sleep 0.02; done; exit 3\n")
	start(t, r, spec)
	ready(t, spec)
	later, err := New(r.config)
	if err != nil {
		t.Fatal(err)
	}
	found, err := later.List(t.Context())
	if err != nil || len(found) != 1 || !found[0].Running || found[0].Labels["k"] != "v" {
		t.Fatalf("%+v %v", found, err)
	}
	start(t, later, spec)
	if stats, err := later.Stats(t.Context(), spec.ID); err != nil || stats.Processes < 2 || stats.Memory == 0 {
		t.Errorf("%+v %v", stats, err)
	}
	if err := os.WriteFile(filepath.Join(spec.WorkDir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if exit, _ := wait(t, later, spec); exit.Code != 3 {
		t.Errorf("%+v", exit)
	}
	start(t, later, spec)
	if runs, err := os.ReadFile(filepath.Join(spec.WorkDir, "runs")); err != nil || string(runs) != "run\n" {
		t.Errorf("%q %v", runs, err)
	}
}

// TestHalfMade checks what a daemon left that was killed during a start.
func TestHalfMade(t *testing.T) {
	r := newRuntime(t)
	spec := job(t, "exit 4\n")
	if _, _, err := r.tasks.Create(spec.ID); err != nil {
		t.Fatal(err)
	}
	start(t, r, spec)
	if exit, _ := wait(t, r, spec); exit.Code != 4 {
		t.Errorf("%+v", exit)
	}
}

func TestRefused(t *testing.T) {
	r := newRuntime(t)
	other := job(t, "exit 0\n")
	other.UID++
	if err := r.Start(t.Context(), other); !errors.Is(err, runtime.ErrUnsupported) {
		t.Errorf("another user: %v", err)
	}
	if _, err := r.Wait(t.Context(), other.ID); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("wait for none: %v", err)
	}
	if os.Geteuid() == 0 {
		if _, err := New(Config{StateDir: t.TempDir(), GInit: ginitPath}); !errors.Is(err, ErrRoot) {
			t.Errorf("as root: %v", err)
		}
	}
}

// TestHandle checks that a process is not confused with a later one with its ID.
func TestHandle(t *testing.T) {
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	handle, err := proc.Identify(child.Process.Pid)
	if err != nil || !handle.Alive() {
		t.Fatal(handle, err)
	}
	parsed, err := proc.Parse(handle.String())
	if err != nil || parsed != handle {
		t.Errorf("%v %v", parsed, err)
	}
	later := proc.Handle{PID: handle.PID, Start: handle.Start + 1}
	if later.Alive() || !errors.Is(later.Signal(syscall.SIGKILL), proc.ErrGone) {
		t.Error("taken for a later process with the same number")
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := handle.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait for one that lives: %v", err)
	}
	if err := handle.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := handle.Wait(t.Context()); err != nil || handle.Alive() { // a zombie has ended
		t.Errorf("wait for one that was killed: %v", err)
	}
	if err := child.Wait(); err == nil {
		t.Error("not killed")
	}
	if err := handle.Signal(syscall.SIGKILL); !errors.Is(err, proc.ErrGone) {
		t.Errorf("signal without a task: %v", err)
	}
}

// TestTaskDir checks that stored values are read back, and that damaged ones are errors.
func TestTaskDir(t *testing.T) {
	root, err := taskdir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []runtime.TaskID{{Job: 10, Attempt: 1}, {Job: 9, Attempt: 2}, {Job: 9, Attempt: 1}} {
		if _, created, err := root.Create(id); err != nil || !created {
			t.Fatal(created, err)
		}
	}
	ids, err := root.List()
	if err != nil || fmt.Sprint(ids) != "[j9-a1 j9-a2 j10-a1]" {
		t.Errorf("%v %v", ids, err)
	}
	dir := root.Dir(ids[0])
	if _, created, err := root.Create(ids[0]); err != nil || created {
		t.Error("made twice", err)
	}
	if _, known, err := dir.Record(); known || err != nil {
		t.Error("a record from nowhere", err)
	}
	for _, name := range []string{"exit", "pid", "notes"} {
		if err := os.WriteFile(filepath.Join(string(dir), name), []byte("{damaged"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, _, errRecord := dir.Record()
	_, _, errPID := dir.Process()
	_, errNotes := dir.Notes()
	if errRecord == nil || errPID == nil || errNotes == nil {
		t.Error("damage not noticed:", errRecord, errPID, errNotes)
	}
	if err := dir.Remove(); err != nil || dir.Exists() {
		t.Error("not removed", err)
	}
}
