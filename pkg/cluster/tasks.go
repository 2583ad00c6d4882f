package cluster

import (
	"iter"
	"slices"
)

// Tasks is the tasks of an attempt, one for each node of its allocation, in that order. It never
// changes: [Tasks.With] returns other tasks, which share all but a part of the memory. Nil is no
// tasks.
type Tasks struct {
	parts   [][]Task // of taskPart tasks each, the last one of fewer
	count   int
	reached [TaskClean + 1]int // by phase: the number of tasks that have reached it
}

// taskPart is the number of tasks that a change copies.
const taskPart = 16

// NewTasks returns tasks; nil for none. It keeps the list, which the caller must not change. O(tasks).
func NewTasks(list ...Task) *Tasks {
	if len(list) == 0 {
		return nil
	}
	t := &Tasks{parts: slices.Collect(slices.Chunk(list, taskPart)), count: len(list)}
	for i := range list {
		t.add(list[i].Phase, 1)
	}
	return t
}

// add changes the counts by n tasks in a phase.
func (t *Tasks) add(phase TaskPhase, n int) {
	for p := range t.reached[:min(phase, TaskClean)+1] {
		t.reached[p] += n
	}
}

// Len returns the number of tasks. O(1).
func (t *Tasks) Len() int {
	if t == nil {
		return 0
	}
	return t.count
}

// At returns the task of a rank, which the caller must not change. O(1).
func (t *Tasks) At(rank int) *Task { return &t.parts[rank/taskPart][rank%taskPart] }

// All yields the tasks by rank. The caller must not change them.
func (t *Tasks) All() iter.Seq2[int, *Task] {
	return func(yield func(int, *Task) bool) {
		for rank := range t.Len() {
			if !yield(rank, t.At(rank)) {
				return
			}
		}
	}
}

// List returns a copy of the tasks. O(tasks).
func (t *Tasks) List() []Task {
	if t == nil {
		return nil
	}
	return slices.Concat(t.parts...)
}

// With returns the tasks with another one at a rank. It copies 16 tasks, and 24 bytes for each 16 of
// the others.
func (t *Tasks) With(rank int, task Task) *Tasks {
	c := *t
	c.parts = slices.Clone(t.parts)
	part := slices.Clone(c.parts[rank/taskPart])
	c.parts[rank/taskPart] = part
	old := &part[rank%taskPart]
	c.add(old.Phase, -1)
	c.add(task.Phase, 1)
	*old = task
	return &c
}

// Reached returns how many tasks have reached a phase. O(1).
func (t *Tasks) Reached(phase TaskPhase) int {
	if t == nil {
		return 0
	}
	return t.reached[phase]
}

// AllReached reports whether all tasks have reached a phase. O(1).
func (t *Tasks) AllReached(phase TaskPhase) bool { return t.Reached(phase) == t.Len() }

// Changed yields the ranks whose tasks may differ from those of old, which must have the same length:
// those whose parts are not shared. O(tasks / 16 + yielded).
func (t *Tasks) Changed(old *Tasks) iter.Seq[int] {
	return func(yield func(int) bool) {
		if t == old {
			return
		}
		for i, part := range t.parts {
			if &part[0] == &old.parts[i][0] {
				continue
			}
			for k := range part {
				if !yield(i*taskPart + k) {
					return
				}
			}
		}
	}
}
