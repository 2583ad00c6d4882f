package agent

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/reconcile"
	tasks "github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/internal/taskdb"
	"github.com/greylag/greylag/pkg/cluster"
)

func example() *greylagv1.WantedTask {
	return &greylagv1.WantedTask{
		Job: 1234, Attempt: 2, Ref: "1230_4", ArrayId: 1230, ArrayIndex: 4, ArraySize: 16, ArrayLast: 60, ArrayStep: 4, User: "ann", Uid: 1001, Gid: 100,
		Name: "train a/b", Account: "lab", Partition: "main", Qos: "standard", WorkDir: "/home/ann/x", SubmitHost: "login1",
		Rank: 1, TasksPerNode: 2, CpusPerTask: 4, Restarts: 3, GpusPerNode: 2, MemPerGpu: 32 << 30, MemPerCpu: 8 << 30,
		TimeLimit: durationpb.New(time.Hour), Started: timestamppb.New(time.Unix(1_700_000_000, 0)),
		Nodes: []*greylagv1.NodeAllocation{
			{Node: "gpu01", Cpus: 8, Memory: 64 << 30, Gpus: []int32{0, 1}},
			{Node: "gpu02", Cpus: 8, Memory: 64 << 30, Gpus: []int32{2, 5}},
		},
	}
}

func TestOutputPatterns(t *testing.T) {
	for pattern, want := range map[string]string{
		"out-%j":            "out-1234",
		"%A_%a":             "1230_4",
		"%6j.%3a.%2n":       "001234.004.01",
		"%x.%u.%N.%n.%t.%r": "train a_b.ann.gpu02.1.0.3",
		"100%%":             "100%",
		"%q %":              "%q %",
		"%99999999999999j":  "0000001234",
		"%5":                "%5",
		"%5x":               "train a_b",
		"/var/log/%u/%j":    "/var/log/ann/1234",
		"a/../b":            "b",
	} {
		if got := expand(pattern, example(), "gpu02"); got != want {
			t.Errorf("%q: %q, want %q", pattern, got, want)
		}
	}
	plain := &greylagv1.WantedTask{Job: 9, WorkDir: "/w"}
	if _, out, bad := files(plain, "n"); out != "/w/greylag-9.out" || bad != "" {
		t.Errorf("default %q %q", out, bad)
	}
	if in, _, _ := files(&greylagv1.WantedTask{Job: 9, WorkDir: "/w", Input: "in-%j"}, "n"); in != "/w/in-9" {
		t.Errorf("input %q", in)
	}
	if _, out, _ := files(example(), "n"); out != "/home/ann/x/greylag-1234-1.out" {
		t.Errorf("default of another node %q", out)
	}
}

func FuzzOutputPattern(f *testing.F) {
	f.Add("%j%%%5a", "name")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		w := example()
		w.Name = name
		got := expand(pattern, w, "n1")
		if len(got) > len(pattern)*(len(name)+18)+1 {
			t.Fatalf("%q grew to %d bytes", pattern, len(got))
		}
		plain := strings.Count(pattern, "/")
		if strings.Count(got, "/") > plain {
			t.Fatalf("a name added folders: %q gives %q", pattern, got)
		}
	})
}

