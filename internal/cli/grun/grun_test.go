package grun

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/api/gen/greylag/v1/greylagv1connect"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/jobscript/getopt"
	"github.com/greylag/greylag/internal/step"
	"github.com/greylag/greylag/internal/step/daemon"
)

// noCluster is the rest of ui.Cluster, which grun does not use.
type noCluster interface{ ui.Cluster }

// job is a job on nodes n1 and n2, which this process pretends.
type job struct {
	noCluster
	greylagv1connect.JobServiceClient
	busy  int // answers before the first step
	asked []*greylagv1.CreateStepRequest
	nodes sync.WaitGroup
}

func (j *job) Jobs() greylagv1connect.JobServiceClient { return j }
func (j *job) Close()                                  {}

// CreateStep distributes the tasks evenly, and starts the nodes.
func (j *job) CreateStep(ctx context.Context, r *greylagv1.CreateStepRequest) (*greylagv1.CreateStepResponse, error) {
	j.asked = append(j.asked, r)
	if len(j.asked) <= j.busy {
		return &greylagv1.CreateStepResponse{Busy: "other steps use the GPUs"}, nil
	}
	names := []string{"n1", "n2"}
	if len(r.Step.Nodes) > 0 {
		names = r.Step.Nodes
	}
	if n := int(r.Step.NodeCount); n > 0 {
		names = names[:n]
	}
	if n := int(r.Step.Tasks); n > 0 {
		names = names[:min(n, len(names))]
	}
	answer := &greylagv1.CreateStepResponse{Step: 3}
	order := step.Order{Job: r.Job, Step: 3, Contact: r.Step.Contact, Fingerprint: hex.EncodeToString(r.Step.Fingerprint), Key: hex.EncodeToString(r.Step.Key)}
	for i, name := range names {
		tasks := max(int(r.Step.TasksPerNode), 1)
		if n := int(r.Step.Tasks); n > 0 {
			tasks = (n + len(names) - 1 - i) / len(names)
		}
		answer.Nodes = append(answer.Nodes, &greylagv1.StepNode{Node: name, Tasks: int32(tasks)})
		order.Nodes = append(order.Nodes, step.Node{Name: name, Tasks: tasks, GPUs: []string{"A", "B"}})
	}
	for i := range order.Nodes {
		order.Node = i
		own := order
		own.Env = []string{"SLURMD_NODENAME=" + own.Own().Name}
		j.nodes.Go(func() { _, _ = daemon.Run(context.WithoutCancel(ctx), daemon.Config{Order: own}) })
	}
	return answer, nil
}

// result is what a run of grun left.
type result struct {
	status      int
	out, errors string
	dir         string
	asked       []*greylagv1.CreateStepRequest
}

// run runs grun in an empty directory of a job with two nodes and two tasks on each. files are its files.
func run(t *testing.T, j *job, input string, files map[string]string, args ...string) result {
	t.Helper()
	r := result{dir: t.TempDir()}
	t.Chdir(r.dir)
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var out, errs bytes.Buffer
	p := &ui.Process{
		Program: "grun", Args: args, Stdin: strings.NewReader(input), Stdout: &out, Stderr: &errs,
		Environ: []string{
			"PATH=/usr/bin:/bin", config.SocketEnv + "=/dev/greylag/job/socket", "GREYLAG_JOB_ID=12", "MINE=own", "OTHER=x",
			"GREYLAG_NTASKS_PER_NODE=2", "GREYLAG_NNODES=2", "SLURM_NNODES=2", "SLURM_JOB_USER=ada", "SLURM_JOB_PARTITION=gpu",
		},
		Dial: func(config.Client) (ui.Cluster, error) { return j, nil },
	}
	r.status = Run(t.Context(), p)
	j.nodes.Wait()
	r.out, r.errors, r.asked = out.String(), errs.String(), j.asked
	return r
}

// OnRetry has no effect: the pretended job always answers.
func (j *job) OnRetry(func(error, time.Duration, time.Duration)) {}

func parse(p command, args []string) (*request, error) {
	found, words, err := getopt.Parse(p.options(), args, getopt.First)
	if err != nil {
		return nil, err
	}
	r, _, err := p.request(found, words)
	return r, err
}

