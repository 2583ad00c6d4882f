package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

// TestOutputLevel checks how the size of the output is reported.
func TestOutputLevel(t *testing.T) {
	for _, c := range []struct {
		size, warn int64
		want       uint32
	}{{0, 10, 0}, {9, 10, 0}, {10, 10, 1}, {19, 10, 1}, {20, 10, 2}, {45, 10, 3}, {1 << 62, 1, maxOutputDoublings}, {1 << 40, 0, 0}} {
		if got := outputLevel(c.size, c.warn); got != c.want {
			t.Errorf("%d bytes with a warning at %d are level %d, want %d", c.size, c.warn, got, c.want)
		}
	}
}

// TestOutputFlood has a task write without end: it is reported, then killed, and the last line of its output says so. A
// task that writes as much to a file of its own runs on.
func TestOutputFlood(t *testing.T) {
	n := newNode(t, "containerd", func(n *node) { n.cfg.Meter = 20 * time.Millisecond })
	const most = 4 << 20
	want := func(job int, script string) {
		n.want(at(job, 1), script, func(w *greylagv1.WantedTask) {
			w.WorkDir, w.Output, w.OutputWarn, w.MaxOutput = n.home, fmt.Sprintf("out%d", job), 1<<20, most
		})
	}
	want(5, "#!/bin/sh\nhead -c 8000000 /dev/zero >data; exec >>data; while :; do sleep 0.1; done\n")
	want(6, "#!/bin/sh\nhead -c 1500000 /dev/zero\nwhile [ ! -e go ]; do sleep 0.1; done\nyes\n")
	n.until("the output of the task is reported", func() bool {
		r := n.last(at(6, 1))
		return r.GetPhase() == greylagv1.TaskPhase_TASK_PHASE_STARTED && r.GetOutput() == 1
	})
	if err := os.WriteFile(filepath.Join(n.home, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	n.until("the task is killed", func() bool { return n.last(at(6, 1)).GetPhase() >= greylagv1.TaskPhase_TASK_PHASE_ENDED })
	r := n.last(at(6, 1))
	if r.Cause != greylagv1.TaskCause_TASK_CAUSE_OUTPUT || !strings.Contains(r.Message, "out6 has ") || !strings.Contains(r.Message, "more than max_output = 4M") {
		t.Errorf("the task ended with %s: %q", r.Cause, r.Message)
	}
	if got := n.read("out6"); !strings.HasSuffix(got, "KILLED: its output exceeds max_output = 4M ***\n") || len(got) <= most {
		t.Errorf("%d bytes of output end with %q", len(got), got[max(0, len(got)-100):])
	}
	if r := n.last(at(5, 1)); r.GetPhase() != greylagv1.TaskPhase_TASK_PHASE_STARTED || r.GetOutput() != 0 {
		t.Errorf("the task that writes a file of its own: %v", r)
	}
}
