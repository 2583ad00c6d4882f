package agent

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/gpu"
	tasks "github.com/greylag/greylag/internal/runtime"
)

// TestActivity checks what counts as activity of a task with one GPU within a minute.
func TestActivity(t *testing.T) {
	for _, c := range []struct {
		name        string
		busy, watts float64 // of its GPU; watts 0: not measured
		output      int64
		written     uint64
		cpu         time.Duration
		active      bool
	}{
		{"sleeps", 0, 70, 0, 0, time.Second, false},
		{"works on the GPU", 90, 650, 0, 0, time.Minute, true},
		{"hangs in NCCL: busy, little power, and waits in a loop", 100, 130, 0, 100, time.Minute, false},
		{"waits for its data", 20, 130, 0, 100, time.Second, true},
		{"busy, power not measured", 100, 0, 0, 0, 0, true},
		{"works on CPUs, its GPU is idle", 0, 70, 0, 0, time.Minute, true},
		{"a line of output", 0, 70, 20, 20, 0, true},
		{"the output was truncated", 0, 70, -20, 0, 0, true},
		{"writes a checkpoint", 0, 70, 0, 1 << 30, 0, true},
		{"wakes up now and then", 0, 70, 0, 4096, time.Second, false},
	} {
		q := inactivity{last: activitySample{output: 100}}
		load := func(busy int64, watts float64) map[string]gpu.Load {
			l := gpu.Load{UUID: "g", Busy: &busy}
			if watts > 0 {
				l.Values = map[string]float64{powerOfGPU: watts}
			}
			return map[string]gpu.Load{"g": l}
		}
		q.addLoads([]string{"g"}, load(100, 650*min(c.watts, 1))) // it worked before
		q.worked, q.sampled = false, false
		clear(q.busy)
		q.addLoads([]string{"g"}, load(int64(c.busy), c.watts))
		s := activitySample{cpu: c.cpu, written: c.written, output: 100 + c.output}
		if got := q.active(s, time.Minute, true); got != c.active {
			t.Errorf("%s: active is %t, want %t", c.name, got, c.active)
		}
	}
	unknown := inactivity{}
	if !unknown.active(activitySample{}, time.Minute, true) {
		t.Error("a task whose GPU could not be sampled is not active")
	}
}

// TestInactiveTask checks that an inactive task is reported, once, and no longer when it writes.
func TestInactiveTask(t *testing.T) {
	n := newNode(t, "containerd", func(n *node) { n.cfg.Meter = 20 * time.Millisecond })
	const script = "#!/bin/sh\ntrap 'echo works' USR1\nwhile :; do sleep 0.2; done\n"
	n.want(at(5, 1), script, func(w *greylagv1.WantedTask) {
		w.WorkDir, w.Output, w.InactiveWarning, w.InactiveLimit = n.home, "out", durationpb.New(time.Second), durationpb.New(2*time.Second)
	})
	level := func(want uint32) {
		t.Helper()
		n.until(fmt.Sprintf("the task is inactive at level %d", want), func() bool {
			r := n.last(at(5, 1))
			return r.GetPhase() == greylagv1.TaskPhase_TASK_PHASE_STARTED && r.GetInactive() == want
		})
	}
	level(1)
	level(2)
	n.change(func() {
		w := n.wanted[at(5, 1)]
		w.Signals = append(w.Signals, &greylagv1.Signal{Id: 7, Number: int32(syscall.SIGUSR1), BatchOnly: true})
	})
	level(0)
	if got := n.read("out"); got != "works\n" {
		t.Errorf("the task wrote %q", got)
	}
	level(1)
}

// hungLister is a runtime without activity that hangs when it is asked for the processes of job 5.
type hungLister struct {
	tasks.Runtime
	end chan struct{}
}

// Stats implements tasks.Runtime.
func (*hungLister) Stats(context.Context, tasks.TaskID) (tasks.Stats, error) {
	return tasks.Stats{}, nil
}

// Processes implements tasks.ProcessLister.
func (h *hungLister) Processes(id tasks.TaskID) ([]int, error) {
	if id.Job == 5 {
		<-h.end
	}
	return nil, nil
}

// TestActivityOnAHungFileSystem has the check of one task hang: others are checked, it counts as active, and the daemon
// ends.
func TestActivityOnAHungFileSystem(t *testing.T) {
	t.Parallel()
	rt := &hungLister{end: make(chan struct{})}
	n := newNode(t, "process", func(n *node) {
		n.cfg.Meter = 20 * time.Millisecond
		open := n.open
		n.open = func() (tasks.Runtime, func() error, error) {
			inner, end, err := open()
			rt.Runtime = inner
			return rt, end, err
		}
	})
	t.Cleanup(func() { close(rt.end) })
	for _, job := range []int{5, 6} {
		n.want(at(job, 1), "#!/bin/sh\nexec sleep 600\n", func(w *greylagv1.WantedTask) {
			w.WorkDir, w.InactiveWarning, w.OutputWarn = n.home, durationpb.New(300*time.Millisecond), 1<<20
		})
	}
	n.until("the task on the other file system is inactive", func() bool { return n.last(at(6, 1)).GetInactive() == 1 })
	if r := n.last(at(5, 1)); r.GetPhase() != greylagv1.TaskPhase_TASK_PHASE_STARTED || r.GetInactive() != 0 {
		t.Errorf("the task whose check hangs: %v, want no warning", r)
	}
	n.stop()
	n.start()
}
