package jobscript

import (
	"fmt"
	"slices"
	"strings"

	"github.com/greylag/greylag/pkg/cluster"
)

// finish works out what follows from options together, and refuses those that
// contradict each other.
func (r *resolver) finish(o *Options) {
	for _, term := range o.env {
		_ = o.Export.add(term) // its fault was found where it stood
	}
	o.Export.Names = append(o.Export.Names, o.pyxisEnvs...)
	o.Export.Image = o.Image != ""
	r.finishNodes(o)
	finishNodeList(&o.Request, o.tasks)
	r.finishTasks(o)
	r.finishGPUs(o)
	r.finishTasksPerGPU(o)
	finishSwitches(o)
	r.finishMemory(o)
	r.finishTmp(o)
	r.finishDeadline(o)
	r.finishVariables(o)
	if len(o.Mounts) > 0 && o.Image == "" {
		r.fault(r.mountOption(), "mounts require an image: without one the job already sees the node's file system", "add --image, or remove the mounts")
	}
	r.finishElastic(o)
	r.finishBurst(o)
	r.finishGPUShare(o)
	r.finishRetry(o)
	r.warnUnknownWords(o)
	if o.Wait && o.Hold {
		r.warnings = append(r.warnings, "the job is held: --wait blocks until it is released")
	}
}

// warnUnknownWords warns of %-words in file names that no node replaces: jobs that share such a
// name overwrite each other's file.
func (r *resolver) warnUnknownWords(o *Options) {
	for _, file := range []struct{ option, pattern string }{{"--output", o.Output}, {"--error", o.Error}, {"--input", o.Input}} {
		if unknown := cluster.UnknownWords(file.pattern); len(unknown) > 0 {
			r.warnings = append(r.warnings, fmt.Sprintf("%s: unknown %s stays in the file name; known: %%j %%J %%A %%a %%b %%x %%u %%N %%n %%t %%s %%r, and %%%% for a percent sign", file.option, strings.Join(unknown, " ")))
		}
	}
}

// finishVariables exports the values of options that the request replaces by their result. The node also
// sets Slurm's name of each.
func (r *resolver) finishVariables(o *Options) {
	for i, n := range [len(cluster.AskedVariables)]int32{o.cpusPerGPU, o.gpusPerTask, o.tasksPerGPU} {
		if n > 0 {
			o.Export.Set = append(o.Export.Set, fmt.Sprintf("GREYLAG_%s=%d", cluster.AskedVariables[i], n))
		}
	}
	for i, size := range [len(cluster.AskedSizes)]int32{o.Request.TasksPerNode, o.Request.TasksPerNode, o.Request.CPUsPerTask} {
		name := cluster.AskedSizes[i]
		long := strings.ReplaceAll(strings.ToLower(name), "_", "-")
		if size <= 1 && r.given(long) {
			o.Export.Set = append(o.Export.Set, "GREYLAG_"+name+"=1") // a larger one was certainly given
		}
	}
}

func (r *resolver) fault(option, problem, advice string) {
	f := &Fault{Option: option, Problem: problem, Advice: advice}
	for _, a := range r.asks { // the last place that asked for it
		if "--"+a.row.Long == option {
			f.Where, f.line = a.where, a.line
		}
	}
	r.faults = append(r.faults, f)
}

// finishNodes makes the number of nodes of the GPUs in all and on each, where it is not
// asked for.
func (r *resolver) finishNodes(o *Options) {
	q := &o.Request
	if q.GPUs == 0 {
		return
	}
	if q.GPUsPerNode == 0 {
		if q.MaxNodes > 0 {
			r.fault("--gpus", fmt.Sprintf("%d GPUs in total cannot be spread over a range of nodes", q.GPUs), "use --gpus-per-node, or one number for --nodes")
		}
		return
	}
	nodes := q.GPUs / q.GPUsPerNode
	if q.MaxNodes > 0 && nodes >= q.Nodes && nodes <= q.MaxNodes {
		q.Nodes, q.MaxNodes = nodes, 0
	}
	switch {
	case q.GPUs%q.GPUsPerNode != 0:
		r.fault("--gpus", fmt.Sprintf("%d GPUs in all do not divide into nodes with %d each", q.GPUs, q.GPUsPerNode), "leave out --gpus, or --gpus-per-node")
	case q.Nodes > 0 && q.Nodes != nodes:
		r.fault("--gpus", fmt.Sprintf("%d GPUs in all with %d on each node are not those of --nodes=%d", q.GPUs, q.GPUsPerNode, q.Nodes), fmt.Sprintf("ask for --nodes=%d, or leave out --gpus", nodes))
	default:
		q.Nodes = nodes
	}
}

// finishNodeList requests all nodes of the list that are not excluded, as sbatch does, unless another number
// is asked for, or there are fewer tasks or GPUs.
func finishNodeList(q *cluster.Request, tasks int32) {
	n := int32(0)
	for _, name := range q.NodeList {
		if !slices.Contains(q.Exclude, name) {
			n++
		}
	}
	if q.Nodes == 0 && n > 1 && (tasks == 0 || tasks >= n) && (q.GPUs == 0 || q.GPUs >= n) {
		q.Nodes = n
	}
}

