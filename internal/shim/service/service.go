//go:build linux

// Package service is the daemon that keeps one task for containerd. It has the OCI runtime create
// and start the container, waits for its first process, and reports how it ended. It serves
// containerd's task service, version 2, over ttrpc, which containerd 1.6 and later use.
//
// It decides what a call means in the state of the task. It never acts on its own: others decide
// what runs, when it ends, and what its end means. It refuses or omits what containerd offers for
// other kinds of tasks (terminals, pipes, execs, checkpoints, events): a task of Greylag has an
// init that opens its files and records its end.
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

// Service keeps the task of one container in one bundle.
type Service struct {
	namespace, id, bundle string
	stop                  func() // ends the daemon

	mu       sync.Mutex // not held while the OCI runtime runs
	oci      shim.OCI
	state    state
	busy     bool          // the OCI runtime is working on the container
	giveUp   func()        // kills the OCI runtime that creates it
	over     chan struct{} // closed when that has ended; nil while none runs
	process  *os.Process   // the first; nil before the start and after a failed one
	status   uint32        // exit status
	exitedAt time.Time     // zero until it has ended
	exited   chan struct{} // closed at the end of the process
}

// state is the life cycle of the task.
type state int

const (
	none    state = iota // not created, or deleted
	created              // its file system exists; nothing runs
	started              // its first process was started or failed to start, and may have ended
)

// New returns a service without a task. It calls stop when a shutdown is requested.
func New(namespace, id, bundle string, stop func()) *Service {
	return &Service{namespace: namespace, id: id, bundle: bundle, stop: stop, exited: make(chan struct{})}
}

// Create implements the task service: it prepares the file system. The OCI runtime checks the rest
// in Start.
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
	err := s.oci.Write(s.bundle) // first, so that all later steps can be undone after a crash
	if err == nil {
		err = s.mount(request)
	}
	if err != nil {
		return nil, errgrpc.ToGRPC(errors.Join(err, s.oci.Delete(s.id, s.bundle)))
	}
	s.state = created
	return &task.CreateTaskResponse{}, nil
}

// mount mounts the file system of a task that has its own.
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

// Start implements the task service: it creates the container and starts its first process. An OCI
// runtime that hangs is killed when the caller's deadline passes. A caller that disconnects does
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
		s.end(unknownStatus) // a process that may have started cannot be waited for
		return nil, errgrpc.ToGRPC(err)
	}
	s.process = process
	go s.wait(process)
	return &task.StartResponse{Pid: s.pid()}, nil
}

// longestPause limits the interval between checks of a process that is not our child yet.
const longestPause = 100 * time.Millisecond

// wait waits for the end of the first process. If the OCI runtime forked, as crun does, the process
// may become our child shortly after the call has ended.
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

// end records the end of the first process; s.mu is held.
func (s *Service) end(status uint32) {
	s.status, s.exitedAt = status, time.Now()
	close(s.exited)
}

// unknownStatus is containerd's status of an end that was not observed.
const unknownStatus = 255

// exitStatus converts a wait status as a shell does.
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
	case <-s.exited: // status and exitedAt never change afterwards
		return &task.WaitResponse{ExitStatus: s.status, ExitedAt: timestamppb.New(s.exitedAt)}, nil
	case <-ctx.Done():
		return nil, errgrpc.ToGRPC(ctx.Err())
	}
}

// Kill implements the task service. The end of the first process ends all others of the task.
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

// Delete implements the task service. It kills an OCI runtime that is still creating the container
// and may hang.
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
		case <-ctx.Done(): // the kernel cannot end it
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

// Pids implements the task service: it returns the first process, also after its end, until the
// task is deleted. containerd asks after a restart, and takes a task without processes for one that
// never existed.
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

// pid returns the ID of the first process; 0 before its start. s.mu is held.
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

// Shutdown implements the task service: the daemon ends unless it has a task.
func (s *Service) Shutdown(context.Context, *task.ShutdownRequest) (*emptypb.Empty, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == none && !s.busy {
		s.stop()
	}
	return &emptypb.Empty{}, nil
}

// own refuses a call about another task; s.mu is held.
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

// grpc returns an error of a kind that containerd knows.
func grpc(kind error, format string, args ...any) error {
	return errgrpc.ToGRPC(fmt.Errorf(format+": %w", append(args, kind)...))
}
