package agent

import (
	"errors"
	"fmt"
	"time"

	tasks "github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/pkg/cluster"
)

// classify returns the cause of a task's end. The first row that holds counts:
//
//	exit status lost                         TaskLost
//	its program was never executed           LaunchFailed
//	the node reached no controller           NodeFault
//	the node powers off                      NodeFault
//	its output was too large                 OutputExceeded
//	the node stopped it                      GPUFault
//	the kernel killed it for memory          MemoryKilled
//	it was stopped                           Stopped
//	it failed and its GPU had an error       GPUFault
//	otherwise                                Exited
//
// The controllers know the reason of a stop (a time limit, a cancellation).
func classify(t *task, exit tasks.Exit) cluster.Task {
	how := cluster.Task{
		Exit:    cluster.Exit{Code: int32(exit.Code)},
		Started: cluster.InstantOf(exit.Started), Ended: cluster.InstantOf(exit.Ended),
		Memory: cluster.Bytes(exit.PeakMemory), CPUTime: exit.CPUTime, User: exit.UserTime,
	}
	if exit.Signal != 0 { // as wait(2) reports it, not as a shell does
		how.Exit = cluster.Exit{Signal: int32(exit.Signal)}
	}
	if how.Ended == 0 {
		how.Ended = cluster.InstantOf(time.Now())
	}
	switch {
	case exit.Lost:
		how.Cause, how.Message = cluster.TaskLost, "task exit status lost"
	case exit.LaunchError != "":
		how.Cause, how.Message = cluster.LaunchFailed, exit.LaunchError
	case t.isFenced():
		how.Cause, how.Message = cluster.NodeFault, t.Doomed
	case t.exceedsOutput():
		how.Cause, how.Message = cluster.OutputExceeded, t.Doomed
	case t.Doomed != "":
		how.Cause, how.Message = cluster.GPUFault, t.Doomed
	case exit.OOM:
		how.Cause, how.Message = cluster.MemoryKilled, memoryMessage(t, exit)
	case t.KillAt != 0:
		how.Cause = cluster.Stopped
	case !how.Exit.OK() && t.Blame != "":
		how.Cause, how.Message = cluster.GPUFault, t.Blame
	default:
		how.Cause, how.Message = cluster.Exited, survivedMessage(t, exit)
	}
	return how
}

func memoryMessage(t *task, exit tasks.Exit) string {
	limit := cluster.Bytes(t.own().GetMemory())
	if limit == 0 {
		return "out of memory: the kernel killed a process of the task"
	}
	return fmt.Sprintf("used %d MiB of its limit of %d MiB; request more with --mem", exit.PeakMemory>>20, limit/cluster.MiB)
}

// survivedMessage returns a message about a task that ended normally although the kernel killed
// some of its processes for memory, since its results may be wrong. "" if none was killed.
func survivedMessage(t *task, exit tasks.Exit) string {
	if exit.OOMKills == 0 {
		return ""
	}
	message := fmt.Sprintf("out of memory: the kernel killed %d of its processes; the task continued", exit.OOMKills)
	if t.own().GetMemory() > 0 {
		message += ": " + memoryMessage(t, exit)
	}
	return message
}

// failure is the reason why a task could not start.
type failure struct {
	cause   cluster.TaskCause
	message string
}

// Error returns the message.
func (f *failure) Error() string { return f.message }

func failed(cause cluster.TaskCause, format string, args ...any) error {
	return &failure{cause: cause, message: fmt.Sprintf(format, args...)}
}

// causeOf classifies the error of a start. Errors caused by the task's own settings are the user's.
// All others are node faults, and the job may run elsewhere.
func causeOf(err error) (cluster.TaskCause, string) {
	var f *failure
	switch {
	case errors.As(err, &f):
		return f.cause, f.message
	case errors.Is(err, tasks.ErrInvalid), errors.Is(err, tasks.ErrUnsupported):
		return cluster.LaunchFailed, err.Error()
	}
	return cluster.NodeFault, err.Error()
}