func sorted(text string) string {
	lines := strings.SplitAfter(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// TestRuns has command lines with their output, messages and status; each begins a step of four
// tasks unless its options say otherwise.
func TestRuns(t *testing.T) {
	for _, c := range []struct {
		name, args string // words, separated by |
		input      string
		out        string
		errors     string
		status     int
	}{
		{"row 24: hostname on 2x2", `sh|-c|echo $SLURMD_NODENAME`, "", "n1\nn1\nn2\nn2\n", "", 0},
		{"row 24: one task on one node", `-N1|-n1|-w|n2|sh|-c|echo $SLURMD_NODENAME`, "", "n2\n", "", 0},
		{"row 25: label", `-l|-n|2|sh|-c|echo x`, "", "0: x\n1: x\n", "", 0},
		{"row 26: highest status", `sh|-c|case $SLURM_PROCID in 1) exit 3;; 3) exit 7;; esac`, "", "", "grun: error: n1: task 1: Exited with exit code 3\ngrun: error: n2: task 3: Exited with exit code 7\n", 7},
		{"row 28: input", `-n3|cat`, "x\n", "x\nx\nx\n", "", 0},
		{"row 28: no input", `--input|none|-n3|cat`, "x\n", "", "", 0},
		{"one rank's output", `-o|1|sh|-c|echo $SLURM_PROCID`, "", "1\n", "", 0},
		{"export", `-n1|--export=MINE,NEW=1|sh|-c|echo $MINE $NEW $SLURM_JOB_ID$OTHER`, "", "own 1\n", "", 0},
		{"tasks per node, not given", `-N1|sh|-c|echo ${SLURM_NTASKS_PER_NODE-unset} $SLURM_NTASKS`, "", "unset 2\nunset 2\n", "", 0},
		{"tasks per node, given", `-N1|--ntasks-per-node=1|sh|-c|echo $SLURM_NTASKS_PER_NODE`, "", "1\n", "", 0},
		{"job name", `-n1|-J|fit|sh|-c|echo $SLURM_JOB_NAME`, "", "fit\n", "", 0},
		{"one GPU for each task", `-n2|-N1|--gpus-per-task=1|sh|-c|echo $SLURM_LOCALID $CUDA_VISIBLE_DEVICES`, "", "0 A\n1 B\n", "", 0},
		{"GPUs unbound", `-n1|--gpus-per-task=1|--gpu-bind=none|sh|-c|echo $CUDA_VISIBLE_DEVICES`, "", "A,B\n", "", 0},
		{"directory", `-n1|-D|/usr|pwd`, "", "/usr\n", "", 0},
		{"fewer tasks than nodes", `-N2|-n1|echo|x`, "", "x\n", "grun: warning: can't run 1 processes on 2 nodes, setting nnodes to 1\n", 0},
		{"row 35: PMIx", `--mpi=pmix|a.out`, "", "", "grun: error: --mpi=pmix is not supported: start Open MPI programs with mpirun PROGRAM in the job\ngrun: hint: --mpi=list prints the supported kinds\n", 2},
		{"X11", `-n|1|--x11|true`, "", "", "grun: error: --x11 is not supported\ngrun: hint: X11 is not forwarded: run a VNC server in the job, and forward its port with gctl forward\n", 2},
		{"one Ctrl-C", `-X|-T4|--compress|--send-libs=no|-n1|echo|x`, "", "x\n", "grun: warning: -X has no effect: one Ctrl-C prints the state of the tasks; two within a second end the step, one with --quit-on-interrupt\n", 0},
		{"kinds of MPI", `--mpi=list`, "", "MPI plugin types are...\n\tnone\n\tpmi2\n", "", 0},
		{"test", `--test-only|true`, "", "", "grun: a step of job 12 would run in partition gpu on nodes of \n", 0},
		{"an image of a step", `--image=busybox|true`, "", "", "grun: error: --image: steps use the image and mounts of their job\ngrun: hint: set --image and --mount at submission\n", 2},
		{"missing rank", `-n1|-o|7|true`, "", "", "grun: error: --output=7: the step has no such task\ngrun: hint: its tasks are 0 to 0\n", 2},
		{"no program", ``, "", "", "grun: error: no program given\ngrun: hint: write grun [OPTIONS] PROGRAM [ARGUMENT...]\n", 2},
		{"parts of a heterogeneous job", `true|:|true`, "", "", "grun: error: programs joined by \":\" are not supported: jobs are not heterogeneous\ngrun: hint: use --multi-prog\n", 2},
		{"cyclic ranks", `-m|cyclic|true`, "", "", "grun: error: -m: \"cyclic\" is not supported, only block, block:block, block:cyclic, block:fcyclic\ngrun: hint: see --help\n", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := run(t, &job{}, c.input, nil, strings.FieldsFunc(c.args, func(r rune) bool { return r == '|' })...)
			if r.status != c.status || sorted(r.out) != sorted(c.out) || sorted(r.errors) != sorted(c.errors) {
				t.Errorf("status %d, want %d, output:\n%swant:\n%smessages:\n%swant:\n%s", r.status, c.status, r.out, c.out, r.errors, c.errors)
			}
		})
	}
}

func TestJobWithoutID(t *testing.T) {
	var errs bytes.Buffer
	p := &ui.Process{Program: "grun", Args: []string{"hostname"}, Environ: []string{config.SocketEnv + "=/run/x"}, Stderr: &errs}
	if status := Run(t.Context(), p); status != 2 || errs.String() != "grun: error: GREYLAG_JOB_ID is not set, although this is a job\ngrun: hint: set it to the ID of the job\n" {
		t.Errorf("status %d: %s", status, errs.String())
	}
}

// TestMultiProg runs different programs, and nothing if a rank has none.
func TestMultiProg(t *testing.T) {
	text := "# roles\n0 echo server %t\n1-2 echo 'client %o' \"of %t\"\n* echo \\\nrest\n"
	r := run(t, &job{}, "", map[string]string{"f": text}, "--multi-prog", "f")
	if r.status != 0 || sorted(r.out) != "client 0 of 1\nclient 1 of 2\nrest\nserver 0\n" {
		t.Errorf("status %d, output:\n%s%s", r.status, r.out, r.errors)
	}
	r = run(t, &job{}, "", map[string]string{"f": "0,2 touch started\n"}, "--multi-prog", "f")
	if _, err := os.Stat(filepath.Join(r.dir, "started")); r.status != 2 || err == nil || !strings.HasPrefix(r.errors, "grun: error: f: no program for tasks 1,3 of 4\n") {
		t.Errorf("status %d: %s", r.status, r.errors)
	}
	for _, c := range []struct{ text, tasks, want string }{
		{"0", "-n9", "grun: error: f: line 1: no program\n"}, {"0 true", "-n2", "grun: error: f: no program for tasks 1 of 2\n"}, {"", "-n2", "grun: error: no file g\n"},
	} {
		name := "f"
		if c.text == "" {
			name = "g"
		}
		if r = run(t, &job{}, "", map[string]string{"f": c.text}, c.tasks, "--multi-prog", name); len(r.asked) > 0 || !strings.HasPrefix(r.errors, c.want) {
			t.Errorf("%q: asked for a step: %v: %s", c.text, r.asked, r.errors)
		}
	}
	for text, want := range map[string]string{
		"0": "line 1: no program", "\nx true": `line 2: "x" is not a list of ranks`, "0-1 true\n1 true": "line 2: task 1 has a program already",
		"3-1 true": `line 1: "3-1" is not`, `0 "a`: "line 1: a quote is not closed",
	} {
		if _, err := parsePrograms(text, 2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestOutputFiles has grun write one file, and the nodes one for each task.
func TestOutputFiles(t *testing.T) {
	r := run(t, &job{}, "", map[string]string{"all-12": "before\n"}, "-l", "-o", "all-%j", "--open-mode=append", "sh", "-c", "echo out; echo error >&2")
	text, err := os.ReadFile(filepath.Join(r.dir, "all-12"))
	want := "0: error\n0: out\n1: error\n1: out\n2: error\n2: out\n3: error\n3: out\nbefore\n"
	if r.status != 0 || err != nil || sorted(string(text)) != want || r.out != "" {
		t.Errorf("status %d, %v, file:\n%s%s", r.status, err, text, r.errors)
	}
	r = run(t, &job{}, "", nil, "-u", "-o", "%J-%t", "-e", "none", "sh", "-c", "echo $SLURM_PROCID; echo error >&2")
	for rank := range 4 {
		text, err := os.ReadFile(filepath.Join(r.dir, fmt.Sprintf("12.3-%d", rank)))
		if err != nil || string(text) != fmt.Sprintln(rank) {
			t.Errorf("task %d: %q, %v: %s", rank, text, err, r.errors)
		}
	}
}

// TestWaitsForGPUs is refused twice, with another request ID each time.
func TestWaitsForGPUs(t *testing.T) {
	r := run(t, &job{busy: 2}, "", nil, "-n1", "--exact", "--gpus=1", "echo", "x")
	if r.status != 0 || r.out != "x\n" || r.errors != "grun: note: waiting: other steps use the GPUs\n" {
		t.Errorf("status %d, output %q: %s", r.status, r.out, r.errors)
	}
	if len(r.asked) != 3 || r.asked[0].RequestId == r.asked[1].RequestId || !r.asked[2].Step.Exact || r.asked[2].Step.Gpus != 1 {
		t.Errorf("asked %v", r.asked)
	}
	if r := run(t, &job{busy: 2}, "", nil, "-I", "--exact", "echo", "x"); r.status != 1 || r.errors != "grun: error: other steps use the GPUs\n" {
		t.Errorf("status %d: %s", r.status, r.errors)
	}
}

// TestSizes compares what is asked of the controllers, by options and variables.
func TestSizes(t *testing.T) {
	for _, c := range []struct{ args, environ, want string }{
		{"", "", ""},
		{"", "GREYLAG_NTASKS_PER_NODE=2", "tasks_per_node:2"},
		{"", "SLURM_NTASKS=5 SLURM_NNODES=2", "node_count:2 tasks:5"},
		{"", "SLURM_NTASKS_PER_NODE=3 SLURM_NTASKS=6 SLURM_NNODES=2", "node_count:2 tasks_per_node:3"},
		{"-n 3", "SLURM_NTASKS_PER_NODE=3 GREYLAG_NTASKS_PER_NODE=3 SLURM_NNODES=2", "node_count:2 tasks:3"},
		{"-N 1", "SLURM_NTASKS_PER_NODE=3 SLURM_NNODES=2", "node_count:1 tasks_per_node:3"},
		{"-N 1-9 -n4", "GREYLAG_NNODES=2", "node_count:2 tasks:4"},
		{"-w n[1-2],m -x n2 -r1", "SLURM_NNODES=4", `nodes:"n1" nodes:"n2" nodes:"m" exclude:"n2" first_node:1`},
		{"-c 4 --gpus=h100:2", "", "cpus_per_task:4 gpus:2"},
		{"", "SRUN_CPUS_PER_TASK=3 SLURM_CPUS_PER_TASK=9", "cpus_per_task:3"},
		{"--gres=none --overlap", "", "gpus_per_node:0 overlap:true"},
		{"--gres=gpu:h100:2 --exact", "", "gpus_per_node:2 exact:true"},
		{"--gres=nvme:2,gpu:1", "", "gpus_per_node:1"},
		{"--gres=nvme:2", "", ""},
		{"--gpus-per-task=1 --exclusive", "", "gpus_per_task:1 exact:true"},
		{"--ntasks-per-node=1 --kill-on-bad-exit --mpi=none --nodes=2 --nodelist=a,b --ntasks=2 --cpu-bind=none --jobid=12", "", `nodes:"a" nodes:"b" node_count:2 tasks:2 tasks_per_node:1`},
	} {
		p := command{Process: &ui.Process{Program: "grun", Environ: strings.Fields(c.environ), Stderr: &bytes.Buffer{}}}
		r, err := parse(p, append(strings.Fields(c.args), "true"))
		if err != nil {
			t.Errorf("%s: %v", c.args, err)
			continue
		}
		r.spec.Name = ""
		if got := strings.Join(strings.Fields(r.spec.String()), " "); got != c.want {
			t.Errorf("%s, %s: %s, want %s", c.args, c.environ, got, c.want)
		}
	}
}

// TestRefusedValues has one sentence for each.
func TestRefusedValues(t *testing.T) {
	for _, args := range []string{
		"-n0", "-n x", "-N 3-2", "-N 0", "-w n[", "--gres=disk:0", "--gpus=x", "--gpu-bind=cyclic", "--gpu-bind=single", "--gpu-bind=map:x", "--gpu-bind=mask:0",
		"--cpu-bind=sideways", "--cpu-bind=map_cpu:4096", "--cpu-bind=mask_cpu:0", "--cpu-bind=mask_cpu:zz", "-K2", "-W x", "-t x", "--pty=1", "--open-mode=x", "--jobid=x", "-o %z", "-i %",
		"--het-group=0", "--mpi=openmpi", "--nosuch",
	} {
		p := command{Process: &ui.Process{Program: "grun", Stderr: &bytes.Buffer{}}}
		if _, err := parse(p, append(strings.Fields(args), "true")); err == nil || ui.StatusOf(err) != ui.Usage || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", args, err)
		}
	}
}

func TestBindOptions(t *testing.T) {
	for args, want := range map[string]string{
		"--gpu-bind=verbose,single:2":    "{0 2 [] []} []",
		"--gpu-bind=per_task:1":          "{1 0 [] []} []",
		"--gpu-bind=map_gpu:0*2,1":       "{0 0 [0 0 1] []} []",
		"--gpu-bind=mask:0x3,c":          "{0 0 [] [3 12]} []",
		"--gpu-bind=closest":             "{0 0 [] []} []",
		"--gpus-per-task=2":              "{2 0 [] []} []",
		"--cpu-bind=q":                   "{0 0 [] []} []",
		"--cpu-bind=v,cores":             "{0 0 [] []} []",
		"--cpu-bind=quiet,map_cpu:3,0x1": "{0 0 [] []} [[3] [1]]",
		"--cpu-bind=mask_cpu:0x11,8":     "{0 0 [] []} [[0 4] [3]]",
	} {
		r, err := parse(command{Process: &ui.Process{Program: "grun", Stderr: &bytes.Buffer{}}}, []string{args, "true"})
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		if got := fmt.Sprint(r.program.GPUs, r.program.CPUs); got != want {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
}
