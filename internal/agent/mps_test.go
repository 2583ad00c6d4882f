package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/gpu"
)

// withMPS gives a node a stand-in for NVIDIA's control program, which records its calls in mps.log.
func withMPS(t *testing.T, n *node) {
	n.cfg.MPSDir, n.cfg.MPSControl = filepath.Join(n.dir, "mps"), filepath.Join(n.dir, "nvidia-cuda-mps-control")
	script := `#!/bin/sh
pid=$CUDA_MPS_PIPE_DIRECTORY/pid log=` + n.dir + `/mps.log
if [ "$1" = -d ]; then
	echo "start $CUDA_VISIBLE_DEVICES $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE $CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" >> $log
	sleep 1000 > /dev/null 2>&1 &
	echo $! > $pid
	exit
fi
read command
[ -e $pid ] || exit 1
case $command in
quit*) kill $(cat $pid); rm $pid; echo "$command" >> $log ;;
esac
`
	if err := os.WriteFile(n.cfg.MPSControl, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
}

// sharing makes a task share the GPU of an index with one other job.
func sharing(n *node, index int32, mps bool) func(*greylagv1.WantedTask) {
	return func(w *greylagv1.WantedTask) {
		onGPU(n, index)(w)
		w.GpuShare, w.Mps = 2, mps
	}
}

const waitsForGo = `#!/bin/sh
echo "$CUDA_MPS_PIPE_DIRECTORY $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE $CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" > env.$GREYLAG_JOB_ID
until [ -e go.$GREYLAG_JOB_ID ]; do sleep 0.02; done
`

// mpsLog returns the calls of the control program, one a line.
func (n *node) mpsLog() string {
	data, err := os.ReadFile(filepath.Join(n.dir, "mps.log"))
	if err != nil && !os.IsNotExist(err) {
		n.t.Error(err)
	}
	return string(data)
}

// TestMPSDaemonOfSharedGPU: one daemon serves the jobs that share a GPU. It is started before the first and ended
// after the last, also by another gnoded, and only then the GPU is checked.
func TestMPSDaemonOfSharedGPU(t *testing.T) {
	t.Parallel()
	var h *hardware
	n := newNode(t, "process", func(n *node) { h = withGPUs(n); withMPS(t, n) })
	n.want(at(1, 1), waitsForGo, sharing(n, 1, true))
	n.reach(at(1, 1), "started")
	n.want(at(2, 1), waitsForGo, sharing(n, 1, true))
	n.reach(at(2, 1), "started")
	env := filepath.Join(n.dir, "mps/gpu1/pipe") + " 50 0=40960M\n"
	waitFor(t, "the programs", func() bool { return n.read("env.1") == env && n.read("env.2") == env })
	h.mu.Lock()
	h.users = []gpu.Process{{UUID: "GPU-1", PID: 4711}} // the second job
	h.mu.Unlock()
	touch(t, n, "go.1")
	n.settled(at(1, 1))
	const started = "start GPU-1 50 0=40960M\n"
	if log := n.mpsLog(); log != started {
		t.Errorf("while a job has the GPU: %s", log)
	}
	n.stop()
	n.start()
	h.mu.Lock()
	h.users = nil
	h.mu.Unlock()
	touch(t, n, "go.2")
	n.settled(at(2, 1))
	if log := n.mpsLog(); log != started+"quit -t 5\n" || exists(n.cfg.MPSDir+"/gpu1") {
		t.Errorf("after both jobs: %s", log)
	}
	for _, g := range n.lastGPUs() {
		if g.GetFault() != "" {
			t.Errorf("GPU out of service: %v", g)
		}
	}
}

// TestMPSProgramIsMissing: the job ends with a fault of the node that names the program.
func TestMPSProgramIsMissing(t *testing.T) {
	t.Parallel()
	n := newNode(t, "process", func(n *node) { withGPUs(n); n.cfg.MPSDir, n.cfg.MPSControl = n.dir+"/mps", n.dir+"/missing" })
	n.want(at(1, 1), waitsForGo, sharing(n, 0, true))
	end := n.settled(at(1, 1))
	if end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_NODE || !strings.Contains(end.GetMessage(), "install missing on the node, or submit the job without :mps") {
		t.Errorf("ended with %v", end)
	}
}

// TestFaultOfSharedGPU: a fault of the GPU ends all jobs that share it, each as a fault of the GPU.
func TestFaultOfSharedGPU(t *testing.T) {
	t.Parallel()
	var h *hardware
	n := newNode(t, "process", func(n *node) { h = withGPUs(n) })
	for job := range 3 {
		n.want(at(job+1, 1), waitsForGo, sharing(n, int32(job/2), false))
		n.reach(at(job+1, 1), "started")
	}
	h.events <- gpu.Event{UUID: "GPU-0", XID: 79, Action: gpu.Reboot, Message: "fallen"}
	for job := range 2 {
		if end := n.settled(at(job+1, 1)); end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_GPU || end.GetMessage() != "GPU 0: fallen (XID 79)" {
			t.Errorf("job %d: %v", job+1, end)
		}
	}
	touch(t, n, "go.3")
	if end := n.settled(at(3, 1)); end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_EXITED || end.GetExitCode() != 0 {
		t.Errorf("the job on the other GPU: %v", end)
	}
}
