package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	tasks "github.com/greylag/greylag/internal/runtime"
)

// stuck is a runtime that cannot remove task 1 while its processes do not end.
type stuck struct {
	tasks.Runtime
	killed atomic.Bool
}

func (s *stuck) Remove(ctx context.Context, id tasks.TaskID) error {
	if id.Job == 1 && !s.killed.Load() {
		return errors.New("its processes do not end")
	}
	return s.Runtime.Remove(ctx, id)
}

// Processes implements tasks.ProcessLister.
func (s *stuck) Processes(tasks.TaskID) ([]int, error) { return []int{os.Getpid()}, nil }

// TestUnkillableTask: the node reports a draining condition of its job that names the process, another task
// ends as usual, and the condition ends with the task.
func TestUnkillableTask(t *testing.T) {
	t.Parallel()
	rt := &stuck{}
	n := newNode(t, "process", func(n *node) {
		open := n.open
		n.open = func() (tasks.Runtime, func() error, error) {
			inner, end, err := open()
			rt.Runtime = inner
			return rt, end, err
		}
	})
	n.want(at(1, 1), "#!/bin/sh\n", nil)
	n.until("a condition", func() bool {
		c := n.condition(causeUnkillable)
		return strings.HasPrefix(c, "drains 1: the task of job 1 cannot be removed: its processes do not end; process ") && strings.Contains(c, "(agent.test)")
	})
	n.want(at(2, 1), "#!/bin/sh\n", nil)
	n.settled(at(2, 1))
	rt.killed.Store(true)
	n.settled(at(1, 1))
	n.until("its end", func() bool { return n.condition(causeUnkillable) == "" })
}

func TestProcessText(t *testing.T) {
	proc := t.TempDir()
	for path, text := range map[string]string{"7/comm": "python\n", "7/wchan": "nfs_wait", "8/comm": "sh\n", "8/wchan": "0"} {
		if err := os.MkdirAll(filepath.Join(proc, filepath.Dir(path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := processText(proc, []int{7, 8, 9, 10, 11}), "; process 7 (python) waits in nfs_wait, process 8 (sh), process 9 (), 2 more"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := processText(proc, nil); got != "" {
		t.Errorf("%q", got)
	}
}
