//go:build linux

// Package service is the daemon that keeps one task for containerd: it has the OCI
// runtime make the container and begin it at once, waits for its first process, and
// tells how that ended. It speaks containerd's task service, version 2, which 1.6 and
// all later versions speak, over ttrpc.
//
// It decides what a call means in the state that the task is in. It never acts on its own:
// what runs, when it ends and what its end means are others'. What containerd offers for
// tasks of other kinds (terminals, pipes, execs, checkpoints, events) it refuses or leaves
// out: a task of Greylag has an init that opens its files and records its end.
package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/api/types/runc/options"
	types "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/greylag/greylag/internal/shim"
)

// Service keeps the task of one container, in one bundle.
type Service struct {
	namespace, id, bundle string
	stop                  func() // ends the daemon

	mu       sync.Mutex // not held while the OCI runtime runs
	oci      shim.OCI
	state    state
	busy     bool          // the OCI runtime is at work on the container
	giveUp   func()        // kills the OCI runtime that makes it
	over     chan struct{} // closed when that has ended; nil while none makes it
	process  *os.Process   // the first; nil before it was started, and where that failed
	status   uint32        // of its end
	exitedAt time.Time     // zero until it has ended
	exited   chan struct{} // closed then
}

// state is how far the task has come.
type state int

const (
	none    state = iota // not created, or deleted
	created              // its file system is there; nothing runs
	started              // its first process was begun, or could not be, and may have ended
)

// New gives a service with no task yet. stop is called once it is asked to shut down.
func New(namespace, id, bundle string, stop func()) *Service {
	return &Service{namespace: namespace, id: id, bundle: bundle, stop: stop, exited: make(chan struct{})}
}

// Create implements the task service: it prepares the file system. The OCI runtime
// checks the rest in Start.
func (s *Service) Create(_ context.Context, request *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if request.ID != s.id {
		return nil, s.notFound(request.ID)
	}
	if s.state != none || s.busy {
		return nil, grpc(errdefs.ErrAlreadyExists, "task %s", s.id)
	}
	if request.Terminal || request.Stdin != "" || request.Stdout != "" || request.Stderr != "" || request.Checkpoint != "" {
		return nil, grpc(errdefs.ErrNotImplemented, "terminals, pipes and checkpoints")
	}
	var wanted options.Options
	if request.Options != nil {
		if err := request.Options.UnmarshalTo(&wanted); err != nil {
			return nil, grpc(errdefs.ErrInvalidArgument, "options of task %s: %w", s.id, err)
		}
	}
	if wanted.BinaryName == "" || wanted.Root == "" {
		return nil, grpc(errdefs.ErrInvalidArgument, "options of task %s: want the OCI runtime and its root", s.id)
	}
	s.oci = shim.OCI{Program: wanted.BinaryName, Root: filepath.Join(wanted.Root, s.namespace), Systemd: wanted.SystemdCgroup}
	err := s.oci.Write(s.bundle) // first: whatever becomes of us, what follows can be undone
	if err == nil {
		err = s.mount(request)
	}
	if err != nil {
		return nil, errgrpc.ToGRPC(errors.Join(err, s.oci.Delete(s.id, s.bundle)))
	}
	s.state = created
	return &task.CreateTaskResponse{}, nil
}

// mount makes the file system of a task that has one of its own.
func (s *Service) mount(request *task.CreateTaskRequest) error {
	if len(request.Rootfs) == 0 {
		return nil
	}
	rootfs := filepath.Join(s.bundle, "rootfs")
	if err := os.Mkdir(rootfs, 0o711); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	for _, m := range request.Rootfs {
		if err := (&mount.Mount{Type: m.Type, Source: m.Source, Target: m.Target, Options: m.Options}).Mount(rootfs); err != nil {
			return fmt.Errorf("mount the file system of task %s: %w", s.id, err)
		}
	}
	return nil
}

// Start implements the task service: it makes the container and begins its first process. An
// OCI runtime that hangs is killed when the caller's time is up. That the caller is gone does
// not count: a containerd that comes back wants its task.
func (s *Service) Start(ctx context.Context, request *task.StartRequest) (*task.StartResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.own(request.ID, request.ExecID); err != nil {
		return nil, err
	}
	if s.state != created || s.busy {
		return nil, grpc(errdefs.ErrFailedPrecondition, "task %s was started before", s.id)
	}
	limited, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if deadline, ok := ctx.Deadline(); ok {
		var done func()
		limited, done = context.WithDeadline(limited, deadline)
		defer done()
	}
	s.busy, s.giveUp, s.over = true, cancel, make(chan struct{})
	s.mu.Unlock()
	process, err := run(limited, s.oci, s.id, s.bundle)
	s.mu.Lock()
	close(s.over)
	s.busy, s.over, s.state = false, nil, started
	if err != nil {
		s.end(unknownStatus) // what may have begun all the same cannot be waited for
		return nil, errgrpc.ToGRPC(err)
	}
	s.process = process
	go s.wait(process)
	return &task.StartResponse{Pid: s.pid()}, nil
}

// longestPause is between two looks at a process that is not our child yet.
const longestPause = 100 * time.Millisecond

