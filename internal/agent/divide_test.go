package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/gpu"
	"github.com/greylag/greylag/internal/runtime/containerd"
	"github.com/greylag/greylag/pkg/cluster"
)

// withInstances gives a node one simulated GPU with two instances, as the faults of the GPU allow.
func withInstances(n *node, faults string) {
	dir := filepath.Join(n.dir, "gpus")
	s := gpu.NewSimulated("n1", dir, []gpu.Group{{Count: 1, Type: "h100", Memory: 80 * cluster.GiB}})
	s.SetLayouts(gpu.Layouts{gpu.AllGPUs: {"3g.40gb", "3g.40gb"}})
	n.gpus, n.cfg.Health = s, 50*time.Millisecond
	simulateFaults(n, faults)
}

// simulateFaults replaces the faults of the simulated GPUs.
func simulateFaults(n *node, faults string) {
	path := filepath.Join(n.dir, "gpus", gpu.FaultsFile)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(faults), 0o644)
	}
	if err != nil {
		panic(err)
	}
}

// typesOf returns the GPU types with their faults.
func typesOf(gpus []*greylagv1.GPU) string {
	var text []string
	for _, g := range gpus {
		text = append(text, strings.TrimSpace(fmt.Sprintf("%s/%d %s", g.GetType(), g.GetShare(), g.GetFault())))
	}
	return strings.Join(text, ", ")
}

// TestNodeRegistersWithItsInstances: a node that booted divides its GPU before it registers.
func TestNodeRegistersWithItsInstances(t *testing.T) {
	t.Parallel()
	n := newNode(t, "process", func(n *node) {
		withInstances(n, "0 undivided\n")
		if _, err := n.gpus.Inventory(context.Background()); err != nil { // as the driver has it after a boot
			t.Fatal(err)
		}
		simulateFaults(n, "")
	})
	n.until("a registration", func() bool { return len(n.registry) > 0 })
	n.mu.Lock()
	defer n.mu.Unlock()
	if first := n.registry[0]; typesOf(first.GetGpus()) != "3g.40gb/28, 3g.40gb/28" || first.GetFault() != "" {
		t.Errorf("registered as %s, fault %q", typesOf(first.GetGpus()), first.GetFault())
	}
}

// TestUndividedGPUKeepsNodeOutOfService: the node registers with the reason, takes work again once the GPU
// can be divided, and forgets the whole GPU.
func TestUndividedGPUKeepsNodeOutOfService(t *testing.T) {
	t.Parallel()
	n := newNode(t, "process", func(n *node) { withInstances(n, "0 undivided\n") })
	const reason = "MIG: GPU 0 is not divided: it is in use by process 1 (simulated)"
	n.until("the reason", func() bool {
		return len(n.registry) > 0 && len(n.reports) > 0 && n.reports[len(n.reports)-1].GetFault() == reason && typesOf(n.registry[0].GetGpus()) == "h100/0"
	})
	simulateFaults(n, "")
	n.until("instances", func() bool {
		last := n.registry[len(n.registry)-1]
		return typesOf(last.GetGpus()) == "3g.40gb/28, 3g.40gb/28" && n.fault() == ""
	})
}

// TestJobsOnTwoInstances: each task opens only its own instance, by UUID, and a contained memory error of one
// leaves the other.
func TestJobsOnTwoInstances(t *testing.T) {
	t.Parallel()
	n := newNode(t, "containerd", func(n *node) {
		withInstances(n, "")
		n.cfg.Device = func(index int32) string { return containerd.DeviceKind + "=" + strconv.Itoa(int(index)) }
		n.cfg.Describe = func(inventory gpu.Inventory) error { return describe(n, inventory) }
	})
	const script = `#!/bin/sh
for f in /dev/nvidia[0-9]* /dev/nvidia-caps/*; do (exec 3<$f) 2>/dev/null && echo "$f"; done > seen.$GREYLAG_JOB_ID
echo "$CUDA_VISIBLE_DEVICES" >> seen.$GREYLAG_JOB_ID
touch up.$GREYLAG_JOB_ID
until [ -e go ]; do sleep 0.02; done
[ $GREYLAG_JOB_ID = 2 ]
`
	for job := range 2 {
		n.want(at(job+1, 1), script, onGPU(n, int32(job)))
		n.reach(at(job+1, 1), "started")
	}
	waitFor(t, "the programs", func() bool { return exists(n.home+"/up.1") && exists(n.home+"/up.2") })
	uuids := n.registry[0].GetGpus()
	for job, caps := range []string{"1 2", "3 4"} {
		want := "/dev/nvidia0\n"
		for cap := range strings.FieldsSeq(caps) {
			want += "/dev/nvidia-caps/nvidia-cap" + cap + "\n"
		}
		if got := n.read("seen." + strconv.Itoa(job+1)); got != want+uuids[job].GetUuid()+"\n" {
			t.Errorf("job %d: %s", job+1, got)
		}
	}
	simulateFaults(n, "0 xid94\n")
	n.until("a fault of the first", func() bool {
		gpus := n.lastGPUs()
		return len(gpus) == 2 && gpus[0].GetFault() != "" && gpus[1].GetFault() == ""
	})
	touch(t, n, "go")
	if end := n.settled(at(1, 1)); end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_GPU {
		t.Errorf("on the instance with the error: %v", end)
	}
	if end := n.settled(at(2, 1)); end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_EXITED || end.GetExitCode() != 0 {
		t.Errorf("on the other: %v", end)
	}
}
