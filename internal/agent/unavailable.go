package agent

import (
	"context"
	"syscall"

	tasks "github.com/greylag/greylag/internal/runtime"
)

// Unavailable is the runtime of a node without one. The node can register and report why it takes
// no work.
type Unavailable struct{ Reason error }

var _ tasks.Runtime = Unavailable{}

// Ready returns the reason why nothing can run.
func (b Unavailable) Ready(context.Context) error { return b.Reason }

// Start fails.
func (b Unavailable) Start(context.Context, tasks.Spec) error { return b.Reason }

// Wait fails; the state of the task is unknown.
func (b Unavailable) Wait(context.Context, tasks.TaskID) (tasks.Exit, error) {
	return tasks.Exit{}, b.Reason
}

// Signal fails.
func (b Unavailable) Signal(context.Context, tasks.TaskID, syscall.Signal, bool) error {
	return b.Reason
}

// Remove fails.
func (b Unavailable) Remove(context.Context, tasks.TaskID) error { return b.Reason }

// List fails.
func (b Unavailable) List(context.Context) ([]tasks.Found, error) { return nil, b.Reason }

// Stats fails.
func (b Unavailable) Stats(context.Context, tasks.TaskID) (tasks.Stats, error) {
	return tasks.Stats{}, b.Reason
}
