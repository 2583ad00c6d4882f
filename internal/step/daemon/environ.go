package daemon

import (
	"slices"
	"strconv"
	"strings"

	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/step"
)

// The variables that a task gets from the job's task on its node, not from grun, which runs on
// another one; the first with the prefixes GREYLAG_ and SLURM_.
var (
	nodeFacts = []string{"NODENAME", "CPUS_ON_NODE", "MEM_PER_NODE", "GPUS_ON_NODE", "JOB_GPU_INDEXES", "JOB_GPUS"}
	nodeNames = []string{nodeSocket, "SLURMD_NODENAME", "TMPDIR", "CUDA_DEVICE_ORDER"}
	// loginNames are all that a clean environment has.
	loginNames = []string{"HOME", "USER", "LOGNAME", "SHELL", "PATH"}
	// imageNames name directories of the host of grun, which an image has under other names.
	imageNames = []string{"PATH", "LD_LIBRARY_PATH", "LD_PRELOAD"}
)

// nodeSocket is the variable with the socket of the node's daemon: config.SocketEnv.
const nodeSocket = "GREYLAG_SOCKET"

// environment is a list of variables in which the last value of a name counts.
type environment struct {
	list  []string
	index map[string]int
}

func newEnvironment(list []string) *environment {
	e := &environment{index: map[string]int{}}
	for _, entry := range list {
		if name, value, ok := strings.Cut(entry, "="); ok && name != "" {
			e.set(name, value)
		}
	}
	return e
}

func (e *environment) get(name string) (string, bool) {
	i, ok := e.index[name]
	if !ok {
		return "", false
	}
	return e.list[i][len(name)+1:], true
}

func (e *environment) set(name, value string) {
	i, ok := e.index[name]
	if !ok {
		i = len(e.list)
		e.list, e.index[name] = append(e.list, ""), i
	}
	e.list[i] = name + "=" + value
}

func (e *environment) unset(name string) {
	if i, ok := e.index[name]; ok {
		e.list[i] = ""
		delete(e.index, name)
	}
}

// replaceJob replaces the job's variables with those of own.
func (e *environment) replaceJob(own *environment) {
	job := func(name string) bool {
		return strings.HasPrefix(name, "GREYLAG_") || strings.HasPrefix(name, "SLURM_")
	}
	for _, entry := range slices.Clone(e.list) {
		if name, _, _ := strings.Cut(entry, "="); job(name) {
			e.unset(name)
		}
	}
	for _, entry := range own.list {
		if name, value, _ := strings.Cut(entry, "="); job(name) {
			e.set(name, value)
		}
	}
}

// replace takes the value of another environment, or none.
func (e *environment) replace(name string, from *environment) {
	if value, ok := from.get(name); ok {
		e.set(name, value)
	} else {
		e.unset(name)
	}
}

// both sets a variable of ours and Slurm's; with "" it removes both.
func (e *environment) both(name, value string) {
	for _, prefix := range []string{"GREYLAG_", "SLURM_"} {
		if value == "" {
			e.unset(prefix + name)
		} else {
			e.set(prefix+name, value)
		}
	}
}

// environ returns the environment of a task.
func (d *daemon) environ(local int) []string {
	p, own := &d.program, newEnvironment(d.Order.Env)
	e := newEnvironment(p.Env)
	if p.Outside {
		e.replaceJob(own)
	}
	for _, name := range imageNames {
		if p.Outside && d.Order.Image {
			e.replace(name, own)
		}
	}
	for _, name := range loginNames {
		if _, set := e.get(name); p.Clean && !set {
			e.replace(name, own)
		}
	}
	for _, name := range nodeNames {
		e.replace(name, own)
	}
	for _, name := range nodeFacts {
		e.replace("GREYLAG_"+name, own)
		e.replace("SLURM_"+name, own)
	}
	if tmp, ok := own.get("GREYLAG_TMPDIR"); ok {
		e.both("TMPDIR", tmp)
	}
	// The job's nodes, where NNODES and NODELIST are those of the step.
	nodes, _ := own.get("GREYLAG_NODELIST")
	count, _ := own.get("GREYLAG_NNODES")
	e.both("JOB_NODELIST", nodes)
	e.both("JOB_NUM_NODES", count)
	d.setSizes(e)
	d.setPlace(e, local)
	d.setGPUs(e, local)
	return slices.DeleteFunc(e.list, func(entry string) bool { return entry == "" })
}

