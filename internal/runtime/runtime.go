// Package runtime defines the contract between the node agent and a runtime of tasks: start a task,
// wait for it, signal it, remove it, and list what exists. It holds the types of the contract
// (Spec, Exit, Found) and no technology: the subdirectories implement it with containerd and with
// plain processes.
//
// It decides nothing about jobs: the agent and the controllers decide when a task starts, how long
// it may run and what its end means for the job.
package runtime

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/greylag/greylag/internal/userfile"
)

var (
	// ErrNotFound means that the runtime has no such task: it was never started here, or it was
	// removed.
	ErrNotFound = errors.New("no such task on this node")
	// ErrUnsupported means that this runtime cannot do what the Spec asks. Retrying does not help.
	ErrUnsupported = errors.New("not supported by this node's runtime")
	// ErrInvalid means that the Spec contradicts itself.
	ErrInvalid = errors.New("invalid task")
	// ErrUnavailable means that the runtime's daemon does not answer. The task may be running.
	// Callers should retry.
	ErrUnavailable = errors.New("container runtime does not answer")
	// ErrUnfit means that the runtime can start nothing on this node until an administrator fixes
	// what the message names. Running tasks continue.
	ErrUnfit = errors.New("container runtime cannot be used")
	// ErrRegistry means that the registry of an image does not answer or fails. Callers should
	// retry.
	ErrRegistry = errors.New("the registry cannot serve it at present")
)

// Runtime runs the tasks of one node. Methods are safe for concurrent use, and work on tasks that
// an earlier daemon started.
type Runtime interface {
	// Start runs the task once. It adopts a task that this runtime has already started, even before
	// a restart, and returns nil. Mistakes of the user, such as a missing working directory, are
	// the LaunchError of Wait, not errors of Start.
	Start(ctx context.Context, spec Spec) error
	// Wait blocks until the task has ended and returns how it ended. It may be repeated until
	// Remove. Errors: ErrNotFound, or the error of ctx.
	Wait(ctx context.Context, id TaskID) (Exit, error)
	// Signal sends sig to the task's program without its children, or with all to every process of
	// the task. SIGKILL, SIGSTOP and SIGCONT always go to every process. A task that has ended is
	// no error.
	Signal(ctx context.Context, id TaskID, sig syscall.Signal, all bool) error
	// Remove kills what is left of the task and removes processes, cgroup, mounts, private
	// directories and records. It is idempotent. After an error parts may remain; call it again.
	Remove(ctx context.Context, id TaskID) error
	// List returns every task of this node that was started and not removed, running or ended, by
	// TaskID.
	List(ctx context.Context) ([]Found, error)
	// Stats returns what the task has used so far; ErrNotFound if unknown.
	Stats(ctx context.Context, id TaskID) (Stats, error)
}

// Steps is implemented by a runtime whose tasks can run steps: programs that start later next to the
// task's own one, with its user, devices and limits.
type Steps interface {
	// StartStep starts the program for steps (gstepd) in a running task, once, with a file that holds
	// the order. For a step that was started before it replaces the file, if the order has changed.
	StartStep(ctx context.Context, id TaskID, step uint32, order []byte, owner Owner) error
	// WaitStep blocks until the step has ended. Errors: ErrNotFound, or the error of ctx.
	WaitStep(ctx context.Context, id TaskID, step uint32) (Exit, error)
	// SignalStep sends a signal to the program of a step, once for each number.
	SignalStep(ctx context.Context, id TaskID, step uint32, number uint64, sig syscall.Signal) error
}

// Images is implemented by a runtime that can run tasks from OCI images.
type Images interface {
	// Fetch makes the image present on this node and returns its name, bound to its digest, for
	// Spec.Image. For a present image it makes one request to the registry, which also verifies the
	// credentials, or reads the archive once. ErrRegistry and ErrUnavailable are transient; other
	// errors are permanent.
	Fetch(ctx context.Context, request FetchRequest) (string, error)
}

