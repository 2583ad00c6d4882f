package agent

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/step"
	"github.com/greylag/greylag/pkg/cluster"
)

// environment returns the environment of a task's program: the user's variables, then those that a
// login sets and the user did not, then Greylag's, under its own names and under the Slurm names
// that programs read.
func environment(l *launch, who account, given []byte) []string {
	var env []string
	has, asked := map[string]bool{}, map[string]bool{}
	for entry := range bytes.SplitSeq(given, []byte{0}) {
		name, value, ok := strings.Cut(string(entry), "=")
		if !ok || name == "" || has[name] {
			continue // not a valid entry, or a repeated name
		}
		if rest, ours := strings.CutPrefix(name, "GREYLAG_"); ours && slices.Contains(cluster.AskedVariables[:], rest) {
			env = append(env, "SLURM_"+rest+"="+value)
		} else if ours && slices.Contains(cluster.AskedSizes[:], rest) {
			asked[rest] = true
			continue
		} else if ours || strings.HasPrefix(name, "SLURM_") {
			continue // of an enclosing job
		}
		has[name] = true
		env = append(env, string(entry))
	}
	for _, usual := range [][2]string{
		{"HOME", who.home}, {"USER", l.spec.GetUser()}, {"LOGNAME", l.spec.GetUser()}, {"SHELL", who.shell},
		{"PATH", "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"},
	} {
		if usual[0] == "PATH" && l.spec.GetImage() != "" {
			continue // set by the image
		}
		if !has[usual[0]] && usual[1] != "" {
			env = append(env, usual[0]+"="+usual[1])
		}
	}
	// A job submitted from inside another job brings the variables of that job.
	drop := map[string]bool{"TMPDIR": true, "CUDA_VISIBLE_DEVICES": true, "CUDA_DEVICE_ORDER": true, "SLURMD_NODENAME": true}
	kept := env[:0]
	for _, entry := range env {
		if name, _, _ := strings.Cut(entry, "="); !drop[name] {
			kept = append(kept, entry)
		}
	}
	env = append(kept, "TMPDIR="+cmp.Or(l.tmpDir, "/tmp"), "CUDA_VISIBLE_DEVICES="+visible(l), "CUDA_DEVICE_ORDER=PCI_BUS_ID",
		"SLURMD_NODENAME="+l.node)
	for _, v := range variables(l, asked) {
		if v.value == "" {
			continue
		}
		env = append(env, "GREYLAG_"+v.name+"="+v.value)
		for _, name := range v.slurm {
			env = append(env, "SLURM_"+name+"="+v.value)
		}
	}
	return env
}

// variable is one fact about the task: its name after GREYLAG_, and its names after SLURM_
// (sbatch(1), OUTPUT ENVIRONMENT VARIABLES).
type variable struct {
	name  string
	value string // "": not set
	slurm []string
}

// variables returns the facts about a task; asked has the sizes that the user gave.
func variables(l *launch, asked map[string]bool) []variable {
	w, own := l.spec, l.own
	list := []variable{
		{"JOB_ID", number(w.GetJob()), []string{"JOB_ID", "JOBID"}},
		{"JOB_NAME", w.GetName(), []string{"JOB_NAME"}},
		{"JOB_USER", w.GetUser(), []string{"JOB_USER"}},
		{"JOB_UID", number(w.GetUid()), []string{"JOB_UID"}},
		{"JOB_GID", number(w.GetGid()), []string{"JOB_GID"}},
		{"JOB_ACCOUNT", w.GetAccount(), []string{"JOB_ACCOUNT"}},
		{"JOB_PARTITION", w.GetPartition(), []string{"JOB_PARTITION"}},
		{"JOB_QOS", w.GetQos(), []string{"JOB_QOS"}},
		{"ATTEMPT", number(w.GetAttempt()), nil},
		{"RESTART_COUNT", nonzero(w.GetRestarts()), []string{"RESTART_COUNT"}},
		{"CLUSTER_NAME", l.cluster, []string{"CLUSTER_NAME"}},
		{"SUBMIT_DIR", w.GetWorkDir(), []string{"SUBMIT_DIR"}},
		{"SUBMIT_HOST", w.GetSubmitHost(), []string{"SUBMIT_HOST"}},
		{"NODENAME", l.node, []string{"NODENAME"}},
		{"NODES_MIN", nonzero(w.GetElastic().GetMinNodes()), nil},
		{"NODES_MAX", nonzero(w.GetElastic().GetMaxNodes()), nil},
		{"NODEID", number(numberOf(w)), []string{"NODEID", "PROCID"}},
		{"LOCALID", "0", []string{"LOCALID"}},
		{"TMPDIR", l.tmpDir, []string{"TMPDIR"}},
		{"CHECKPOINT_DIR", checkpointDir(w, l.node), nil},
		{"RESUME_FROM", w.GetResume().GetDir(), nil},
		{"RESUME_STEP", resumeStep(w), nil},
		{"CHECKPOINT_EVERY", nonzero(int64(w.GetCheckpointSignal().GetEvery().AsDuration().Seconds())), nil},
		{"CPUS_PER_TASK", number(max(w.GetCpusPerTask(), 1)), namesIf(asked["CPUS_PER_TASK"] || w.GetCpusPerTask() > 1, "CPUS_PER_TASK")},
		{"CPUS_ON_NODE", number(own.GetCpus()), []string{"CPUS_ON_NODE"}},
		{"MEM_PER_NODE", nonzero(own.GetMemory() / int64(cluster.MiB)), []string{"MEM_PER_NODE"}},
		{"MEM_PER_CPU", nonzero(w.GetMemPerCpu() / int64(cluster.MiB)), []string{"MEM_PER_CPU"}},
		{"MEM_PER_GPU", nonzero(w.GetMemPerGpu() / int64(cluster.MiB)), []string{"MEM_PER_GPU"}},
		{"GPUS_PER_NODE", nonzero(w.GetGpusPerNode()), []string{"GPUS_PER_NODE"}},
		{"GPUS_ON_NODE", nonzero(len(l.gpus)), []string{"GPUS_ON_NODE"}},
	}
	list = append(list, times(w)...)
	list = append(list, whole(w, asked)...)
	list = append(list, devices(l.gpus)...)
	return append(list, array(w)...)
}