// setSizes sets what all tasks of the step have in common.
func (d *daemon) setSizes(e *environment) {
	p := &d.program
	var names []string
	var tasks []int
	for _, n := range d.Order.Nodes {
		names, tasks = append(names, n.Name), append(tasks, n.Tasks)
	}
	list, perNode := hostlist.Compress(names), step.FormatRepeats(tasks)
	nodes, size, id := strconv.Itoa(len(names)), strconv.Itoa(d.size), strconv.FormatUint(uint64(d.Order.Step), 10)
	for _, v := range [][2]string{
		{"STEP_ID", id}, {"STEPID", id}, {"STEP_NODELIST", list}, {"NODELIST", list},
		{"STEP_NUM_NODES", nodes}, {"NNODES", nodes}, {"STEP_NUM_TASKS", size}, {"NTASKS", size}, {"NPROCS", size},
		{"STEP_TASKS_PER_NODE", perNode}, {"TASKS_PER_NODE", perNode}, {"NTASKS_PER_NODE", positive(p.TasksPerNode)},
		{"LAUNCH_NODE_IPADDR", p.LaunchAddress}, {"MPI_TYPE", p.MPI}, {"DISTRIBUTION", "block"},
	} {
		e.both(v[0], v[1])
	}
	for _, name := range []string{"PMI_FD", "PMI_RANK", "PMI_SIZE", "PMI_JOBID"} { // of an enclosing step
		e.unset(name)
	}
	if p.CPUsPerTask > 0 {
		e.both("CPUS_PER_TASK", strconv.Itoa(p.CPUsPerTask))
	}
	if p.JobName != "" {
		e.both("JOB_NAME", p.JobName)
	}
}

func positive(n int) string {
	if n <= 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// setPlace sets a task's rank and position.
func (d *daemon) setPlace(e *environment, local int) {
	ranks := make([]string, d.node.Tasks)
	for i := range ranks {
		ranks[i] = strconv.Itoa(d.first + i)
	}
	e.both("PROCID", strconv.Itoa(d.first+local))
	e.both("LOCALID", strconv.Itoa(local))
	e.both("NODEID", strconv.Itoa(d.Order.Node))
	e.both("GTIDS", strings.Join(ranks, ","))
}

// setGPUs sets which GPUs a task sees. They are named, not hidden: peers on a node need access to
// each other's memory.
func (d *daemon) setGPUs(e *environment, local int) {
	indexes := make([]string, len(d.node.GPUIndexes))
	for i, n := range d.node.GPUIndexes {
		indexes[i] = strconv.Itoa(int(n))
	}
	e.both("STEP_GPUS", strings.Join(indexes, ","))
	e.unset("SLURM_JOB_GPUS")
	e.both("GPUS_ON_NODE", positive(len(d.node.GPUs)))
	var seen []string
	for _, i := range boundGPUs(d.program.GPUs, len(d.node.GPUs), local) {
		seen = append(seen, d.node.GPUs[i])
	}
	e.set("CUDA_VISIBLE_DEVICES", strings.Join(seen, ","))
}

// boundGPUs returns the positions, among n GPUs of the step on a node, of those that a task sees.
func boundGPUs(b step.GPUBinding, n, local int) []int {
	var list []int
	for i := range n {
		bound := true
		switch {
		case b.PerTask > 0:
			bound = i/b.PerTask == local
		case b.Single > 0:
			bound = i == local/b.Single%n
		case len(b.Map) > 0:
			bound = i == b.Map[local%len(b.Map)]
		case len(b.Mask) > 0:
			bound = i < 64 && b.Mask[local%len(b.Mask)]>>i&1 == 1
		}
		if bound {
			list = append(list, i)
		}
	}
	return list
}
