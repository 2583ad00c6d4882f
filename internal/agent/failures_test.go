package agent

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/gpu"
	"github.com/greylag/greylag/internal/runtime/containerd/private"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// fault returns the newest reported fault.
func (n *node) fault() string {
	if len(n.reports) == 0 {
		return n.registry[len(n.registry)-1].GetFault()
	}
	return n.reports[len(n.reports)-1].GetFault()
}

// condition returns the last reported condition of a cause as "EFFECT JOB: MESSAGE"; "" for none.
// The caller holds the lock.
func (n *node) condition(cause string) string {
	if len(n.reports) == 0 {
		return ""
	}
	for _, c := range n.reports[len(n.reports)-1].GetHealth().GetConditions() {
		if c.GetCause() == cause {
			return fmt.Sprintf("%s %d: %s", wire.Word(c.GetEffect()), c.GetJob(), c.GetMessage())
		}
	}
	return ""
}

func TestWhatTheUserGotWrong(t *testing.T) {
	onEach(t, nil, func(t *testing.T, n *node) {
		n.want(at(1, 1), "#!/bin/sh\n", func(w *greylagv1.WantedTask) { w.WorkDir = filepath.Join(n.home, "missing") })
		n.want(at(2, 1), "#!/nowhere/sh\n", nil)
		n.want(at(3, 1), "#!/bin/sh\n", func(w *greylagv1.WantedTask) { w.WorkDir, w.Output = n.home, "no/such/folder/out" })
		n.want(at(4, 1), "#!/bin/sh\n", func(w *greylagv1.WantedTask) { w.Image = "oci-archive:/nowhere.tar" })
		for job, words := range map[int]string{1: "working directory", 2: "#! line", 3: "output file", 4: ""} {
			end := n.settled(at(job, 1))
			want := "launch"
			if job == 4 && n.cfg.Isolated {
				want = "image"
			}
			if wire.Word(end.GetCause()) != want || end.GetMessage() == "" || !strings.Contains(end.GetMessage(), words) || end.GetStarted() != nil {
				t.Errorf("job %d: %v", job, end)
			}
		}
	})
}

// TestControllersAway checks that running tasks continue, that their ends are reported later, and
// that a task waits for its script.
func TestControllersAway(t *testing.T) {
	t.Parallel()
	n := newNode(t, "process", nil)
	n.want(at(1, 1), "#!/bin/sh\nuntil [ -e go ]; do sleep 0.02; done\nexit 5\n", func(w *greylagv1.WantedTask) { w.WorkDir = n.home })
	n.reach(at(1, 1), "started")
	n.change(func() { n.down = true; n.reports = nil })
	touch(t, n, "go")
	waitFor(t, "the task to end", func() bool { return !n.alive(t, at(1, 1)) })
	var script []byte
	n.want(at(2, 1), "#!/bin/sh\nexit 6\n", func(w *greylagv1.WantedTask) { script = w.Script; delete(n.blobs, [32]byte(script)) })
	n.change(func() { n.down = false })
	end := n.settled(at(1, 1))
	if ran := end.GetEnded().AsTime().Sub(end.GetStarted().AsTime()); end.GetExitCode() != 5 || end.GetRanMs()+1 < ran.Milliseconds() {
		t.Errorf("ended without a listener: %v", end)
	}
	n.until("accepted", func() bool {
		task := n.last(at(2, 1))
		return task != nil && task.GetPhase() == greylagv1.TaskPhase_TASK_PHASE_WANTED
	})
	n.change(func() { n.put([]byte("#!/bin/sh\nexit 6\n")) })
	if end := n.settled(at(2, 1)); end.GetExitCode() != 6 {
		t.Errorf("fetched late: %v", end)
	}
}

