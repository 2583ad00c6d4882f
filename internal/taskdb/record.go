package taskdb

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/reconcile"
	"github.com/greylag/greylag/pkg/cluster"
)

// Task is what a node has recorded of one task.
type Task struct {
	ID     reconcile.ID
	Phase  reconcile.Phase
	Wanted []byte // what was accepted, in the protocol's encoding
	CPUs   []int  // the cores set aside for it; none: it shares those left over
	// Granted is the log index that granted the attempt; 0: unknown.
	Granted uint64

	Hooked    bool // the prolog was to run, so the epilog is
	Signalled uint64
	KillAt    cluster.Instant
	Doomed    string // why the node itself will not let it go on
	Blame     string // what the node's devices did to it meanwhile
	// GPU is how its GPUs were used so far. The counters go on with the next daemon.
	GPU cluster.GPUUse
	// End is how it ended, once it has; its Phase and GPU are not used. Started is
	// set from the start on.
	End cluster.Task
}

// form is the form of every record, which its first byte says.
const form = 1

// EncodeTask writes a record for DecodeTask.
func EncodeTask(task *Task) ([]byte, error) { return encode(task) }

// DecodeTask reads a record. ErrCorrupt where it is none.
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