// finishTasks spreads --ntasks over the nodes, with --ntasks-per-node as the most on one of them, as sbatch
// takes both. Each node gets as many, so the job has exactly the tasks that were asked for. Without either
// number the cluster chooses the nodes.
func (r *resolver) finishTasks(o *Options) {
	q := &o.Request
	if o.tasks == 0 {
		return
	}
	most := q.TasksPerNode // 0: as many as it takes
	if q.MaxNodes > 0 {
		q.Nodes, q.MaxNodes = divide(o.tasks, most, q.Nodes, q.MaxNodes), 0
	}
	switch {
	case q.Nodes == 0 && most == 0 && o.tasks > 1:
		q.Tasks = o.tasks
		return
	case q.Nodes == 0:
		q.Nodes = (o.tasks-1)/max(most, 1) + 1
	}
	each := o.tasks / q.Nodes
	switch {
	case each == 0:
		r.fault("--ntasks", fmt.Sprintf("%d tasks cannot be on %d nodes", o.tasks, q.Nodes), fmt.Sprintf("ask for --nodes=%d", o.tasks))
	case most > 0 && int64(most)*int64(q.Nodes) < int64(o.tasks):
		r.fault("--ntasks", fmt.Sprintf("%d tasks do not fit %d nodes with %d each", o.tasks, q.Nodes, most), "leave out --ntasks")
	case o.tasks%q.Nodes != 0:
		r.fault("--ntasks", fmt.Sprintf("%d tasks are not the same number on each of %d nodes", o.tasks, q.Nodes),
			fmt.Sprintf("use --ntasks=%d or --ntasks=%d", each*q.Nodes, int64(each+1)*int64(q.Nodes)))
	default:
		q.TasksPerNode = each
	}
}

// divide returns the smallest number of nodes in a range that share tasks evenly, at most most on each
// unless that is 0; the first number of the range if no number does.
func divide(tasks, most, from, to int32) int32 {
	for n := from; n <= min(to, tasks); n++ {
		if tasks%n == 0 && (most == 0 || tasks/n <= most) {
			return n
		}
	}
	return from
}

// finishGPUs turns GPUs for each task, and CPUs for each GPU, into those of a node.
func (r *resolver) finishGPUs(o *Options) {
	q := &o.Request
	if o.gpusPerTask > 0 && q.Tasks > 0 {
		n := int64(o.gpusPerTask) * int64(q.Tasks)
		if n > 1<<20 || q.GPUsPerNode > 0 || q.GPUs > 0 && n != int64(q.GPUs) {
			r.fault("--gpus-per-task", fmt.Sprintf("--ntasks=%d with --gpus-per-task=%d does not match the other GPU options", q.Tasks, o.gpusPerTask), "omit --gpus, --gpus-per-node and --gres=gpu, or omit --gpus-per-task")
			return
		}
		q.GPUs = int32(n)
	} else if o.gpusPerTask > 0 {
		n := int64(o.gpusPerTask) * int64(max(q.TasksPerNode, 1))
		if n > 1<<16 || q.GPUsPerNode > 0 && n != int64(q.GPUsPerNode) {
			r.fault("--gpus-per-task", fmt.Sprintf("%d tasks per node with %d GPUs each do not add up to %d GPUs", max(q.TasksPerNode, 1), o.gpusPerTask, q.GPUsPerNode), "omit --gpus-per-node, or --gpus-per-task")
			return
		}
		q.GPUsPerNode = int32(n)
	}
	if o.cpusPerGPU == 0 {
		return
	}
	gpus := int64(q.GPUsPerNode)
	if gpus == 0 && q.GPUs > 0 && q.Nodes > 0 {
		gpus = (int64(q.GPUs)-1)/int64(q.Nodes) + 1
	}
	tasks := int64(max(q.TasksPerNode, 1))
	if q.Tasks > 0 && q.GPUs%q.Tasks == 0 {
		gpus, tasks = int64(q.GPUs), int64(q.Tasks)
	}
	cpus := (int64(o.cpusPerGPU)*gpus-1)/tasks + 1
	switch {
	case gpus == 0:
		r.fault("--cpus-per-gpu", "the number of GPUs per node is unknown", "use --gpus-per-node, or --nodes with --gpus")
	case q.CPUsPerTask > 0 && int64(q.CPUsPerTask) != cpus:
		r.fault("--cpus-per-gpu", "conflicts with --cpus-per-task", "omit one of them")
	case cpus > 1<<16:
		r.fault("--cpus-per-gpu", fmt.Sprintf("makes %d CPUs for each task", cpus), "request less")
	default:
		q.CPUsPerTask = int32(cpus)
	}
}

