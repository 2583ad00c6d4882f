package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/gpu"
)

// TestHealthProgramOfANode: it runs on the idle node and when the last task ends, and its failure drains the
// node with its last line, also after a restart of the daemon while a task runs.
func TestHealthProgramOfANode(t *testing.T) {
	t.Parallel()
	n := newNode(t, "process", func(n *node) {
		path := program(t, n, "#!/bin/sh\necho run >> "+n.dir+"/runs\n[ ! -e "+n.dir+"/bad ] || { echo one; echo disk is full; exit 1; }\n")
		n.cfg.Checks = Checks{Program: path, Period: time.Hour}
	})
	runs := func() int {
		data, _ := os.ReadFile(filepath.Join(n.dir, "runs")) // it need not exist
		return strings.Count(string(data), "run")
	}
	n.until("a report with conditions", func() bool {
		return len(n.reports) > 0 && n.reports[len(n.reports)-1].GetHealth() != nil && runs() == 1
	})
	if first := n.registry[0]; first.GetHealth() != nil {
		t.Errorf("registered with %v before a check", first.GetHealth())
	}
	touch(t, n, "../bad")
	n.want(at(1, 1), "#!/bin/sh\n", nil)
	n.settled(at(1, 1))
	n.until("a condition", func() bool { return strings.HasSuffix(n.condition(causeProgram), ": disk is full") && runs() == 2 })
	n.want(at(2, 1), "#!/bin/sh\nsleep 1000\n", nil)
	n.reach(at(2, 1), "started")
	n.stop()
	n.start()
	n.until("a report of the next daemon", func() bool {
		return strings.HasPrefix(n.condition(causeProgram), "drains 0: ") && n.registry[len(n.registry)-1].GetHealth() != nil
	})
	if runs() != 2 {
		t.Errorf("%d runs, while a task ran", runs())
	}
}

// TestLostGPUEndsItsTask: the task on it ends as a GPU fault, the node reports a draining condition, and the
// other GPU keeps its index.
func TestLostGPUEndsItsTask(t *testing.T) {
	t.Parallel()
	var h *hardware
	n := newNode(t, "process", func(n *node) { h = withGPUs(n) })
	n.want(at(1, 1), "#!/bin/sh\nsleep 1000\n", onGPU(n, 0))
	n.want(at(2, 1), "#!/bin/sh\nsleep 1000\n", onGPU(n, 1))
	n.reach(at(1, 1), "started")
	n.reach(at(2, 1), "started")
	h.mu.Lock()
	h.lost = 1 // GPU 0; the driver lists the other as the first
	h.mu.Unlock()
	if end := n.settled(at(1, 1)); end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_GPU || !strings.HasPrefix(end.GetMessage(), "GPU 0: the driver has lost it") {
		t.Errorf("on the lost GPU: %v", end)
	}
	n.until("a condition", func() bool { return strings.HasPrefix(n.condition("gpu_lost"), "drains 0: GPU 0: ") })
	n.mu.Lock()
	defer n.mu.Unlock()
	gpus := n.lastGPUs()
	if len(gpus) != 2 || gpus[0].GetUuid() != "GPU-0" || gpus[0].GetFault() == "" || gpus[1].GetUuid() != "GPU-1" || gpus[1].GetFault() != "" {
		t.Errorf("GPUs: %v", gpus)
	}
	for _, r := range n.reports[len(n.reports)-1].GetTasks() {
		if r.GetJob() == 2 && r.GetPhase() != greylagv1.TaskPhase_TASK_PHASE_STARTED {
			t.Errorf("the other task: %v", r)
		}
	}
}

// TestContainedMemoryError: its job counts as failed by the GPU when it fails, the neighbour runs on, and the
// GPU is not given out.
func TestContainedMemoryError(t *testing.T) {
	t.Parallel()
	var h *hardware
	n := newNode(t, "process", func(n *node) { h = withGPUs(n) })
	n.want(at(1, 1), "#!/bin/sh\nuntil [ -e go ]; do sleep 0.02; done\nexit 1\n", onGPU(n, 0))
	n.want(at(2, 1), "#!/bin/sh\nuntil [ -e go ]; do sleep 0.02; done\nexit 0\n", onGPU(n, 1))
	n.reach(at(1, 1), "started")
	n.reach(at(2, 1), "started")
	h.events <- gpu.Event{UUID: "GPU-0", XID: 94, Action: gpu.Contained, Message: "memory error"}
	n.until("a GPU out of service", func() bool {
		gpus := n.lastGPUs()
		return len(gpus) == 2 && gpus[0].GetFault() == "memory error (XID 94)" && gpus[0].GetRepair() == greylagv1.Repair_REPAIR_RESET && gpus[1].GetFault() == ""
	})
	touch(t, n, "go")
	if end := n.settled(at(1, 1)); end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_GPU {
		t.Errorf("its job: %v", end)
	}
	if end := n.settled(at(2, 1)); end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_EXITED || end.GetExitCode() != 0 {
		t.Errorf("the neighbour: %v", end)
	}
}

// TestDriverStopsAnswering: the node reports a draining condition after a second probe, its task runs on, and
// the condition ends when the driver answers.
func TestDriverStopsAnswering(t *testing.T) {
	t.Parallel()
	var h *hardware
	n := newNode(t, "process", func(n *node) { h = withGPUs(n) })
	n.want(at(1, 1), "#!/bin/sh\nsleep 1000\n", onGPU(n, 0))
	n.reach(at(1, 1), "started")
	set := func(err error) (asked int) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.broken = err
		return h.asked
	}
	before := set(gpu.ErrUnanswered)
	n.until("a condition", func() bool {
		return strings.HasPrefix(n.condition(causeDriver), "drains 0: the NVIDIA driver does not answer")
	})
	if after := set(nil); after < before+2 {
		t.Errorf("%d probes", after-before)
	}
	n.until("its end", func() bool { return n.condition(causeDriver) == "" && n.fault() == "" })
	n.mu.Lock()
	defer n.mu.Unlock()
	if r := n.reports[len(n.reports)-1].GetTasks(); len(r) != 1 || r[0].GetPhase() != greylagv1.TaskPhase_TASK_PHASE_STARTED {
		t.Errorf("tasks: %v", r)
	}
}
