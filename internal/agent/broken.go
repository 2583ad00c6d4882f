package agent

import (
	"context"
	"syscall"

	tasks "github.com/greylag/greylag/internal/runtime"
)

// Broken is the runtime of a node that has none, so that the node can register
// all the same and say why it takes no work.
type Broken struct{ Reason error }

var _ tasks.Runtime = Broken{}

// Ready says why nothing can run.
func (b Broken) Ready(context.Context) error { return b.Reason }

// Start fails.
func (b Broken) Start(context.Context, tasks.Spec) error { return b.Reason }

// Wait fails; nobody knows whether the task runs.
func (b Broken) Wait(context.Context, tasks.TaskID) (tasks.Exit, error) {
	return tasks.Exit{}, b.Reason
}

// Signal fails.
func (b Broken) Signal(context.Context, tasks.TaskID, syscall.Signal, bool) error { return b.Reason }

// Remove fails.
func (b Broken) Remove(context.Context, tasks.TaskID) error { return b.Reason }

// List fails.
func (b Broken) List(context.Context) ([]tasks.Found, error) { return nil, b.Reason }

// Stats fails.
func (b Broken) Stats(context.Context, tasks.TaskID) (tasks.Stats, error) {
	return tasks.Stats{}, b.Reason
}