// finishTasksPerGPU makes tasks of GPUs, or GPUs of tasks. Both are per node, so the
// GPUs of a node must be known.
func (r *resolver) finishTasksPerGPU(o *Options) {
	q, per := &o.Request, int64(o.tasksPerGPU)
	if per == 0 {
		return
	}
	gpus := int64(q.GPUsPerNode)
	if q.Nodes == 1 && gpus == 0 {
		gpus = int64(q.GPUs)
	}
	tasks := int64(q.TasksPerNode)
	switch all := int64(q.Tasks); {
	case all > 0 && gpus > 0 && all%(gpus*per) == 0:
		q.Nodes, q.TasksPerNode, q.Tasks = int32(all/(gpus*per)), int32(gpus*per), 0
	case all > 0 && gpus == 0 && all%per == 0 && (q.GPUs == 0 || int64(q.GPUs) == all/per):
		q.GPUs = int32(all / per)
	case all > 0:
		r.fault("--ntasks-per-gpu", fmt.Sprintf("--ntasks=%d with --ntasks-per-gpu=%d does not match the number of GPUs", all, per), "omit --ntasks, or the GPU option")
	case gpus == 0 && q.GPUs > 0:
		r.fault("--ntasks-per-gpu", "the number of GPUs per node is unknown", "use --gpus-per-node instead of --gpus")
	case gpus == 0 && tasks == 0:
		r.fault("--ntasks-per-gpu", "neither GPUs nor tasks are requested", "use --gpus-per-node, or --ntasks")
	case gpus == 0 && tasks%per != 0:
		r.fault("--ntasks-per-gpu", fmt.Sprintf("%d tasks on a node cannot be %d for each GPU", tasks, per), "use --gpus-per-node")
	case gpus == 0:
		q.GPUsPerNode = int32(tasks / per)
	case tasks > 0 && tasks != gpus*per:
		r.fault("--ntasks-per-gpu", fmt.Sprintf("%d GPUs per node with %d tasks each do not add up to %d tasks", gpus, per, tasks), "omit --ntasks and --ntasks-per-node")
	case gpus*per > 1<<16:
		r.fault("--ntasks-per-gpu", fmt.Sprintf("makes %d tasks on a node", gpus*per), "ask for fewer")
	default:
		q.TasksPerNode = int32(gpus * per)
	}
}

// finishSwitches makes one wait of two: the longer. A --switches without a time waits
// as long as --connect does.
func finishSwitches(o *Options) {
	q := &o.Request
	connect, switches := q.Connect != cluster.ConnectAny, q.Switches > 0
	switch {
	case connect && switches && (o.connectWait == cluster.SwitchAlways || o.switchWait == cluster.SwitchAlways):
		q.SwitchWait = cluster.SwitchAlways
	case connect && switches:
		q.SwitchWait = max(o.connectWait, o.switchWait)
	case connect:
		q.SwitchWait = o.connectWait
	case switches:
		q.SwitchWait = o.switchWait
	}
}

func (r *resolver) finishMemory(o *Options) {
	q, asked := o.Request, 0
	for _, n := range []int64{int64(q.MemPerNode), int64(q.MemPerCPU), int64(q.MemPerGPU)} {
		if n > 0 {
			asked++
		}
	}
	switch {
	case asked > 1:
		r.fault("--mem", "--mem, --mem-per-cpu and --mem-per-gpu are mutually exclusive", "omit the others")
	case asked == 0 && o.memZero:
		o.Request.MemFrom = cluster.MemoryAll
	}
}

// finishTmp adds the scratch space to the generic resources.
func (r *resolver) finishTmp(o *Options) {
	if o.tmp == 0 {
		return
	}
	tmp, q := cluster.Gres{Name: cluster.GresTmp, Count: o.tmp}, &o.Request
	if slices.ContainsFunc(q.Gres, func(g cluster.Gres) bool { return g.Name == tmp.Name }) {
		r.fault("--tmp", "conflicts with "+tmp.Name+" in --gres", "omit one of them")
		return
	}
	q.Gres = append(slices.Clone(q.Gres), tmp)
	cluster.SortGres(q.Gres)
	if why := cluster.GresFault(q.Gres); why != "" {
		r.fault("--tmp", why, "request fewer other resources with --gres")
	}
}

// finishDeadline refuses a deadline before which the job cannot end even if it
// starts as soon as it may.
func (r *resolver) finishDeadline(o *Options) {
	start := r.now
	if o.Begin.After(start) {
		start = o.Begin
	}
	if !o.Deadline.After(r.now) { // none, or refused where it stands
		return
	}
	switch {
	case !o.Deadline.After(start):
		r.fault("--deadline", "it is before the earliest start of the job", "give a later --deadline")
	case o.TimeLimit != nil && *o.TimeLimit > 0 && o.Deadline.Before(start.Add(*o.TimeLimit)):
		r.fault("--deadline", fmt.Sprintf("a job of %s cannot end by then", cluster.FormatLimit(*o.TimeLimit)), "request less with --time, or a later --deadline")
	}
}