// TestSupersededTaskIsAskedToEnd returns a node after its job moved to another node: the trap of
// the script runs before the task ends.
func TestSupersededTaskIsAskedToEnd(t *testing.T) {
	t.Parallel()
	n := newNode(t, "process", nil)
	n.want(at(1, 1), "#!/bin/sh\ntrap 'echo superseded > bye; exit 3' TERM\ntouch up\nwhile :; do sleep 0.05; done\n",
		func(w *greylagv1.WantedTask) { w.WorkDir = n.home })
	n.reach(at(1, 1), "started")
	waitFor(t, "the trap to be set", func() bool { return !strings.Contains(n.read("up"), "no such") })
	n.change(func() { n.down = true })
	n.change(func() { delete(n.wanted, at(1, 1)); n.down = false })
	waitFor(t, "the task to end", func() bool { return !n.alive(t, at(1, 1)) })
	if got := n.read("bye"); got != "superseded\n" {
		t.Errorf("the trap wrote %q", got)
	}
}

// TestIdleTaskKeepsTheNode checks a task without processes, which ends by a stop.
func TestIdleTaskKeepsTheNode(t *testing.T) {
	t.Parallel()
	n := newNode(t, "process", nil)
	n.want(at(1, 1), "#!/bin/sh\ntouch ran\n", func(w *greylagv1.WantedTask) {
		w.WorkDir, w.Idle, w.Rank = n.home, true, 1
		w.Nodes = append([]*greylagv1.NodeAllocation{{Node: "n0", Cpus: 1}}, w.Nodes...)
	})
	n.reach(at(1, 1), "started")
	n.stop()
	n.start()
	n.until("adopted", func() bool {
		task := n.last(at(1, 1))
		return task != nil && task.GetPhase() == greylagv1.TaskPhase_TASK_PHASE_STARTED
	})
	n.change(func() { n.wanted[at(1, 1)].Stop = true })
	if end := n.settled(at(1, 1)); end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_STOPPED {
		t.Errorf("report: %v", end)
	}
	if _, err := os.Stat(filepath.Join(n.home, "ran")); err == nil {
		t.Error("its script ran")
	}
}

func TestAnotherClusterMeansOtherJobs(t *testing.T) {
	t.Parallel()
	n := newNode(t, "process", nil)
	n.want(at(1, 1), "#!/bin/sh\necho one >> ran\nsleep 1000\n", func(w *greylagv1.WantedTask) { w.WorkDir = n.home })
	n.reach(at(1, 1), "started")
	waitFor(t, "it to run", func() bool { return n.read("ran") == "one\n" })
	n.stop()
	n.change(func() { n.name, n.version, n.reports = "c2", 3, nil; clear(n.wanted) })
	n.want(at(1, 1), "#!/bin/sh\necho two >> ran\n", func(w *greylagv1.WantedTask) { w.WorkDir = n.home })
	n.start()
	end := n.settled(at(1, 1))
	if end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_EXITED || n.read("ran") != "one\ntwo\n" {
		t.Errorf("report %v, ran %q", end, n.read("ran"))
	}
}

