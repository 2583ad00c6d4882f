//go:build linux

package containerd

import (
	"context"
	"fmt"
	"slices"

	"github.com/greylag/greylag/internal/runtime"
)

// List implements runtime.Runtime: the union of the task directories and this node's containers in
// containerd, so that neither lost nor leftover tasks are missed.
func (r *Runtime) List(ctx context.Context) ([]runtime.Found, error) {
	ids, err := r.tasks.List()
	if err != nil {
		return nil, err
	}
	containers, err := r.client.ContainerService().List(r.scope(ctx), fmt.Sprintf("labels.%q==%q", labelNode, r.config.CgroupParent))
	if err != nil {
		return nil, fmt.Errorf("list tasks: %w", unavailable(err))
	}
	for _, container := range containers {
		if id, err := runtime.ParseTaskID(container.ID); err == nil && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, runtime.TaskID.Compare)
	found := make([]runtime.Found, 0, len(ids))
	for _, id := range ids {
		found = append(found, r.found(id))
	}
	return found, nil
}

// found returns what the task's directory holds. An unreadable directory counts as a task: Remove
// clears it.
func (r *Runtime) found(id runtime.TaskID) runtime.Found {
	dir := r.tasks.Dir(id)
	found := runtime.Found{ID: id}
	if notes, err := dir.Notes(); err == nil {
		found.Labels = notes.Labels
	}
	if handle, known, err := dir.Process(); err == nil && known {
		found.Running = handle.Alive()
	}
	return found
}
