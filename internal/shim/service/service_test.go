//go:build linux

package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/api/types/runc/options"
	types "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/anypb"
)

// newService returns a service whose OCI runtime is a shell script. Processes that the script
// starts become our children, as in the daemon. Real runtimes run in internal/runtime/containerd.
func newService(t *testing.T, script string) (*Service, *task.CreateTaskRequest, *int) {
	t.Helper()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	bundle := t.TempDir()
	program := filepath.Join(bundle, "oci.sh")
	// $7 is the first word after the common options, run or delete.
	if err := os.WriteFile(program, []byte("#!/bin/sh\ncase $7 in\nrun) "+script+"\n;;\ndelete) echo deleted >> deleted;;\nesac\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	wanted, err := anypb.New(&options.Options{BinaryName: program, Root: bundle})
	if err != nil {
		t.Fatal(err)
	}
	stops := 0
	return New("n", "j1-a1", bundle, func() { stops++ }), &task.CreateTaskRequest{ID: "j1-a1", Bundle: bundle, Options: wanted}, &stops
}

// TestLife checks the answers of a task from its creation to its end.
func TestLife(t *testing.T) {
	s, request, stops := newService(t, `sleep 1000 & echo $! > init.pid`)
	ctx, id := context.Background(), "j1-a1"
	status := func(want types.Status) *task.StateResponse {
		t.Helper()
		answer, err := s.State(ctx, &task.StateRequest{ID: id})
		if err != nil || answer.Status != want {
			t.Fatalf("%v, %v, want %v", answer, err, want)
		}
		return answer
	}
	fails(t, errdefs.ErrNotFound)(s.State(ctx, &task.StateRequest{ID: id}))
	fails(t, errdefs.ErrNotFound)(s.Start(ctx, &task.StartRequest{ID: id}))
	fails(t, errdefs.ErrNotFound)(s.Create(ctx, &task.CreateTaskRequest{ID: "another"}))
	works(t)(s.Create(ctx, request))
	fails(t, errdefs.ErrAlreadyExists)(s.Create(ctx, request))
	status(types.Status_CREATED)
	fails(t, errdefs.ErrFailedPrecondition)(s.Kill(ctx, &task.KillRequest{ID: id, Signal: 9}))
	works(t)(s.Shutdown(ctx, &task.ShutdownRequest{})) // not while there is a task
	works(t)(s.Start(ctx, &task.StartRequest{ID: id}))
	fails(t, errdefs.ErrFailedPrecondition)(s.Start(ctx, &task.StartRequest{ID: id}))
	pid := status(types.Status_RUNNING).Pid
	if pids, err := s.Pids(ctx, &task.PidsRequest{ID: id}); err != nil || len(pids.Processes) != 1 || pids.Processes[0].Pid != pid {
		t.Errorf("%v %v, want %d", pids, err, pid)
	}
	fails(t, errdefs.ErrFailedPrecondition)(s.Delete(ctx, &task.DeleteRequest{ID: id}))
	fails(t, errdefs.ErrNotImplemented)(s.Kill(ctx, &task.KillRequest{ID: id, Signal: 15, All: true}))
	fails(t, errdefs.ErrNotFound)(s.Kill(ctx, &task.KillRequest{ID: id, ExecID: "x", Signal: 9}))
	works(t)(s.Kill(ctx, &task.KillRequest{ID: id, Signal: 9, All: true}))
	ended, err := s.Wait(ctx, &task.WaitRequest{ID: id})
	if err != nil || ended.ExitStatus != 137 {
		t.Fatalf("%v %v", ended, err)
	}
	fails(t, errdefs.ErrNotFound)(s.Kill(ctx, &task.KillRequest{ID: id, Signal: 9}))
	if got := status(types.Status_STOPPED); got.ExitStatus != 137 || !got.ExitedAt.AsTime().Equal(ended.ExitedAt.AsTime()) {
		t.Errorf("%v", got)
	}
	if *stops != 0 {
		t.Error("ended with a task")
	}
	if gone, err := s.Delete(ctx, &task.DeleteRequest{ID: id}); err != nil || gone.ExitStatus != 137 || gone.Pid != pid {
		t.Errorf("%v %v", gone, err)
	}
	fails(t, errdefs.ErrNotFound)(s.Delete(ctx, &task.DeleteRequest{ID: id}))
	works(t)(s.Shutdown(ctx, &task.ShutdownRequest{}))
	if *stops != 1 {
		t.Error("goes on without a task")
	}
	if calls, err := os.ReadFile(filepath.Join(s.bundle, "deleted")); err != nil || string(calls) != "deleted\n" {
		t.Errorf("%q %v", calls, err)
	}
}

// TestForkedRuntime has the OCI runtime end before a process that it forked, which is the parent of
// the first process. The end of the task is still observed.
func TestForkedRuntime(t *testing.T) {
	s, request, _ := newService(t, `mkfifo go begun; (sleep 1000 & echo $! > init.pid; echo > begun; read x < go; exec true) & read x < begun`)
	ctx := context.Background()
	works(t)(s.Create(ctx, request))
	answer, err := s.Start(ctx, &task.StartRequest{ID: s.id})
	if err != nil {
		t.Fatal(err)
	}
	between := parent(t, answer.Pid)
	if between == os.Getpid() {
		t.Fatal("no process is in between")
	}
	if err := os.WriteFile(filepath.Join(s.bundle, "go"), []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	for parent(t, answer.Pid) == between {
		runtime.Gosched()
	}
	works(t)(s.Kill(ctx, &task.KillRequest{ID: s.id, Signal: 9}))
	if ended, err := s.Wait(ctx, &task.WaitRequest{ID: s.id}); err != nil || ended.ExitStatus != 137 {
		t.Errorf("%v %v", ended, err)
	}
}

// parent returns the ID of a process's parent.
func parent(t *testing.T, pid uint32) (ppid int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "PPid:")
	if _, err := fmt.Sscan(rest, &ppid); err != nil {
		t.Fatal(err)
	}
	return ppid
}

// TestStartFails checks that the last error of the OCI runtime is the reason, and that the task can
// be deleted.
func TestStartFails(t *testing.T) {
	for script, want := range map[string]string{
		`cat > log.json <<'END'
{"level":"warning","msg":"w"}
{"level":"error","msg":"no such mount\n"}
half
END
exit 1
`: "OCI runtime create failed: no such mount",
		`exit 4`:                   "OCI runtime create failed: exit status 4",
		`:`:                        "no such file",
		`echo 1 > init.pid`:        `"1\n" is not a process`,
		`echo -5 > init.pid`:       `is not a process`,
		`: > init.pid; kill -9 $$`: "signal: killed",
	} {
		s, request, _ := newService(t, script)
		ctx := context.Background()
		works(t)(s.Create(ctx, request))
		if _, err := s.Start(ctx, &task.StartRequest{ID: s.id}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", script, err, want)
		}
		fails(t, errdefs.ErrNotFound)(s.Kill(ctx, &task.KillRequest{ID: s.id, Signal: 9}))
		works(t)(s.Wait(ctx, &task.WaitRequest{ID: s.id}))
		works(t)(s.Delete(ctx, &task.DeleteRequest{ID: s.id}))
	}
}

// TestWhileStarting checks that other calls are answered while the OCI runtime works.
func TestWhileStarting(t *testing.T) {
	s, request, stops := newService(t, `read line < go; sleep 1000 & echo $! > init.pid`)
	if err := unix.Mkfifo(filepath.Join(s.bundle, "go"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	works(t)(s.Create(ctx, request))
	started := make(chan error)
	go func() {
		_, err := s.Start(ctx, &task.StartRequest{ID: s.id})
		started <- err
	}()
	goOn, err := os.OpenFile(filepath.Join(s.bundle, "go"), os.O_WRONLY, 0) // returns when it is read
	if err != nil {
		t.Fatal(err)
	}
	works(t)(s.State(ctx, &task.StateRequest{ID: s.id}))
	fails(t, errdefs.ErrFailedPrecondition)(s.Start(ctx, &task.StartRequest{ID: s.id}))
	works(t)(s.Shutdown(ctx, &task.ShutdownRequest{}))
	if err := goOn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-started; err != nil || *stops != 0 {
		t.Errorf("%v, stopped %d times", err, *stops)
	}
	works(t)(s.Kill(ctx, &task.KillRequest{ID: s.id, Signal: 9}))
	works(t)(s.Wait(ctx, &task.WaitRequest{ID: s.id}))
	works(t)(s.Delete(ctx, &task.DeleteRequest{ID: s.id}))
}

// TestHangs checks that an OCI runtime that hangs ends with its hooks at the caller's deadline or
// at the deletion of the task, and that the task can be deleted.
func TestHangs(t *testing.T) {
	for _, bounded := range []bool{true, false} {
		s, request, _ := newService(t, `echo up > up; sleep 1000; echo never > init.pid`)
		up := filepath.Join(s.bundle, "up")
		if err := unix.Mkfifo(up, 0o600); err != nil {
			t.Fatal(err)
		}
		works(t)(s.Create(context.Background(), request))
		started := make(chan error)
		go func() {
			ctx := context.Background()
			if bounded {
				late, cancel := context.WithDeadline(ctx, time.Now().Add(-time.Second))
				defer cancel()
				ctx = late
			}
			_, err := s.Start(ctx, &task.StartRequest{ID: s.id})
			started <- err
		}()
		if !bounded {
			works(t)(os.ReadFile(up)) // returns when it is written
			works(t)(s.Delete(context.Background(), &task.DeleteRequest{ID: s.id}))
		}
		if err := <-started; err == nil || !strings.Contains(err.Error(), "did not end and was killed") {
			t.Errorf("bounded %v: %v", bounded, err)
		}
		if bounded {
			works(t)(s.Delete(context.Background(), &task.DeleteRequest{ID: s.id}))
		}
	}
}

// TestRefused checks that unsupported requests are refused before anything is created.
func TestRefused(t *testing.T) {
	s, request, _ := newService(t, `:`)
	ctx := context.Background()
	for name, change := range map[string]func(*task.CreateTaskRequest){
		"terminal":   func(r *task.CreateTaskRequest) { r.Terminal = true },
		"pipe":       func(r *task.CreateTaskRequest) { r.Stdout = "/x" },
		"checkpoint": func(r *task.CreateTaskRequest) { r.Checkpoint = "/x" },
		"no options": func(r *task.CreateTaskRequest) { r.Options = nil },
		"others":     func(r *task.CreateTaskRequest) { r.Options = &anypb.Any{TypeUrl: "x", Value: []byte{1}} },
	} {
		changed := &task.CreateTaskRequest{ID: request.ID, Bundle: request.Bundle, Options: request.Options}
		change(changed)
		if _, err := s.Create(ctx, changed); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if entries, err := os.ReadDir(s.bundle); err != nil || len(entries) != 1 { // the script
		t.Errorf("%v %v", entries, err)
	}
	fails(t, errdefs.ErrNotImplemented)(s.Exec(ctx, &task.ExecProcessRequest{}))
	fails(t, errdefs.ErrNotImplemented)(s.Stats(ctx, &task.StatsRequest{}))
}

// works ends the test if a call fails.
func works(t *testing.T) func(any, error) {
	t.Helper()
	return func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// fails expects an error of a kind, as containerd decodes it.
func fails(t *testing.T, kind error) func(any, error) {
	t.Helper()
	return func(_ any, err error) {
		t.Helper()
		if got := errgrpc.ToNative(err); err == nil || !errors.Is(errdefs.Resolve(got), kind) {
			t.Errorf("%v, want %v", err, kind)
		}
	}
}