// ProcessLister is implemented by a runtime that knows the processes of a task.
type ProcessLister interface {
	// Processes returns the IDs on the host of the running processes; none for a task without
	// processes. O(processes of the task).
	Processes(id TaskID) ([]int, error)
}

// Collector is implemented by a runtime that stores images.
type Collector interface {
	// Collect deletes images unused for keep.Age, and of the others the least recently used until
	// the rest fits keep.Bytes. It never deletes an image that a task has or that was used within
	// the last hour.
	Collect(ctx context.Context, keep Keep) (Collected, error)
}

// Keep limits the images on a node.
type Keep struct {
	Age   time.Duration // since the last use of an image; 0: no limit
	Bytes int64         // of all images, downloaded and unpacked; 0: no limit
}

// Collected is the result of Collect.
type Collected struct {
	Deleted                 []string // names
	Kept                    int
	DeletedBytes, KeptBytes int64
}

// FetchRequest names an image and the user who requests it.
type FetchRequest struct {
	// Reference is the text that the user wrote: see package image for its forms.
	Reference string
	// Owner is the requesting user: archives and layouts on disk are opened with their identity.
	Owner Owner
	// Logins lists files in which the user may keep registry credentials, in the form of
	// containers-auth.json(5). They are opened with the user's identity; the first with an entry
	// counts.
	Logins []string
}

// Owner is a user as the kernel knows one.
type Owner = userfile.Owner

// TaskID identifies one task on a node: one attempt of one job. It is the fence: a runtime starts
// each TaskID at most once.
type TaskID struct {
	Job     uint64
	Attempt uint32
}

// String returns the name of containers and directories: "j7-a1".
func (id TaskID) String() string {
	return "j" + strconv.FormatUint(id.Job, 10) + "-a" + strconv.FormatUint(uint64(id.Attempt), 10)
}

// Compare orders by job, then attempt.
func (id TaskID) Compare(other TaskID) int {
	switch {
	case id.Job != other.Job && id.Job < other.Job, id.Job == other.Job && id.Attempt < other.Attempt:
		return -1
	case id == other:
		return 0
	}
	return 1
}

// ParseTaskID parses exactly the results of String.
func ParseTaskID(s string) (TaskID, error) {
	job, attempt, ok := strings.Cut(strings.TrimPrefix(s, "j"), "-a")
	if ok && strings.HasPrefix(s, "j") {
		j, errJob := strconv.ParseUint(job, 10, 64)
		a, errAttempt := strconv.ParseUint(attempt, 10, 32)
		id := TaskID{Job: j, Attempt: uint32(a)}
		if errJob == nil && errAttempt == nil && id.String() == s {
			return id, nil
		}
	}
	return TaskID{}, fmt.Errorf("task name %q: want j<job>-a<attempt>: %w", s, ErrInvalid)
}

// Exit describes how a task ended.
type Exit struct {
	// Code is the exit status, 0 to 255; 128 + Signal after a signal.
	Code int
	// Signal is the number of the signal that ended the program, or 0.
	Signal int
	// OOM reports that the kernel killed a process of the task for memory and the task then failed.
	OOM bool
	// OOMKills is the number of processes killed for memory, also if the task succeeded.
	OOMKills uint64
	// Started and Ended are times of the node's clock. Started is zero if the program was never
	// executed.
	Started, Ended time.Time
	// PeakMemory in bytes is the peak of the control group, or without one the largest resident set
	// of a process.
	PeakMemory uint64
	// CPUTime is the user and system time of all processes; UserTime is the user part.
	CPUTime, UserTime time.Duration
	// LaunchError is set if the user's program was never executed: a message for the user that
	// states the problem and its place.
	LaunchError string
	// Lost reports that the exit status was lost.
	Lost bool
}

// Found is a task that a runtime has.
type Found struct {
	ID      TaskID
	Running bool
	// Labels are the labels of the Spec.
	Labels map[string]string
}

// Stats is the use of a task so far.
type Stats struct {
	Memory, PeakMemory uint64 // bytes
	CPUTime            time.Duration
	Processes          uint64
}
