//go:build linux

package containerd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/typeurl/v2"

	"github.com/greylag/greylag/internal/cgroup"
	"github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/internal/runtime/containerd/private"
	"github.com/greylag/greylag/internal/runtime/oci"
	"github.com/greylag/greylag/internal/runtime/proc"
	"github.com/greylag/greylag/internal/shim"
)

// installed is the OCI runtime with which the tests run.
func installed(t *testing.T) string {
	t.Helper()
	program, _, err := oci.Find("", must(cgroup.Detect())(t).Mixed())
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// hangingRuntime is a runc that notes its process in the file it names and does not come
// to an end where it is to make a container.
func hangingRuntime(t *testing.T) (program, noted string) {
	t.Helper()
	dir := t.TempDir()
	program, noted = filepath.Join(dir, "hanging-runc"), filepath.Join(dir, "process")
	text := fmt.Sprintf("#!/bin/sh\ncase \" $* \" in *' run '*|*' create '*) echo $$ > %[1]s.new; mv %[1]s.new %[1]s; exec sleep 100000;; esac\nexec %[2]s \"$@\"\n", noted, installed(t))
	if err := os.WriteFile(program, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return program, noted
}

// hanging waits for the process that hangs.
func hanging(t *testing.T, noted string) proc.Handle {
	t.Helper()
	eventually(t, "the OCI runtime hangs", func() bool { _, err := os.Stat(noted); return err == nil })
	pid := must(strconv.Atoi(strings.TrimSpace(string(must(os.ReadFile(noted))(t)))))(t)
	return must(proc.Identify(pid))(t)
}

// TestHangingRuntime: a start that hangs in the OCI runtime comes to an end, at the latest with
// the task's removal, and says that the node is at fault.
func TestHangingRuntime(t *testing.T) {
	for _, with := range []string{shared.shim, ""} {
		t.Run(filepath.Base(cmp.Or(with, ownShim)), func(t *testing.T) {
			needContainers(t)
			program, noted := hangingRuntime(t)
			r := newRuntime(t, func(c *Config) { c.OCIRuntime, c.Shim = program, with })
			spec := job(t, 1, "exit 0\n")
			ctx, cancel := context.WithTimeout(limit(t), time.Second)
			defer cancel()
			started := make(chan error, 1)
			go func() { started <- r.Start(ctx, spec) }()
			process := hanging(t, noted)
			if err := <-started; !errors.Is(err, runtime.ErrUnavailable) {
				t.Errorf("%v", err)
			}
			if err := r.Remove(limit(t), spec.ID); err != nil {
				t.Error(err)
			}
			if err := process.Wait(limit(t)); err != nil {
				t.Errorf("the OCI runtime: %v", err)
			}
		})
	}
}

// TestShimKilledWhileStarting: the OCI runtime ends with the shim that began it.
func TestShimKilledWhileStarting(t *testing.T) {
	needContainers(t)
	program, noted := hangingRuntime(t)
	r := newRuntime(t, func(c *Config) { c.OCIRuntime = program })
	before := must(shared.daemon.Shims())(t)
	started := make(chan error, 1)
	go func() { started <- r.Start(limit(t), job(t, 1, "exit 0\n")) }()
	process := hanging(t, noted)
	for _, pid := range must(shared.daemon.Shims())(t) {
		if !slices.Contains(before, pid) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := <-started; err == nil {
		t.Error("started")
	}
	if err := process.Wait(limit(t)); err != nil {
		t.Errorf("the OCI runtime: %v", err)
	}
}

// makeHalf creates a task as far as a daemon does that is killed before it starts it.
func makeHalf(t *testing.T, r *Runtime, spec runtime.Spec) {
	t.Helper()
	ctx := r.scope(limit(t))
	dir, _, err := r.tasks.Create(spec.ID)
	if err != nil {
		t.Fatal(err)
	}
	container := containers.Container{ID: spec.ID.String(), Runtime: containers.RuntimeInfo{Name: r.config.Shim, Options: r.options}}
	_, from, err := r.root(ctx, &spec, &container)
	if err != nil {
		t.Fatal(err)
	}
	container.Spec = must(encodeSpec(must(r.prepare(&spec, &view{}, dir, from))(t)))(t)
	must(r.client.ContainerService().Create(ctx, container))(t)
	must(r.client.TaskService().Create(ctx, &tasks.CreateTaskRequest{ContainerID: container.ID, Options: typeurl.MarshalProto(r.options)}))(t)
}

// TestSocketOfSuccessor: a task that is created again keeps its socket when the shim of the first
// try ends; without it a containerd that starts again would take the task for dead, and kill it.
func TestSocketOfSuccessor(t *testing.T) {
	r := newRuntime(t, nil)
	for i := range uint64(10) {
		before := must(shared.daemon.Shims())(t)
		spec := job(t, i+1, "touch ready; exec sleep 1000\n")
		makeHalf(t, r, spec)
		begin(t, r, spec)
		eventually(t, "one shim more", func() bool { return len(must(shared.daemon.Shims())(t)) == len(before)+1 })
		call := shim.Call{Namespace: r.config.Namespace, ID: spec.ID.String(), Address: r.config.Address}
		if _, err := os.Lstat(call.Socket()); err != nil {
			t.Errorf("task %d: %v", i, err)
		}
	}
}

// TestSocketsOfTheDead: a daemon that begins removes sockets that killed shims left, and none of
// a task that runs on another node of the machine.
func TestSocketsOfTheDead(t *testing.T) {
	other := newRuntime(t, nil)
	spec := job(t, 1, "touch ready; exec sleep 1000\n")
	begin(t, other, spec)
	alive := shim.Call{Namespace: other.config.Namespace, ID: spec.ID.String(), Address: other.config.Address}.Socket()
	left := shim.Call{Namespace: t.Name(), ID: "j2-a1"}.Socket()
	listener := must(net.ListenUnix("unix", &net.UnixAddr{Name: left}))(t)
	listener.SetUnlinkOnClose(false)
	long := time.Now().Add(-time.Hour)
	if err := errors.Join(listener.Close(), os.Chtimes(left, long, long), os.Chtimes(alive, long, long)); err != nil {
		t.Fatal(err)
	}
	t.Run("another", func(t *testing.T) { newRuntime(t, nil) })
	if _, err := os.Lstat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing socket: %v", err)
	}
	if _, err := os.Lstat(alive); err != nil {
		t.Errorf("the socket of a task that runs: %v", err)
	}
	if err := other.Signal(limit(t), spec.ID, syscall.SIGKILL, true); err != nil {
		t.Fatal(err)
	}
	if exit := must(other.Wait(limit(t), spec.ID))(t); exit.Signal != 9 || exit.Lost {
		t.Errorf("%+v", exit)
	}
}

// TestShimUnreachable: a shim that a new containerd cannot reach is ended with its task.
func TestShimUnreachable(t *testing.T) {
	needContainers(t)
	own := must(private.Start(filepath.Join(shared.dir, "u"), private.Options{}))(t)
	t.Cleanup(func() {
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
	r := newRuntime(t, func(c *Config) { c.Address = own.Address() })
	spec := job(t, 1, "touch ready; exec sleep 1000\n")
	begin(t, r, spec)
	call := shim.Call{Namespace: r.config.Namespace, ID: spec.ID.String(), Address: own.Address()}
	if err := errors.Join(os.Remove(call.Socket()), own.Kill(), own.Restart()); err != nil {
		t.Fatal(err)
	}
	if exit := must(r.Wait(limit(t), spec.ID))(t); !exit.Lost && exit.Signal != 9 {
		t.Errorf("%+v", exit)
	}
	eventually(t, "no shim", func() bool { return len(must(own.Shims())(t)) == 0 })
}

// TestShimsAreHidden: not even root's tasks reach the sockets of shims.
func TestShimsAreHidden(t *testing.T) {
	r := newRuntime(t, nil)
	spec := job(t, 1, "ls "+shim.SocketDir+"\n")
	spec.UID, spec.GID, spec.Groups = 0, 0, nil
	if exit, out := run(t, r, spec); exit.Code != 0 || out != "" {
		t.Errorf("%+v: %s", exit, out)
	}
}
