package taskdb

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/reconcile"
	"github.com/greylag/greylag/pkg/cluster"
)

// Task is a node's record of one task.
type Task struct {
	ID     reconcile.ID
	Phase  reconcile.Phase
	Wanted []byte // the accepted task, in the protocol's encoding
	CPUs   []int  // the cores reserved for it; none: it shares the remaining ones
	// Granted is the log index that granted the attempt; 0: unknown.
	Granted uint64

	Hooked    bool // the prolog was to run, so the epilog will
	Signalled uint64
	KillAt    cluster.Instant
	Doomed    string // why the node itself ends it
	// Copied is whether the files of the job's StageOut were copied from here; CopyFailure is why they could not be.
	Copied      cluster.CopyState
	CopyFailure string
	Blame       string // device faults during the task
	// GPU is how its GPUs were used so far. The counters continue under the next daemon.
	GPU cluster.GPUUse
	// End is how it ended; its Phase and GPU are not used. Started is set from the start on.
	End cluster.Task
}

// form begins every record, for later versions.
const form = 1

// EncodeTask writes a record for DecodeTask.
func EncodeTask(task *Task) ([]byte, error) { return encode(task) }

// DecodeTask reads a record. It returns ErrCorrupt for any other data.
func DecodeTask(data []byte) (*Task, error) {
	task := &Task{}
	if err := decode(data, task); err != nil {
		return nil, err
	}
	if task.Phase < reconcile.Accepted || task.Phase > reconcile.Clean || task.ID.Job == 0 {
		return nil, fmt.Errorf("record of task %d.%d: impossible values: %w", task.ID.Job, task.ID.Attempt, ErrCorrupt)
	}
	return task, nil
}

func encode(value any) ([]byte, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("task record: %w", err)
	}
	return append([]byte{codec.FormByte(form)}, data...), nil
}

func decode(data []byte, value any) error {
	if len(data) == 0 {
		return fmt.Errorf("empty record: %w", ErrCorrupt)
	}
	switch f, err := codec.FormOf(data[0]); {
	case errors.Is(err, codec.ErrEarlier):
		return fmt.Errorf("a record was %w", err)
	case err != nil || f != form:
		return fmt.Errorf("record of an unknown form: %w", ErrCorrupt)
	}
	if err := json.Unmarshal(data[1:], value); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return nil
}