func TestEnvironment(t *testing.T) {
	l := &launch{
		id: at(1234, 2), spec: example(), own: example().GetNodes()[1], node: "gpu02", cluster: "c1", pinned: true,
		gpus: []device{{2, "GPU-b"}, {5, "GPU-e"}},
	}
	who := account{home: "/home/ann", shell: "/bin/zsh"}
	given := "A=1\x00SLURM_JOB_ID=7\x00GREYLAG_X=1\x00nonsense\x00=x\x00SHELL=/bin/sh\x00TMPDIR=/scratch\x00CUDA_VISIBLE_DEVICES=9\x00A=2\x00B=x=y\n\x00" +
		"GREYLAG_CPUS_PER_GPU=4\x00GREYLAG_NTASKS_PER_GPU=1\x00GREYLAG_GPUS_PER_TASK=1\x00SLURM_CPUS_PER_GPU=9\x00GREYLAG_CPUS_PER_GPU=9\x00" +
		"GREYLAG_NTASKS_PER_NODE=1\x00SLURMD_NODENAME=gpu07\x00GREYLAG_SOCKET=/dev/greylag/job/socket" // of an enclosing job
	env := environment(l, who, []byte(given))
	for _, entry := range []string{
		"A=1", "B=x=y\n", "SHELL=/bin/sh", "HOME=/home/ann", "USER=ann", "LOGNAME=ann", "TMPDIR=/tmp",
		"CUDA_VISIBLE_DEVICES=0,1", "CUDA_DEVICE_ORDER=PCI_BUS_ID", "GREYLAG_JOB_GPUS=GPU-b,GPU-e", "SLURM_JOB_GPUS=2,5",
		"GREYLAG_JOB_ID=1234", "SLURM_JOB_ID=1234", "SLURM_JOBID=1234", "GREYLAG_ARRAY_JOB_ID=1230", "SLURM_ARRAY_TASK_ID=4",
		"SLURM_ARRAY_TASK_COUNT=16", "SLURM_ARRAY_TASK_MIN=0", "GREYLAG_ARRAY_TASK_MAX=60", "SLURM_ARRAY_TASK_STEP=4", "SLURM_JOB_NAME=train a/b", "SLURM_JOB_NODELIST=gpu[01-02]", "SLURM_NNODES=2",
		"SLURM_NODEID=1", "SLURM_PROCID=1", "SLURM_LOCALID=0", "SLURM_NTASKS=4", "SLURM_NTASKS_PER_NODE=2", "SLURM_TASKS_PER_NODE=2(x2)",
		"SLURM_CPUS_PER_TASK=4", "SLURM_CPUS_ON_NODE=8", "SLURM_JOB_CPUS_PER_NODE=8(x2)", "SLURM_MEM_PER_NODE=65536",
		"SLURM_GPUS_PER_NODE=2", "SLURM_MEM_PER_GPU=32768", "GREYLAG_MEM_PER_CPU=8192", "SLURM_CPUS_PER_GPU=4", "GREYLAG_CPUS_PER_GPU=4",
		"SLURM_NTASKS_PER_GPU=1", "GREYLAG_GPUS_PER_TASK=1", "SLURM_GPUS_PER_TASK=1",
		"SLURM_GPUS_ON_NODE=2", "SLURM_GPUS=4", "SLURM_SUBMIT_DIR=/home/ann/x", "SLURM_SUBMIT_HOST=login1", "SLURM_RESTART_COUNT=3",
		"SLURM_JOB_PARTITION=main", "SLURM_JOB_ACCOUNT=lab", "SLURM_JOB_QOS=standard", "SLURM_JOB_END_TIME=1700003600",
		"GREYLAG_JOB_START_TIME=1700000000", "SLURMD_NODENAME=gpu02", "GREYLAG_ATTEMPT=2", "SLURM_CLUSTER_NAME=c1",
	} {
		if !slices.Contains(env, entry) {
			t.Errorf("%q is missing", entry)
		}
	}
	seen := map[string]bool{}
	for _, entry := range env {
		name, _, ok := strings.Cut(entry, "=")
		if !ok || name == "" || seen[name] {
			t.Errorf("%q is no entry, or there twice", entry)
		}
		seen[name] = true
	}
	l.pinned = false
	if !slices.Contains(environment(l, who, nil), "CUDA_VISIBLE_DEVICES=GPU-b,GPU-e") {
		t.Error("a task that sees all GPUs does not learn which are its own")
	}
	ofNode := func(entry string) bool { return strings.HasPrefix(entry, "PATH=") }
	if l.spec.Image = ""; !slices.ContainsFunc(environment(l, who, nil), ofNode) {
		t.Error("no PATH")
	}
	if l.spec.Image = "pytorch:2"; slices.ContainsFunc(environment(l, who, nil), ofNode) {
		t.Error("the node's PATH hides that of the image")
	}
}

