//go:build linux

package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"

	"github.com/greylag/greylag/internal/shim"
)

// Run serves the task until it is told to shut down, on the socket that gshim made, in
// the bundle that it was started in.
func Run(call shim.Call) error {
	bundle, err := os.Getwd()
	if err != nil {
		return err
	}
	if err := shim.Hold(bundle); err != nil {
		return err
	}
	speakTo(filepath.Join(bundle, "log"))
	// The first process of the container is the OCI runtime's child, which ends before it.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the task's parent: %w", err)
	}
	file := os.NewFile(shim.ListenerFD, "socket")
	listener, err := net.FileListener(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	server, err := ttrpc.NewServer(ttrpc.WithServerHandshaker(ttrpc.UnixSocketRequireSameUser()))
	if err != nil {
		return err
	}
	stopped := make(chan struct{})
	var once sync.Once
	service := New(call.Namespace, call.ID, bundle, func() { once.Do(func() { close(stopped) }) })
	task.RegisterTTRPCTaskService(server, service)
	defer time.AfterFunc(alone, func() {
		_, _ = service.Shutdown(context.Background(), nil) // never fails
	}).Stop()
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(context.Background(), listener) }()
	select {
	case err := <-failed:
		return err
	case <-stopped:
	}
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	_ = server.Shutdown(ctx) // what goes unanswered now has waited for nothing
	return nil               // the socket's path may be another's by now: gshim removes it
}

// alone is after what time a daemon ends that nobody has given a task: containerd does so at
// once, unless it ended first.
const alone = time.Minute

// farewell bounds the wait for calls that are being answered when the daemon ends.
const farewell = time.Second

// speakTo makes the FIFO at path, from which containerd copies into its own log, the
// standard error. Opened to read as well, it is there while containerd is not, and what
// does not fit then is dropped.
func speakTo(path string) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return // then nobody hears us
	}
	_ = unix.Dup3(fd, 2, 0)
	_ = unix.Close(fd)
}
