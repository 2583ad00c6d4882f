// Package runtime is what the node agent asks of whatever runs tasks: start
// one, wait for it, signal it, remove it, and say what is there. It holds the
// words of that contract (Spec, Exit, Found) and no technology: containerd and
// plain processes are implementations in the folders below.
//
// It decides nothing about jobs: when a task starts, how long it may run and
// what its end means for the job are the agent's and the controller's.
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
	// ErrNotFound says that the runtime keeps nothing of this task: it was
	// never started here, or it was removed.
	ErrNotFound = errors.New("no such task on this node")
	// ErrUnsupported says that this runtime cannot do what the Spec asks, and
	// that trying again will not help.
	ErrUnsupported = errors.New("not supported by this node's runtime")
	// ErrInvalid says that the Spec contradicts itself.
	ErrInvalid = errors.New("invalid task")
	// ErrUnavailable says that the runtime's daemon does not answer; the
	// task may well be running. Trying again later is right.
	ErrUnavailable = errors.New("container runtime does not answer")
	// ErrUnfit says that the runtime can start nothing on this node until
	// somebody mends what the message names. What runs goes on.
	ErrUnfit = errors.New("container runtime cannot be used")
	// ErrRegistry says that the registry of an image does not answer, or that
	// it has trouble of its own. Trying again later is right.
	ErrRegistry = errors.New("its registry cannot serve it now")
)

// Runtime runs the tasks of one node. Every method may be called from many
// goroutines, and after a restart of the daemon that started the task.
type Runtime interface {
	// Start runs the task once. A task that this runtime has already
	// started, even before a restart, is adopted: Start returns nil and
	// starts nothing. What the user got wrong (no such working directory) is
	// not an error of Start but the LaunchError of Wait.
	Start(ctx context.Context, spec Spec) error
	// Wait blocks until the task has ended and says how. It may be asked
	// again until Remove. Errors: ErrNotFound, or the context's.
	Wait(ctx context.Context, id TaskID) (Exit, error)
	// Signal delivers sig to the program that the task runs and its process
	// group, or with all to every process of the task. SIGKILL, SIGSTOP and
	// SIGCONT always reach every process. A task that has ended is no error.
	Signal(ctx context.Context, id TaskID, sig syscall.Signal, all bool) error
	// Remove kills what is left of the task and forgets it: processes,
	// cgroup, mounts, private folders, records. It is idempotent. After an
	// error something may be left, and Remove should be called again.
	Remove(ctx context.Context, id TaskID) error
	// List names every task of this node that was started and not removed,
	// running or ended, ordered by TaskID.
	List(ctx context.Context) ([]Found, error)
	// Stats reads what the task has used so far. ErrNotFound where the
	// runtime does not know.
	Stats(ctx context.Context, id TaskID) (Stats, error)
}

// Images is implemented by a runtime that can run tasks from OCI images.
type Images interface {
	// Fetch makes the image present on this node and returns the name, bound
	// to its digest, to put into Spec.Image. An image that is present costs
	// one question to its registry (which also proves the credentials), or
	// one reading of the archive. ErrRegistry and ErrUnavailable may pass; other
	// errors come again however often it is tried.
	Fetch(ctx context.Context, request FetchRequest) (string, error)
}

// ProcessLister is implemented by a runtime that knows which processes are of a task.
type ProcessLister interface {
	// Processes lists those that run, by their ids on the host; none of a task that
	// runs nothing. O(processes of the task).
	Processes(id TaskID) ([]int, error)
}

// Collector is implemented by a runtime that keeps images until they are in the way.
type Collector interface {
	// Collect deletes images that were not wanted for keep.Age, and of the others
	// those that were not wanted for longest until all fit into keep.Bytes; but none
	// that a task has, or that was wanted within the last hour.
	Collect(ctx context.Context, keep Keep) (Collected, error)
}

// Keep bounds the images on a node.
type Keep struct {
	Age   time.Duration // since an image was last wanted; 0: for ever
	Bytes int64         // of all, as downloaded and unpacked; 0: no bound
}

// Collected is what Collect did.
type Collected struct {
	Deleted                 []string // names
	Kept                    int
	DeletedBytes, KeptBytes int64
}

// FetchRequest says which image and on whose behalf.
type FetchRequest struct {
	// Reference is what the user wrote: see package image for its forms.
	Reference string
	// Owner is who asks: archives and layouts on disk are opened as them.
	Owner Owner
	// Logins are paths of files where the owner may keep logins to registries, in
	// the form of containers-auth.json(5); opened as them, the first that knows one
	// counts.
	Logins []string
}

// Owner is a user as the kernel knows one.
type Owner = userfile.Owner

// TaskID names one task on a node: one attempt of one job. It is the fence: a
// runtime starts each TaskID at most once.
type TaskID struct {
	Job     uint64
	Attempt uint32
}

// String gives the name used for containers and folders: "j7-a1".
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

// ParseTaskID reads what String wrote, and nothing else.
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

// Exit is how a task ended.
type Exit struct {
	// Code is the exit status, 0 to 255; 128 + Signal where one ended it.
	Code int
	// Signal is the number of the signal that ended the task's program, or 0.
	Signal int
	// OOM says that the kernel killed a process of the task for memory and
	// that the task then failed.
	OOM bool
	// OOMKills counts processes killed for memory, also where the task went
	// on and succeeded.
	OOMKills uint64
	// Started and Ended are the node's clock. Started is zero where the
	// program was never executed.
	Started, Ended time.Time
	// PeakMemory in bytes: the cgroup's high-water mark, or without a cgroup
	// the largest resident set of one process.
	PeakMemory uint64
	// CPUTime is user and system time of all processes, UserTime the former.
	CPUTime, UserTime time.Duration
	// LaunchError is set where the user's program was never executed, in
	// words for the user: what was wrong, and where.
	LaunchError string
	// Lost says that nobody recorded how the task ended.
	Lost bool
}

// Found is a task that a runtime holds.
type Found struct {
	ID      TaskID
	Running bool
	// Labels are those of the Spec.
	Labels map[string]string
}

// Stats is what a task has used so far.
type Stats struct {
	Memory, PeakMemory uint64 // bytes
	CPUTime            time.Duration
	Processes          uint64
}