// wait is for the end of the first process. Where the OCI runtime has forked on its way, as crun
// does, that may not be our child for a moment after the call of it has ended.
func (s *Service) wait(process *os.Process) {
	ended, err := process.Wait()
	for pause := time.Millisecond; errors.Is(err, syscall.ECHILD) && process.Signal(syscall.Signal(0)) == nil; pause = min(2*pause, longestPause) {
		time.Sleep(pause)
		ended, err = process.Wait()
	}
	status := uint32(unknownStatus)
	if err == nil {
		status = exitStatus(ended.Sys().(syscall.WaitStatus))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(status)
}

// end notes the end of the first process; s.mu is held.
func (s *Service) end(status uint32) {
	s.status, s.exitedAt = status, time.Now()
	close(s.exited)
}

// unknownStatus is that of an end which nobody saw, as containerd has it.
const unknownStatus = 255

// exitStatus is a wait status the way a shell says it.
func exitStatus(status syscall.WaitStatus) uint32 {
	if status.Signaled() {
		return 128 + uint32(status.Signal())
	}
	return uint32(status.ExitStatus())
}

// State implements the task service.
func (s *Service) State(_ context.Context, request *task.StateRequest) (*task.StateResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.own(request.ID, request.ExecID); err != nil {
		return nil, err
	}
	answer := &task.StateResponse{ID: s.id, Bundle: s.bundle, Pid: s.pid(), Status: types.Status_CREATED}
	switch {
	case !s.exitedAt.IsZero():
		answer.Status, answer.ExitStatus, answer.ExitedAt = types.Status_STOPPED, s.status, timestamppb.New(s.exitedAt)
	case s.state == started:
		answer.Status = types.Status_RUNNING
	}
	return answer, nil
}

// Wait implements the task service.
func (s *Service) Wait(ctx context.Context, request *task.WaitRequest) (*task.WaitResponse, error) {
	s.mu.Lock()
	err := s.own(request.ID, request.ExecID)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case <-s.exited: // after which status and exitedAt never change
		return &task.WaitResponse{ExitStatus: s.status, ExitedAt: timestamppb.New(s.exitedAt)}, nil
	case <-ctx.Done():
		return nil, errgrpc.ToGRPC(ctx.Err())
	}
}

// Kill implements the task service. With the first process all others of the task end.
func (s *Service) Kill(_ context.Context, request *task.KillRequest) (*emptypb.Empty, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.own(request.ID, request.ExecID); err != nil {
		return nil, err
	}
	if s.state != started {
		return nil, grpc(errdefs.ErrFailedPrecondition, "task %s was not started", s.id)
	}
	if request.All && syscall.Signal(request.Signal) != syscall.SIGKILL {
		return nil, grpc(errdefs.ErrNotImplemented, "a signal other than SIGKILL to every process")
	}
	err := os.ErrProcessDone
	if s.process != nil {
		err = s.process.Signal(syscall.Signal(request.Signal))
	}
	if errors.Is(err, os.ErrProcessDone) {
		return nil, grpc(errdefs.ErrNotFound, "process of task %s has ended", s.id)
	}
	if err != nil {
		return nil, errgrpc.ToGRPC(fmt.Errorf("signal to task %s: %w", s.id, err))
	}
	return &emptypb.Empty{}, nil
}

// Delete implements the task service. It does not wait for an OCI runtime that is still making
// the container, and may hang: that is killed first.
func (s *Service) Delete(ctx context.Context, request *task.DeleteRequest) (*task.DeleteResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.own(request.ID, request.ExecID); err != nil {
		return nil, err
	}
	if over := s.over; over != nil {
		s.giveUp()
		s.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done(): // the kernel does not let it end
		}
		s.mu.Lock()
	}
	if s.busy || s.state == started && s.exitedAt.IsZero() {
		return nil, grpc(errdefs.ErrFailedPrecondition, "cannot delete a running process")
	}
	s.busy = true
	s.mu.Unlock()
	err := s.oci.Delete(s.id, s.bundle)
	s.mu.Lock()
	s.busy = false
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	answer := &task.DeleteResponse{Pid: s.pid(), ExitStatus: s.status}
	if !s.exitedAt.IsZero() {
		answer.ExitedAt = timestamppb.New(s.exitedAt)
	}
	s.state = none
	return answer, nil
}

// Pids implements the task service: it names the first process, also when it has ended,
// until the task is deleted. containerd asks when it comes back, and takes a task that has
// none for one that never was.
func (s *Service) Pids(_ context.Context, request *task.PidsRequest) (*task.PidsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.own(request.ID, ""); err != nil {
		return nil, err
	}
	answer := &task.PidsResponse{}
	if s.process != nil {
		answer.Processes = []*types.ProcessInfo{{Pid: s.pid()}}
	}
	return answer, nil
}

// pid is the first process's id; 0 before it was started. s.mu is held.
func (s *Service) pid() uint32 {
	if s.process == nil {
		return 0
	}
	return uint32(s.process.Pid)
}

// Connect implements the task service.
func (s *Service) Connect(context.Context, *task.ConnectRequest) (*task.ConnectResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &task.ConnectResponse{ShimPid: uint32(os.Getpid()), TaskPid: s.pid(), Version: "v2"}, nil
}

// Shutdown implements the task service: the daemon ends, unless it has a task.
func (s *Service) Shutdown(context.Context, *task.ShutdownRequest) (*emptypb.Empty, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == none && !s.busy {
		s.stop()
	}
	return &emptypb.Empty{}, nil
}

// own refuses a call that is not about our task; s.mu is held.
func (s *Service) own(id, execID string) error {
	if id != s.id || s.state == none {
		return s.notFound(id)
	}
	if execID != "" {
		return grpc(errdefs.ErrNotFound, "process %s of task %s", execID, id)
	}
	return nil
}

func (s *Service) notFound(id string) error { return grpc(errdefs.ErrNotFound, "task %s", id) }

// grpc is an error that containerd knows, with words.
func grpc(kind error, format string, args ...any) error {
	return errgrpc.ToGRPC(fmt.Errorf(format+": %w", append(args, kind)...))
}