// whole returns the variables about all nodes of the job.
func whole(w *greylagv1.WantedTask, asked map[string]bool) []variable {
	names := make([]string, 0, len(w.GetNodes()))
	cpus := make([]int, 0, len(w.GetNodes()))
	tasks := make([]int, 0, len(w.GetNodes()))
	perNode := int(max(w.GetTasksPerNode(), 1))
	gpus := 0
	for _, node := range w.GetNodes() {
		names = append(names, node.GetNode())
		cpus = append(cpus, int(node.GetCpus()))
		tasks = append(tasks, perNode)
		gpus += len(node.GetGpus())
	}
	list := hostlist.Compress(names)
	all := number(perNode * len(names))
	return []variable{
		{"NODELIST", list, []string{"JOB_NODELIST", "NODELIST"}},
		{"NNODES", number(len(names)), []string{"JOB_NUM_NODES", "NNODES"}},
		{"NTASKS", all, namesIf(asked["NTASKS"] || asked["NTASKS_PER_NODE"] || perNode > 1, "NTASKS", "NPROCS")},
		{"NTASKS_PER_NODE", number(perNode), namesIf(asked["NTASKS_PER_NODE"] || perNode > 1, "NTASKS_PER_NODE")},
		{"TASKS_PER_NODE", step.FormatRepeats(tasks), []string{"TASKS_PER_NODE"}},
		{"JOB_CPUS_PER_NODE", step.FormatRepeats(cpus), []string{"JOB_CPUS_PER_NODE"}},
		{"GPUS", nonzero(gpus), []string{"GPUS"}},
	}
}

// namesIf returns Slurm's names of a size that the user gave, and none of another: PyTorch Lightning
// takes SLURM_NTASKS for the request to be started by srun.
func namesIf(given bool, names ...string) []string {
	if !given {
		return nil
	}
	return names
}

// devices returns the variables about GPUs: by UUID for Greylag, by the node's own numbers for
// Slurm.
func devices(gpus []device) []variable {
	uuids, indexes := make([]string, len(gpus)), make([]string, len(gpus))
	for i, gpu := range gpus {
		uuids[i], indexes[i] = gpu.uuid, number(gpu.index)
	}
	return []variable{
		{"JOB_GPUS", strings.Join(uuids, ","), nil},
		{"JOB_GPU_INDEXES", strings.Join(indexes, ","), []string{"JOB_GPUS"}},
	}
}

func times(w *greylagv1.WantedTask) []variable {
	if w.GetStarted() == nil {
		return nil
	}
	start := w.GetStarted().GetSeconds()
	end := int64(0)
	if limit := w.GetTimeLimit().AsDuration(); limit > 0 {
		end = w.GetStarted().AsTime().Add(limit).Unix()
	}
	return []variable{
		{"JOB_START_TIME", nonzero(start), []string{"JOB_START_TIME"}},
		{"JOB_END_TIME", nonzero(end), []string{"JOB_END_TIME"}},
	}
}

func array(w *greylagv1.WantedTask) []variable {
	if w.GetArrayId() == 0 {
		return nil
	}
	return []variable{
		{"ARRAY_JOB_ID", number(w.GetArrayId()), []string{"ARRAY_JOB_ID"}},
		{"ARRAY_TASK_ID", number(w.GetArrayIndex()), []string{"ARRAY_TASK_ID"}},
		{"ARRAY_TASK_COUNT", nonzero(w.GetArraySize()), []string{"ARRAY_TASK_COUNT"}},
		{"ARRAY_TASK_MIN", number(w.GetArrayFirst()), []string{"ARRAY_TASK_MIN"}},
		{"ARRAY_TASK_MAX", number(w.GetArrayLast()), []string{"ARRAY_TASK_MAX"}},
		{"ARRAY_TASK_STEP", number(max(w.GetArrayStep(), 1)), []string{"ARRAY_TASK_STEP"}},
	}
}

// visible returns the value of CUDA_VISIBLE_DEVICES. A task that sees only its own devices numbers
// them from 0; one that sees all devices needs their identities.
func visible(l *launch) string {
	list := make([]string, len(l.gpus))
	for i, gpu := range l.gpus {
		list[i] = gpu.uuid
		if l.pinned {
			list[i] = seenAs(i, gpu.uuid)
		}
	}
	return strings.Join(list, ",")
}

// seenAs returns how CUDA names a GPU of a task that sees only its own: by number, or a MIG instance by UUID,
// since numbers count whole GPUs.
func seenAs[N int | int32](i N, uuid string) string {
	if strings.HasPrefix(uuid, migPrefix) {
		return uuid
	}
	return number(i)
}

// migPrefix begins the UUIDs of MIG instances.
const migPrefix = "MIG-"

func number[N int | int32 | int64 | uint32 | uint64](n N) string {
	if n < 0 {
		return strconv.FormatInt(int64(n), 10)
	}
	return strconv.FormatUint(uint64(n), 10)
}

// nonzero returns "" for 0.
func nonzero[N int | int32 | int64 | uint32 | uint64](n N) string {
	if n == 0 {
		return ""
	}
	return number(n)
}