// TestSizesNamedOnlyIfGiven checks that Slurm's names of sizes are set only for options that were given.
func TestSizesNamedOnlyIfGiven(t *testing.T) {
	l := &launch{id: at(1234, 2), spec: example(), own: example().GetNodes()[1], node: "gpu02"}
	l.spec.TasksPerNode, l.spec.CpusPerTask = 1, 1
	for given, want := range map[string][]string{
		"":                                 nil,
		"GREYLAG_NTASKS=1":                 {"SLURM_NTASKS=2", "SLURM_NPROCS=2"},
		"GREYLAG_NTASKS_PER_NODE=1\x00A=b": {"SLURM_NTASKS=2", "SLURM_NPROCS=2", "SLURM_NTASKS_PER_NODE=1"},
		"GREYLAG_CPUS_PER_TASK=1":          {"SLURM_CPUS_PER_TASK=1"},
	} {
		var got []string
		for _, entry := range environment(l, account{}, []byte(given)) {
			if strings.HasPrefix(entry, "SLURM_NTASKS") || strings.HasPrefix(entry, "SLURM_NPROCS") || strings.HasPrefix(entry, "SLURM_CPUS_PER_TASK") {
				got = append(got, entry)
			}
		}
		if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			t.Errorf("%q: %q, want %q", given, got, want)
		}
	}
}

func TestCoresAreSetAside(t *testing.T) {
	var list []core
	for cpu := range 8 {
		list = append(list, core{cpu: cpu, numa: cpu / 4})
	}
	c := newCores(host{cpus: 8, cores: list})
	for _, step := range []struct {
		job, n, numa int
		want         []int
	}{
		{1, 2, 1, []int{4, 5}},     // where its GPU is
		{2, 2, -1, []int{6, 7}},    // the fuller node that fits
		{3, 3, 1, []int{0, 1, 2}},  // its own node is full
		{4, 2, -1, nil},            // one is left
		{-1, 0, 0, nil},            // the first ends
		{5, 3, -1, []int{3, 4, 5}}, // no node has three: they are spread
		{6, 1, -1, nil},            // none is left
	} {
		if step.job < 0 {
			c.free(at(1, 1))
			continue
		}
		if got := c.take(at(step.job, 1), int32(step.n), step.numa); !slices.Equal(got, step.want) {
			t.Errorf("job %d gets %v, want %v", step.job, got, step.want)
		}
	}
	shared := newCores(host{cpus: 16, cores: list})
	if got := shared.take(at(1, 1), 1, -1); got != nil {
		t.Errorf("a node that offers more than it has pins %v", got)
	}
}