func program(t *testing.T, n *node, text string) string {
	t.Helper()
	path := filepath.Join(n.dir, "hook-"+strconv.Itoa(len(text)))
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestHooks(t *testing.T) {
	t.Parallel()
	n := newNode(t, "process", func(n *node) {
		n.cfg.Prolog = program(t, n, "#!/bin/sh\necho \"prolog $GREYLAG_JOB_ID [$MINE] [$LD_PRELOAD]\" >> "+n.dir+"/said\n")
		n.cfg.Epilog = program(t, n, "#!/bin/sh\necho \"epilog $SLURM_JOB_ID\" >> "+n.dir+"/said\n[ $GREYLAG_JOB_ID != 2 ] || { echo disk is full; exit 3; }\n")
	})
	said := func() string {
		data, err := os.ReadFile(filepath.Join(n.dir, "said"))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	n.want(at(1, 1), "#!/bin/sh\n", func(w *greylagv1.WantedTask) { w.Environment = n.put([]byte("MINE=x\x00LD_PRELOAD=/evil.so")) })
	n.settled(at(1, 1))
	if said() != "prolog 1 [] []\nepilog 1\n" || n.fault() != "" {
		t.Errorf("said %q, fault %q", said(), n.fault())
	}
	n.want(at(2, 1), "#!/bin/sh\n", nil)
	if end := n.settled(at(2, 1)); end.GetExitCode() != 0 || end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_EXITED {
		t.Errorf("the job suffers for its epilog: %v", end)
	}
	n.until("a condition", func() bool {
		c := n.condition(causeEpilog)
		return strings.HasPrefix(c, "drains 2: ") && strings.Contains(c, "disk is full") && strings.Contains(c, "job 2")
	})
}

// TestPrologFails: the job does not run, and the condition ends when the prolog works for a later job.
func TestPrologFails(t *testing.T) {
	t.Parallel()
	n := newNode(t, "process", func(n *node) { n.cfg.Prolog = program(t, n, "#!/bin/sh\ntest -e "+n.dir+"/fixed\n") })
	n.want(at(1, 1), "#!/bin/sh\ntouch ran\n", func(w *greylagv1.WantedTask) { w.WorkDir = n.home })
	if end := n.settled(at(1, 1)); end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_NODE || end.GetMessage() == "" {
		t.Errorf("report: %v", end)
	}
	n.until("a condition", func() bool {
		return strings.HasPrefix(n.condition(causeProlog), "drains 1: ") && strings.HasSuffix(n.condition(causeProlog), "when it is fixed: gctl resume n1")
	})
	if _, err := os.Stat(filepath.Join(n.home, "ran")); err == nil {
		t.Error("it ran")
	}
	if err := os.WriteFile(filepath.Join(n.dir, "fixed"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.want(at(2, 1), "#!/bin/sh\n", nil)
	if end := n.settled(at(2, 1)); end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_EXITED {
		t.Errorf("report: %v", end)
	}
	n.until("no condition", func() bool { return n.condition(causeProlog) == "" })
}

// TestStopWhileStarting checks that a long start is abandoned.
func TestStopWhileStarting(t *testing.T) {
	t.Parallel()
	n := newNode(t, "process", func(n *node) { n.cfg.Prolog = program(t, n, "#!/bin/sh\n: > "+n.dir+"/begun\nsleep 600\n") })
	n.want(at(1, 1), "#!/bin/sh\ntouch ran\n", func(w *greylagv1.WantedTask) { w.WorkDir = n.home })
	waitFor(t, "the prolog", func() bool { _, err := os.Stat(filepath.Join(n.dir, "begun")); return err == nil })
	n.change(func() { n.wanted[at(1, 1)].Stop = true })
	if end := n.settled(at(1, 1)); end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_STOPPED || end.GetStarted() != nil {
		t.Errorf("report: %v", end)
	}
	if n.mu.Lock(); n.fault() != "" {
		t.Errorf("giving up is a fault: %s", n.fault())
	}
	n.mu.Unlock()
	if _, err := os.Stat(filepath.Join(n.home, "ran")); err == nil {
		t.Error("it ran")
	}
}

// TestPrologHangs checks that a task whose prolog hangs ends as a node fault, that the prolog is
// killed, and that the node stays fit.
func TestPrologHangs(t *testing.T) {
	t.Parallel()
	n := newNode(t, "process", func(n *node) {
		n.cfg.Prolog = program(t, n, "#!/bin/sh\nsleep 600 &\necho $! > "+n.dir+"/sleeps\nwait\n")
		n.cfg.LaunchTimeout = 2 * time.Second
	})
	n.want(at(1, 1), "#!/bin/sh\ntouch ran\n", func(w *greylagv1.WantedTask) { w.WorkDir = n.home })
	end := n.settled(at(1, 1))
	if end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_NODE || end.GetMessage() != "not started within 2s (launch_timeout): the prolog is still running" || end.GetStarted() != nil {
		t.Errorf("report: %v", end)
	}
	if _, err := os.Stat(filepath.Join(n.home, "ran")); err == nil {
		t.Error("it ran")
	}
	data, err := os.ReadFile(filepath.Join(n.dir, "sleeps"))
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the prolog's end", func() bool {
		stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(data)) + "/stat")
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fault() != "" {
		t.Errorf("a fault: %s", n.fault())
	}
}

// TestRegistryHangs checks that a pull from a registry that accepts the call and never answers is
// given up in time. The job may run elsewhere, and the node stays fit.
func TestRegistryHangs(t *testing.T) {
	t.Parallel()
	begun, given := make(chan struct{}, 16), make(chan struct{}, 16)
	registry := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		begun <- struct{}{}
		<-q.Context().Done()
		given <- struct{}{}
	}))
	defer registry.Close()
	n := newNode(t, "containerd", func(n *node) { n.cfg.LaunchTimeout = 2 * time.Second })
	ref := "docker://" + registry.Listener.Addr().String() + "/team/big:latest"
	n.want(at(1, 1), "#!/bin/sh\n", func(w *greylagv1.WantedTask) { w.Image = ref })
	end := n.settled(at(1, 1))
	if end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_NODE || end.GetMessage() != "not started within 2s (launch_timeout): image "+ref+" has not been pulled yet" || end.GetStarted() != nil {
		t.Errorf("report: %v", end)
	}
	<-begun
	<-given
	n.want(at(2, 1), "#!/bin/sh\nexit 3\n", nil)
	if end := n.settled(at(2, 1)); end.GetExitCode() != 3 {
		t.Errorf("the next: %v", end)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fault() != "" {
		t.Errorf("a fault: %s", n.fault())
	}
}

