package grun

import (
	"slices"

	"github.com/greylag/greylag/internal/jobscript"
	"github.com/greylag/greylag/internal/jobscript/getopt"
)

const usageText = ` [OPTIONS] PROGRAM [ARGUMENT...]

Runs a program on the nodes of a job: one process per task. Output, input and
signals pass between the tasks and this command. Its exit status is the highest
of a task, or 128 + the number of the signal that ended one.

Outside a job it submits a job, waits for its start, runs the program there, and
ends the job with the program. The options of gsubmit then describe the job.
`

// The groups of options in the help.
const (
	sizeGroup   = "Tasks and nodes"
	gpuGroup    = "GPUs and CPUs"
	streamGroup = "Input and output"
	endGroup    = "End of the step"
	otherGroup  = "Other options"
	jobGroup    = "New job (outside of jobs)"
)

// options returns the options of a step and, for a new job, those of gsubmit or sbatch.
func (p command) options() []getopt.Option {
	list := stepOptions()
	table := jobscript.Table()
	if p.slurm {
		table = nil
		for _, o := range jobscript.SbatchOptions() {
			table = append(table, o.Option)
		}
	}
	for _, o := range table {
		if !jobOption(o.Long) || getopt.Lookup(list, o.Long) != nil {
			continue
		}
		if slices.ContainsFunc(list, func(other getopt.Option) bool { return other.Short == o.Short }) {
			o.Short = 0
		}
		o.Aliases = slices.DeleteFunc(slices.Clone(o.Aliases), func(name string) bool { return getopt.Lookup(list, name) != nil })
		o.Group = jobGroup
		list = append(list, o)
	}
	return list
}

// batchOptions lists options of batch jobs that do not apply to grun.
var batchOptions = []string{
	"array", "wrap", "hold", "parsable", "json", "quote", "wait", "every-node", "env", "requeue", "no-requeue", "checkpoint", "checkpoint-signal", "checkpoint-every", "requeue-at-limit", "elastic", "resize-signal", "restart", "retry", "retry-on", "signal", "get-user-env",
	"open-mode", "clusters", "help", "usage", "version", "quiet", "verbose", "test-only", "ignore-pbs", "batch", "export-file",
}

// jobOption reports whether an option describes a job, not a step.
func jobOption(long string) bool {
	return long == "job-name" || !slices.Contains(batchOptions, long) && getopt.Lookup(stepOptions(), long) == nil
}