func TestClassify(t *testing.T) {
	ended := time.Unix(5, 0)
	for name, c := range map[string]struct {
		task taskdb.Task
		exit tasks.Exit
		want cluster.TaskCause
		how  cluster.Exit
	}{
		"done":        {taskdb.Task{}, tasks.Exit{}, cluster.Exited, cluster.Exit{}},
		"failed":      {taskdb.Task{}, tasks.Exit{Code: 3}, cluster.Exited, cluster.Exit{Code: 3}},
		"signal":      {taskdb.Task{}, tasks.Exit{Code: 139, Signal: 11}, cluster.Exited, cluster.Exit{Signal: 11}},
		"stopped":     {taskdb.Task{KillAt: 1}, tasks.Exit{Code: 143, Signal: 15}, cluster.Stopped, cluster.Exit{Signal: 15}},
		"memory":      {taskdb.Task{}, tasks.Exit{Code: 137, Signal: 9, OOM: true}, cluster.MemoryKilled, cluster.Exit{Signal: 9}},
		"survived":    {taskdb.Task{}, tasks.Exit{OOMKills: 2}, cluster.Exited, cluster.Exit{}},
		"lost":        {taskdb.Task{KillAt: 1}, tasks.Exit{Lost: true}, cluster.TaskLost, cluster.Exit{}},
		"launch":      {taskdb.Task{}, tasks.Exit{Code: 118, LaunchError: "no"}, cluster.LaunchFailed, cluster.Exit{Code: 118}},
		"doomed":      {taskdb.Task{Doomed: "XID 79"}, tasks.Exit{Code: 137, Signal: 9}, cluster.GPUFault, cluster.Exit{Signal: 9}},
		"output":      {taskdb.Task{Doomed: overOutput + "/a"}, tasks.Exit{Code: 137, Signal: 9}, cluster.OutputExceeded, cluster.Exit{Signal: 9}},
		"blamed":      {taskdb.Task{Blame: "ECC"}, tasks.Exit{Code: 1}, cluster.GPUFault, cluster.Exit{Code: 1}},
		"blamed fine": {taskdb.Task{Blame: "ECC"}, tasks.Exit{}, cluster.Exited, cluster.Exit{}},
	} {
		c.task.ID, c.task.Phase, c.exit.Ended = at(1, 1), reconcile.Started, ended
		got := classify(newTask(&c.task, example()), c.exit)
		if got.Cause != c.want || got.Exit != c.how || got.Ended != cluster.InstantOf(ended) {
			t.Errorf("%s: %+v", name, got)
		}
		if reported := strings.Contains(got.Message, "killed 2 of its processes"); reported != (name == "survived") {
			t.Errorf("%s: message %q", name, got.Message)
		}
	}
	for err, want := range map[error]cluster.TaskCause{
		tasks.ErrInvalid: cluster.LaunchFailed, tasks.ErrUnsupported: cluster.LaunchFailed, tasks.ErrUnavailable: cluster.NodeFault,
		errors.New("disk"): cluster.NodeFault, failed(cluster.ImageFailed, "x"): cluster.ImageFailed,
	} {
		if got, _ := causeOf(err); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}

func TestShape(t *testing.T) {
	a := &Agent{cfg: Config{Isolated: true}}
	tmp := t.TempDir() // below /tmp
	for name, c := range map[string]struct {
		spec    tasks.Spec
		image   bool
		private bool
		mounts  []string
		asked   []*greylagv1.Mount

		checkpoints string
	}{
		"home":        {tasks.Spec{WorkDir: "/home/ann", Stdout: "/home/ann/out"}, false, true, nil, nil, ""},
		"below tmp":   {tasks.Spec{WorkDir: tmp, Stdout: tmp + "/out"}, false, true, []string{tmp}, nil, ""},
		"tmp itself":  {tasks.Spec{WorkDir: "/tmp", Stdout: tmp + "/out"}, false, false, nil, nil, ""},
		"up again":    {tasks.Spec{WorkDir: tmp + "/x/..", Stdout: tmp + "/x/../y/../out"}, false, true, []string{tmp}, nil, ""},
		"image":       {tasks.Spec{WorkDir: tmp, Stdout: "/usr/out", Stderr: "/etc/x"}, true, true, []string{"/nowhere", tmp}, nil, ""},
		"asked for":   {tasks.Spec{WorkDir: "/home/ann"}, true, true, []string{"/data", "/home/ann", "/nowhere"}, []*greylagv1.Mount{{Source: "/sets", Target: "/data/", ReadOnly: true}, {Source: "/other", Target: "/home/ann"}}, ""},
		"checkpoints": {tasks.Spec{WorkDir: "/home/ann"}, true, true, []string{"/home/ann", "/lustre/ckpt/0", "/nowhere"}, nil, "/lustre/ckpt/%j"},
		"in tmp":      {tasks.Spec{WorkDir: "/home/ann"}, false, true, []string{tmp + "/0"}, nil, tmp + "/%j"},
	} {
		w := &greylagv1.WantedTask{Mounts: c.asked, CheckpointDir: c.checkpoints}
		if c.image {
			w.Image = "x"
		}
		a.addMounts(&c.spec, "/nowhere", &launch{spec: w})
		var got []string
		for _, m := range c.spec.Mounts {
			got = append(got, m.Target)
		}
		if c.spec.PrivateTmp != c.private || !slices.Equal(got, c.mounts) {
			t.Errorf("%s: private %v, mounts %v", name, c.spec.PrivateTmp, got)
		}
	}
}

func TestHostIsDiscovered(t *testing.T) {
	h, err := discover(Config{})
	if err != nil || h.cpus < 1 || len(h.cores) < h.cpus || h.memory < 64*cluster.MiB {
		t.Errorf("%+v, %v", h, err)
	}
	h, err = discover(Config{CPUs: 300, Memory: cluster.GiB})
	if err != nil || h.cpus != 300 || h.memory != cluster.GiB {
		t.Errorf("configured: %+v, %v", h, err)
	}
	if _, err := parseMemTotal("MemFree: 1 kB\n"); err == nil {
		t.Error("no MemTotal, and no error")
	}
}

// TestForkBomb checks that jobs with all CPUs together leave half of the host's process IDs to
// others, and that a small job has enough.
func TestForkBomb(t *testing.T) {
	for _, row := range []struct {
		host host
		cpus int
		want int64
	}{
		{host{cpus: 128, tasks: 4 << 20}, 1, 16 << 10},
		{host{cpus: 128, tasks: 4 << 20}, 128, 2 << 20},
		{host{cpus: 128, tasks: 4 << 20}, 200, 2 << 20},
		{host{cpus: 256, tasks: 32 << 10}, 1, minTasks},
		{host{cpus: 8, tasks: 32 << 10}, 0, 2 << 10},
		{host{cpus: 8}, 1, 0},
	} {
		if got := row.host.tasksFor(row.cpus); got != row.want {
			t.Errorf("%d of %d CPUs of a host with %d ids: %d, want %d", row.cpus, row.host.cpus, row.host.tasks, got, row.want)
		}
	}
	if h, err := discover(Config{}); err != nil || h.tasksFor(1) < minTasks {
		t.Errorf("this host: %d, %v", h.tasksFor(1), err)
	}
}

func TestAccounts(t *testing.T) {
	root := newAccounts().of(t.Context(), 0, 0)
	if root.home != "/root" || root.shell == "" || root.groups[0] != 0 {
		t.Errorf("root: %+v", root)
	}
	unknown := newAccounts().of(t.Context(), 3_999_999_999, 77)
	if unknown.home != "" || !slices.Equal(unknown.groups, []uint32{77}) {
		t.Errorf("a user this host does not know: %+v", unknown)
	}
}

// TestRanOutlivesTheDaemon checks that the next daemon reports the whole running time of a task.
func TestRanOutlivesTheDaemon(t *testing.T) {
	a := &Agent{state: state{dirty: map[reconcile.ID]bool{}}, reports: make(chan struct{}, 1)}
	first := newTask(&taskdb.Task{ID: at(1, 1), Phase: reconcile.Started}, nil)
	first.firstSeen = time.Now().Add(-time.Hour)
	a.end(first, cluster.Task{Cause: cluster.Exited})
	data, err := taskdb.EncodeTask(first.Task)
	if err != nil {
		t.Fatal(err)
	}
	record, err := taskdb.DecodeTask(data)
	if err != nil {
		t.Fatal(err)
	}
	if ms := reported(newTask(record, nil)).GetRanMs(); ms < time.Hour.Milliseconds() {
		t.Errorf("an hour is reported as %d ms", ms)
	}
}

// TestClockOffset checks that a slow answer does not make a correct clock look wrong.
func TestClockOffset(t *testing.T) {
	t.Parallel()
	asked := time.Unix(1_000_000, 0)
	answered := asked.Add(8 * time.Second)
	for at, want := range map[time.Duration]time.Duration{
		0: 0, 8 * time.Second: 0, 7 * time.Second: 0, -6 * time.Second: 6 * time.Second, 15 * time.Second: -7 * time.Second,
	} {
		if got := clockOffset(asked, answered, asked.Add(at)); got != want {
			t.Errorf("a controller's clock %s after the question: %s, want %s", at, got, want)
		}
	}
}
