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

// Run serves the task on the socket that gshim created, in the bundle that it was started in, until
// a shutdown is requested.
func Run(call shim.Call) error {
	bundle, err := os.Getwd()
	if err != nil {
		return err
	}
	if err := shim.Hold(bundle); err != nil {
		return err
	}
	speakTo(filepath.Join(bundle, "log"))
	// The first process of the container is a child of the OCI runtime, which ends before it.
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
	_ = server.Shutdown(ctx) // unanswered calls have no effect
	return nil               // the path of the socket may belong to another daemon by now: gshim removes it
}

// alone is the time after which a daemon without a task ends. containerd creates the task at once,
// unless it ended first.
const alone = time.Minute

// farewell limits the wait for calls in progress when the daemon ends.
const farewell = time.Second

// speakTo redirects standard error to the FIFO at path, which containerd copies into its log. It
// opens the FIFO for reading too, so that it exists while containerd is away; excess output is
// dropped.
func speakTo(path string) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return // without a log
	}
	_ = unix.Dup3(fd, 2, 0)
	_ = unix.Close(fd)
}