func stepOptions() []getopt.Option {
	list := []getopt.Option{
		{Long: "ntasks", Short: 'n', Value: "N", Group: sizeGroup, Help: "number of tasks (default: that of the job, else one on each node)"},
		{Long: "nodes", Short: 'N', Value: "N[-M]", Group: sizeGroup, Help: "number of nodes (default: all of the job)"},
		{Long: "ntasks-per-node", Aliases: []string{"tasks-per-node"}, Value: "N", Group: sizeGroup, Help: "tasks on each node"},
		{Long: "nodelist", Short: 'w', Value: "NODES", Group: sizeGroup, Help: "only these nodes of the job, such as n[1-3]"},
		{Long: "exclude", Short: 'x', Value: "NODES", Group: sizeGroup, Help: "none of these nodes"},
		{Long: "relative", Short: 'r', Value: "N", Group: sizeGroup, Help: "begin at this node of the job, counted from 0"},
		{Long: "distribution", Short: 'm', Value: "block", Group: sizeGroup, Help: "ranks fill node after node; no other distribution is supported"},
		{Long: "multi-prog", Group: sizeGroup, Help: "PROGRAM is a file with lines \"RANKS PROGRAM ARGUMENT...\"; RANKS is 0, 1-3,7 or *; %t is the rank, %o its position in RANKS"},

		{Long: "cpus-per-task", Short: 'c', Value: "N", Group: gpuGroup, Help: "CPUs of each task, for programs that read it; steps share the CPUs of their job"},
		{Long: "gpus", Short: 'G', Value: "N", Group: gpuGroup, Help: "GPUs of the step in all (default: all of the job)"},
		{Long: "gpus-per-node", Value: "N", Group: gpuGroup, Help: "GPUs of the step on each node"},
		{Long: "gpus-per-task", Value: "N", Group: gpuGroup, Help: "GPUs of each task; no other step with this option or --exact uses them"},
		{Long: "gres", Value: "NAME[:TYPE][:N],...", Group: gpuGroup, Help: "GPUs per node (gpu:N), or none; steps share all other resources of the job"},
		{Long: "gpu-bind", Value: "WAY", Group: gpuGroup, Help: "GPUs that each task sees: none or closest (all), single:N (one for N tasks), per_task:N, map:LIST or mask:LIST"},
		{Long: "cpu-bind", Value: "WAY", Group: gpuGroup, Help: "CPUs that each task may use: map_cpu:LIST or mask_cpu:LIST; other ways have no effect"},
		{Long: "exact", Aliases: []string{"exclusive"}, Value: "user", Absent: "yes", Group: gpuGroup, Help: "no other step with this option uses the step's GPUs: wait for them"},
		{Long: "overlap", Group: gpuGroup, Help: "share the GPUs with all other steps"},
		{Long: "immediate", Short: 'I', Value: "SECONDS", Absent: "0", Group: gpuGroup, Help: "fail if GPUs are in use, instead of waiting"},

		{Long: "output", Short: 'o', Value: "WHERE", Group: streamGroup, Help: "all (default), none, a rank or a file: with %t, %n or %N one for each task or node"},
		{Long: "error", Short: 'e', Value: "WHERE", Group: streamGroup, Help: "the same for standard error (default: as --output)"},
		{Long: "input", Short: 'i', Value: "WHERE", Group: streamGroup, Help: "all (default): every task reads the whole input; none, a rank or a file"},
		{Long: "open-mode", Value: "append|truncate", Group: streamGroup, Help: "what happens to existing output files (default truncate)"},
		{Long: "label", Short: 'l', Group: streamGroup, Help: "begin each line with the task's rank"},
		{Long: "unbuffered", Short: 'u', Group: streamGroup, Help: "write output at once, not line by line"},
		{Long: "pty", Value: "0", Absent: "0", Group: streamGroup, Help: "run task 0 in a terminal; the others have no input or output"},
		{Long: "detach-keys", Value: "KEYS", Group: streamGroup, Help: "with --pty: keys that detach from the step, such as ctrl-p,ctrl-q or none (default ctrl-\\,d); also GRUN_DETACH_KEYS; gctl attach reattaches"},
		{Long: "detach-on-hangup", Group: streamGroup, Help: "with --pty: detach instead of ending the step if the terminal closes or this host fails; also GRUN_DETACH_ON_HANGUP=1"},

		{Long: "kill-on-bad-exit", Short: 'K', Value: "0|1", Absent: "1", Group: endGroup, Help: "end the step when a task fails"},
		{Long: "wait", Short: 'W', Value: "SECONDS", Group: endGroup, Help: "end the step this long after the first task ended (default 0: never)"},
		{Long: "no-kill", Short: 'k', Value: "off", Absent: "on", Group: endGroup, Help: "continue when a node is lost"},
		{Long: "time", Short: 't', Value: "TIME", Group: endGroup, Help: "end the step after this time, such as 90 (minutes) or 1:30:00"},
		{Long: "quit-on-interrupt", Group: endGroup, Help: "end the step at the first Ctrl-C [two Ctrl-C within a second]"},

		{Long: "chdir", Short: 'D', Value: "DIRECTORY", Group: otherGroup, Help: "working directory of the tasks (default: this one)"},
		{Long: "export", Value: "LIST", Group: otherGroup, Help: "variables of the tasks: ALL (default), NONE or names and NAME=VALUE"},
		{Long: "job-name", Short: 'J', Value: "NAME", Group: otherGroup, Help: "name of the step (default: the program's)"},
		{Long: "jobid", Value: "JOB", Group: otherGroup, Help: "a running job of yours [the one that this command runs in]"},
		{Long: "mpi", Value: "KIND", Group: otherGroup, Help: "start MPI programs by pmi2 (default, for MPICH) or none; list: print the kinds"},
		{Long: "test-only", Group: otherGroup, Help: "check the options, and run nothing"},
		{Long: "help", Short: 'h', Group: otherGroup, Help: "print this"},
		{Long: "version", Short: 'V', Group: otherGroup, Help: "print the version"},
	}
	// Accepted because scripts use them: they ask for what every step does.
	for _, name := range []string{"hint", "msg-timeout", "slurmd-debug", "treewidth"} {
		list = append(list, getopt.Option{Long: name, Value: "X"})
	}
	list = append(list, refusedOptions()...)
	list = append(list, getopt.Option{Long: DisableStatus, Short: 'X'}, getopt.Option{Long: "threads", Short: 'T', Value: "N"},
		getopt.Option{Long: "compress", Value: "TYPE", Absent: "lz4"}, getopt.Option{Long: "send-libs", Value: "yes|no", Absent: "yes"},
		getopt.Option{Long: "interactive"})
	return append(list, getopt.Option{Long: "oversubscribe", Short: 's'}, getopt.Option{Long: "external-launcher"},
		getopt.Option{Long: "hold-allocation"}, getopt.Option{Long: "send-at-once"},
		getopt.Option{Long: "quiet", Short: 'Q'}, getopt.Option{Long: "verbose", Short: 'v'}, getopt.Option{Long: "het-group", Value: "X"})
}

// DisableStatus is the option of srun that Ctrl-C reaches the tasks at once; NoDisableStatus is the
// warning about it.
const (
	DisableStatus   = "disable-status"
	NoDisableStatus = "one Ctrl-C prints the state of the tasks; two within a second end the step, one with --quit-on-interrupt"
)

// refusedOptions lists the options of srun that are refused.
func refusedOptions() []getopt.Option {
	return []getopt.Option{
		{Long: "async"}, {Long: "bcast", Value: "PATH", Absent: "yes"}, {Long: "epilog", Value: "PROGRAM"}, {Long: "no-allocate", Short: 'Z'},
		{Long: "preserve-env", Short: 'E'}, {Long: "prolog", Value: "PROGRAM"}, {Long: "task-epilog", Value: "PROGRAM"},
		{Long: "task-prolog", Value: "PROGRAM"}, {Long: "x11", Value: "WHERE", Absent: "all"},
	}
}

// Refusals returns what to do instead of each refused option.
func Refusals() map[string]string {
	const inScript, starter = "run it in the script", "start the program from a script"
	return map[string]string{
		"async": "append & to the command", "bcast": "put the program into a shared directory", "no-allocate": "omit it",
		"prolog": inScript, "epilog": inScript, "task-prolog": starter, "task-epilog": starter,
		"preserve-env": "tasks get the values of their step: export those of the job under other names", "x11": jobscript.NoX11,
	}
}

// statusHelp lists the exit statuses.
const statusHelp = `
Exit status:
  N         the highest of the tasks; 128 + N if signal N ended one
  253       the job ran out of memory
  2, 13     the program does not exist on a node, or is not executable
  1         the step was refused, or lost a node
  130       interrupted
`