// TestFailingRegistry checks that a failing registry is retried until it reports a fault of the
// image, which ends the job at once.
func TestFailingRegistry(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	failures := []func(http.ResponseWriter){
		func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) },
		func(w http.ResponseWriter) { w.WriteHeader(http.StatusTooManyRequests) },
		func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, // closes the connection
	}
	const each = 3 // containerd's client retries up to five times
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n := int(asked.Add(1)-1) / each; n < len(failures) {
			failures[n](w)
			return
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	defer registry.Close()
	n := newNode(t, "containerd", nil)
	n.want(at(1, 1), "#!/bin/sh\n", func(w *greylagv1.WantedTask) {
		w.Image = "docker://" + registry.Listener.Addr().String() + "/team/big:latest"
	})
	if end := n.settled(at(1, 1)); end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_IMAGE || !strings.Contains(end.GetMessage(), "not found") || asked.Load() != int64(each*len(failures)+1) {
		t.Errorf("asked %d times, report: %v", asked.Load(), end)
	}
}

// TestRegistryAway checks that a registry that is unreachable until the timeout is the reason of
// the failure, and that the job may run elsewhere.
func TestRegistryAway(t *testing.T) {
	t.Parallel()
	registry := httptest.NewServer(nil)
	registry.Close()
	n := newNode(t, "containerd", func(n *node) { n.cfg.LaunchTimeout = 2 * time.Second })
	ref := "docker://" + registry.Listener.Addr().String() + "/team/big:latest"
	n.want(at(1, 1), "#!/bin/sh\n", func(w *greylagv1.WantedTask) { w.Image = ref })
	end := n.settled(at(1, 1))
	if begin := "not started within 2s (launch_timeout): image " + ref + ": the registry cannot serve it at present: "; end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_NODE ||
		!strings.HasPrefix(end.GetMessage(), begin) || !strings.HasSuffix(end.GetMessage(), "connection refused") {
		t.Errorf("report: %v", end)
	}
}

// hardware simulates the GPUs of a host.
type hardware struct {
	gpu.None
	mu     sync.Mutex
	events chan gpu.Event
	users  []gpu.Process
	memory map[string]int64
	broken error
	lost   int // number of GPUs that are not listed
	asked  int // inventories
}

func (h *hardware) Inventory(context.Context) (gpu.Inventory, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var inventory gpu.Inventory
	h.asked++
	for i := h.lost; i < 2; i++ {
		inventory.Devices = append(inventory.Devices, gpu.Device{GPU: cluster.GPU{
			Index: int32(i - h.lost), UUID: "GPU-" + strconv.Itoa(i), Type: "h100", Memory: 80 * cluster.GiB, NUMA: -1,
		}})
	}
	return inventory, h.broken
}

