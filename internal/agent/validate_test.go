package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/gpu"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestValidationAfterABoot: a node reports no conditions until the program has a result, and takes no jobs until it has
// succeeded. If it fails, a condition has its last line, also after a restart of gnoded.
func TestValidationAfterABoot(t *testing.T) {
	t.Parallel()
	n := newNode(t, "process", func(n *node) {
		path := program(t, n, "#!/bin/sh\nuntil [ -e "+n.dir+"/go ]; do sleep 0.02; done\n[ -e "+n.dir+"/good ] || { echo nccl-tests: 12 GB/s; exit 1; }\n")
		n.cfg.Checks = Checks{Validate: path, Period: 100 * time.Millisecond}
	})
	n.until("registered", func() bool { return len(n.registry) > 0 })
	if first := n.registry[0]; first.GetHealth() != nil || !strings.HasPrefix(first.GetFault(), "validation after a boot: ") {
		t.Errorf("registered with %v, %q before the validation", first.GetHealth(), first.GetFault())
	}
	write := func(name string) {
		if err := os.WriteFile(filepath.Join(n.dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go")
	failed := func() bool {
		c := n.condition(causeValidation)
		return strings.HasPrefix(c, "drains 0: validation failed: ") && strings.HasSuffix(c, ": nccl-tests: 12 GB/s") && n.fault() == strings.TrimPrefix(c, "drains 0: ")
	}
	n.until("a condition", failed)
	n.stop()
	n.change(func() { n.reports = nil })
	n.start()
	n.until("a condition after a restart", func() bool { return len(n.reports) > 0 && failed() })
	write("good")
	n.until("in service", func() bool { return n.condition(causeValidation) == "" && n.fault() == "" })
}

// TestValidationConfiguredLater: a boot that gnoded has served without the program counts as validated, also when
// health.json is lost. One that requires the program still does then.
func TestValidationConfiguredLater(t *testing.T) {
	t.Parallel()
	for _, atBoot := range []bool{false, true} {
		n := newNode(t, "process", func(n *node) {
			n.cfg.Checks.Period = time.Hour
			if atBoot {
				n.cfg.Checks.Validate = program(t, n, "#!/bin/sh\nexit 1\n")
			}
		})
		n.until("registered", func() bool { return len(n.registry) > 0 })
		for range 2 {
			n.stop()
			if err := os.Remove(filepath.Join(n.cfg.StateDir, healthFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			n.cfg.Checks.Validate = program(t, n, "#!/bin/sh\nexit 1\n")
			n.change(func() { n.registry = nil })
			n.start()
			n.until("registered again", func() bool { return len(n.registry) > 0 })
			if fault := n.registry[0].GetFault(); strings.HasPrefix(fault, "validation ") != atBoot {
				t.Errorf("configured at the boot: %v, registered with %q", atBoot, fault)
			}
		}
	}
}

// TestValidationAfterARepair: the driver asks for a reboot, and later for nothing any more. The node stays drained
// until the program has succeeded, and reports other conditions meanwhile, also after a restart of gnoded.
func TestValidationAfterARepair(t *testing.T) {
	t.Parallel()
	var h *hardware
	n := newNode(t, "process", func(n *node) {
		h = withGPUs(n)
		path := program(t, n, "#!/bin/sh\nuntil [ -e "+n.dir+"/go ]; do sleep 0.02; done\n")
		n.cfg.Checks = Checks{Validate: path, Period: time.Hour}
		if err := os.WriteFile(filepath.Join(n.dir, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	n.until("in service", func() bool {
		return len(n.reports) > 0 && n.fault() == "" && n.reports[len(n.reports)-1].GetHealth() != nil
	})
	h.events <- gpu.Event{UUID: "GPU-0", Action: gpu.Verdict, Judged: true, Recovery: gpu.RecoverReboot, Message: "reboot"}
	drained := func() bool { return n.drained() }
	n.until("reboot required", drained)
	if err := os.Remove(filepath.Join(n.dir, "go")); err != nil {
		t.Fatal(err)
	}
	h.events <- gpu.Event{UUID: "GPU-0", Action: gpu.Verdict, Judged: true, Message: "healed"}
	n.until("validation", func() bool {
		return drained() && strings.HasPrefix(n.fault(), "validation after a repair (")
	})
	n.agent.post(func() { n.agent.setCondition(causeProgram, cluster.Condition{Effect: cluster.Drains, Message: "bad"}) })
	both := func() bool {
		return len(n.reports) > 0 && drained() && n.condition(causeProgram) != "" && n.fault() != ""
	}
	n.until("another condition", both)
	n.stop()
	n.change(func() { n.reports = nil })
	n.start()
	n.until("both after a restart", both)
	n.agent.post(func() { n.agent.setCondition(causeProgram, cluster.Condition{}) })
	if err := os.WriteFile(filepath.Join(n.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.until("in service", func() bool {
		return n.reports[len(n.reports)-1].GetHealth() != nil && n.fault() == "" && !n.drained()
	})
}

// drained reports whether the node reports a draining condition with a repair.
func (n *node) drained() bool {
	for _, c := range n.reports[len(n.reports)-1].GetHealth().GetConditions() {
		if c.GetEffect() == greylagv1.ConditionEffect_CONDITION_EFFECT_DRAINS && c.GetRepair() != 0 {
			return true
		}
	}
	return false
}

// TestNoControllerAnswers: after self_fence_after the node kills its tasks, and reports the reason when a controller
// answers again. A shorter time has no consequences.
func TestNoControllerAnswers(t *testing.T) {
	t.Parallel()
	n := newNode(t, "process", func(n *node) { n.cfg.SelfFenceAfter = 5 * time.Second })
	n.want(at(1, 1), "#!/bin/sh\nsleep 1000\n", nil)
	n.reach(at(1, 1), "started")
	n.change(func() { n.down = true })
	waitFor(t, "the end of the task", func() bool { return !n.alive(t, at(1, 1)) })
	n.change(func() { n.down = false })
	if end := n.settled(at(1, 1)); end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_NODE || end.GetMessage() != "the node reached no controller for 5s (self_fence_after)" {
		t.Errorf("report: %v", end)
	}
}

// TestValidationOfAGPU: a GPU that was reset stays out of service until the program has succeeded for it, while a job
// runs on the other one; also over a restart of gnoded between.
func TestValidationOfAGPU(t *testing.T) {
	t.Parallel()
	var h *hardware
	n := newNode(t, "process", func(n *node) {
		h = withGPUs(n)
		path := program(t, n, "#!/bin/sh\n[ -z \"$GREYLAG_GPU\" ] && exit 0\necho $GREYLAG_GPU $GREYLAG_GPU_UUID $CUDA_VISIBLE_DEVICES > "+n.dir+"/tested\n[ -e "+n.dir+"/good ] || { echo memtest: 3 errors; exit 1; }\n")
		n.cfg.Checks = Checks{Validate: path, Period: 100 * time.Millisecond}
	})
	n.until("in service", func() bool {
		return len(n.reports) > 0 && n.fault() == "" && n.reports[len(n.reports)-1].GetHealth() != nil
	})
	n.want(at(1, 1), "#!/bin/sh\nexec sleep 1000\n", onGPU(n, 0))
	n.reach(at(1, 1), "started")
	fault := func() string {
		if gpus := n.lastGPUs(); len(gpus) == 2 && gpus[0].GetFault() == "" {
			return gpus[1].GetFault()
		}
		return "no report"
	}
	h.events <- gpu.Event{UUID: "GPU-1", XID: 95, Action: gpu.Reset, Message: "uncontained"}
	n.until("out of service", func() bool { return fault() == "uncontained (XID 95)" })
	h.events <- gpu.Event{UUID: "GPU-1", Action: gpu.Verdict, Judged: true, Recovery: gpu.RecoverReset, Message: "reset"}
	h.events <- gpu.Event{UUID: "GPU-1", Action: gpu.Verdict, Judged: true, Message: "healed"}
	failed := func() bool {
		return strings.HasPrefix(fault(), "validation failed: ") && strings.HasSuffix(fault(), ": memtest: 3 errors") && n.fault() == ""
	}
	n.until("a failed validation", failed)
	if got, err := os.ReadFile(filepath.Join(n.dir, "tested")); err != nil || string(got) != "1 GPU-1 GPU-1\n" {
		t.Errorf("tested %q, %v", got, err)
	}
	n.stop()
	n.change(func() { n.reports = nil })
	n.start()
	n.until("the same after a restart", func() bool { return len(n.reports) > 0 && failed() })
	touchFile(t, filepath.Join(n.dir, "good"))
	n.until("in service again", func() bool { return fault() == "" })
}

func touchFile(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}