func (h *hardware) Watch(ctx context.Context, report func(gpu.Event)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e := <-h.events:
			report(e)
		}
	}
}

func (h *hardware) InUse(context.Context, []string) (gpu.InUse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return gpu.InUse{Processes: h.users, Memory: h.memory}, nil
}

func withGPUs(n *node) *hardware {
	h := &hardware{events: make(chan gpu.Event)}
	n.gpus = h
	return h
}

func onGPU(n *node, index int32) func(*greylagv1.WantedTask) {
	return func(w *greylagv1.WantedTask) { w.WorkDir, w.Nodes[0].Gpus = n.home, []int32{index} }
}

func TestGPUEvents(t *testing.T) {
	t.Parallel()
	var h *hardware
	n := newNode(t, "process", func(n *node) { h = withGPUs(n) })
	n.want(at(1, 1), "#!/bin/sh\necho up > up\nsleep 1000\n", onGPU(n, 0))
	n.want(at(2, 1), "#!/bin/sh\nuntil [ -e go ]; do sleep 0.02; done\nexit 1\n", onGPU(n, 1))
	n.reach(at(1, 1), "started")
	n.reach(at(2, 1), "started")
	waitFor(t, "the program to begin", func() bool { return n.read("up") == "up\n" })
	h.events <- gpu.Event{UUID: "GPU-1", XID: 31, Action: gpu.Suspect, Message: "illegal access"}
	h.events <- gpu.Event{UUID: "GPU-0", XID: 79, Action: gpu.Reboot, Message: "fallen"}
	if end := n.settled(at(1, 1)); end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_GPU || end.GetMessage() != "GPU 0: fallen (XID 79)" || end.GetExitSignal() != 9 {
		t.Errorf("on the broken GPU: %v", end)
	}
	touch(t, n, "go")
	if end := n.settled(at(2, 1)); end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_EXITED || end.GetExitCode() != 1 {
		t.Errorf("the program's own fault: %v", end)
	}
	n.until("a bad GPU", func() bool {
		for _, r := range n.reports {
			if len(r.GetGpus()) == 2 && r.GetGpus()[0].GetFault() == "fallen (XID 79)" && r.GetGpus()[1].GetFault() == "" {
				return true
			}
		}
		return false
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	if gpus := n.reports[len(n.reports)-1].GetGpus(); len(gpus) != 0 && n.fault() == "" {
		t.Logf("devices repeated: %v", gpus) // allowed, but wasteful
	}
}

// TestGPUStillUsedAfterItsJob: a GPU that a process uses after its job takes no jobs, also after a restart of
// gnoded, and names the process.
func TestGPUStillUsedAfterItsJob(t *testing.T) {
	t.Parallel()
	var h *hardware
	n := newNode(t, "process", func(n *node) { h = withGPUs(n) })
	set := func(users ...gpu.Process) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.users = users
	}
	set(gpu.Process{UUID: "GPU-1", PID: 4711})
	n.want(at(1, 1), "#!/bin/sh\n", onGPU(n, 1))
	n.settled(at(1, 1))
	n.until("a GPU out of service", func() bool {
		gpus := n.lastGPUs()
		return len(gpus) == 2 && strings.Contains(gpus[1].GetFault(), "4711") && gpus[0].GetFault() == "" && n.fault() == ""
	})
	n.stop()
	n.start()
	n.until("still out of service", func() bool {
		gpus := n.registry[len(n.registry)-1].GetGpus()
		return len(n.registry) > 1 && len(gpus) == 2 && strings.Contains(gpus[1].GetFault(), "4711")
	})
	set()
	n.until("the GPU back in service", func() bool { gpus := n.lastGPUs(); return len(gpus) == 2 && gpus[1].GetFault() == "" })
}

// TestGPUMemoryNotFreeAfterItsJob: memory that no process uses takes a GPU out of service until a reset; what
// the driver itself uses does not, nor the memory of another job's GPU.
func TestGPUMemoryNotFreeAfterItsJob(t *testing.T) {
	t.Parallel()
	var h *hardware
	n := newNode(t, "process", func(n *node) { h = withGPUs(n); n.cfg.GPUMemory = 128 * cluster.MiB })
	set := func(first, second int64) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.memory = map[string]int64{"GPU-0": first << 20, "GPU-1": second << 20}
	}
	set(70000, 4) // a job runs on the first
	n.want(at(1, 1), "#!/bin/sh\n", onGPU(n, 1))
	n.settled(at(1, 1))
	set(70000, 523)
	n.want(at(2, 1), "#!/bin/sh\n", onGPU(n, 1))
	n.settled(at(2, 1))
	const want = "GPU GPU-1 has 523 MiB in use after its job, but no process: reset it with nvidia-smi --gpu-reset -i GPU-1"
	n.until("a GPU out of service", func() bool {
		gpus := n.lastGPUs()
		return len(gpus) == 2 && gpus[1].GetFault() == want && gpus[1].GetRepair() == greylagv1.Repair_REPAIR_RESET && gpus[0].GetFault() == "" && n.fault() == ""
	})
	set(70000, 0)
	n.until("the GPU back in service", func() bool {
		gpus := n.lastGPUs()
		return len(gpus) == 2 && gpus[1].GetFault() == "" && gpus[1].GetRepair() == 0
	})
}

func TestGPUsThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	var h *hardware
	n := newNode(t, "process", func(n *node) { h = withGPUs(n); h.broken = gpu.ErrUnanswered })
	n.until("registered", func() bool { return len(n.registry) > 0 })
	if r := n.registry[0]; r.GetFault() == "" || len(r.GetGpus()) != 0 {
		t.Errorf("registered as %v", r)
	}
	h.mu.Lock()
	h.broken = nil
	h.mu.Unlock()
	n.until("registered again", func() bool {
		r := n.registry[len(n.registry)-1]
		return len(r.GetGpus()) == 2 && r.GetFault() == ""
	})
}

// TestContainerdComesBack checks that a node notices within seconds that the runtime works again,
// whatever the check interval.
func TestContainerdComesBack(t *testing.T) {
	t.Parallel()
	var own *private.Daemon
	n := newNode(t, "containerd", func(n *node) {
		var err error
		if own, err = private.Start(filepath.Join(shared.dir, "own"), private.Options{Tmpfs: true}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := own.Stop(); err != nil {
				t.Error(err)
			}
		})
		n.cfg.Health, n.open = time.Hour, containerdAt(own.Address(), n.dir)
		if err := own.Kill(); err != nil {
			t.Fatal(err)
		}
	})
	n.until("a fault", func() bool { return len(n.registry) > 0 && n.fault() != "" })
	if err := own.Restart(); err != nil {
		t.Fatal(err)
	}
	n.until("no fault", func() bool { return n.fault() == "" })
	n.want(at(1, 1), "#!/bin/sh\nexit 3\n", func(w *greylagv1.WantedTask) { w.WorkDir = n.home })
	if end := n.settled(at(1, 1)); end.GetExitCode() != 3 {
		t.Errorf("report: %v", end)
	}
}

func TestNoRuntime(t *testing.T) {
	t.Parallel()
	n := newNode(t, "process", func(n *node) { n.open = noRuntime(n.open) })
	n.until("registered", func() bool { return len(n.registry) > 0 })
	if fault := n.registry[0].GetFault(); fault != "containerd is not installed" {
		t.Errorf("fault %q", fault)
	}
}

// lastGPUs returns the GPUs of the last report that has them. The caller holds the lock.
func (n *node) lastGPUs() []*greylagv1.GPU {
	for _, r := range slices.Backward(n.reports) {
		if len(r.GetGpus()) > 0 {
			return r.GetGpus()
		}
	}
	return nil
}
