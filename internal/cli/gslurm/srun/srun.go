// Package srun implements srun, salloc and sattach: grun, gctl alloc and gctl attach with Slurm's options, messages and exit
// statuses.
package srun

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/greylag/greylag/internal/cli/alloc"
	"github.com/greylag/greylag/internal/cli/gctl/interactive"
	"github.com/greylag/greylag/internal/cli/grun"
	"github.com/greylag/greylag/internal/cli/gslurm/sbatch"
	"github.com/greylag/greylag/internal/cli/gslurm/slurmcmd"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/jobscript"
)

// Program returns the description of srun.
func Program() slurmcmd.Program {
	p := slurmcmd.Program{
		Name: "srun", Usage: "[OPTIONS] PROGRAM [ARGUMENTS]", Summary: "Runs a program on the nodes of a job; outside a job it first submits a job.",
		Notes: []string{
			"Steps share the CPUs and the memory of their job, and may have more tasks than CPUs unless `--exact` or `--cpus-per-task` is given. A step has GPUs for itself with `--exact` or `--gpus-per-task` only.",
			"Tasks see their GPUs through `CUDA_VISIBLE_DEVICES`; the job's other GPUs stay accessible.",
			"MPICH programs start through PMI-1 or PMI-2; start Open MPI programs with `mpirun` in the job.",
			"`SLURM_TASK_PID` is not set. Use `$$` in a shell, and `getpid()` in a program.",
			"Programs joined by `:` are refused: jobs are not heterogeneous.",
		},
	}
	known := map[string]jobscript.SbatchOption{}
	for _, o := range jobscript.SbatchOptions() {
		known[o.Long] = o
	}
	for _, o := range grun.SrunOptions() {
		row := slurmcmd.Option{Option: o}
		job, ofJob := known[o.Long]
		note, differs := differences[o.Long]
		switch {
		case slices.Contains([]string{"hold-allocation", "send-at-once", "help", "version"}, o.Long):
			continue
		case strings.HasPrefix(o.Long, "detach-"):
			row.Effect, row.Note = slurmcmd.Added, o.Help
		case differs:
			row.Effect, row.Note = slurmcmd.Differs, note
		case grun.Refusals()[o.Long] != "":
			row.Effect, row.Note = slurmcmd.Refused, grun.Refusals()[o.Long]
		case o.Long == grun.DisableStatus:
			row.Effect, row.Note = slurmcmd.Warned, grun.NoDisableStatus
		case accepted[o.Long] != "":
			row.Effect, row.Note = slurmcmd.Nothing, accepted[o.Long]
		case ofJob:
			row = sbatch.Row(job)
		}
		p.Options = append(p.Options, row)
	}
	slices.SortFunc(p.Options, func(a, b slurmcmd.Option) int { return strings.Compare(a.Long, b.Long) })
	return p
}

// differences lists the options that differ from Slurm's, with the difference.
var differences = map[string]string{
	"cpu-bind":         "`map_cpu` and `mask_cpu` only; other values change nothing",
	"distribution":     "`block` only",
	"exact":            "for GPUs; CPUs and memory are shared",
	"gres":             "steps share the generic resources of their job, without counting them",
	"het-group":        "refused: jobs are not heterogeneous",
	"kill-on-bad-exit": "off by default, as in Slurm without a configuration",
	"mpi":              "`pmi2` (also PMI-1) and `none`",
	"pty":              "task 0 only",
	"time":             "inside a job it limits the step",
	"immediate":        "fails at once; the seconds are ignored",
}

// accepted lists the options without effect, with the reason.
var accepted = map[string]string{
	"external-launcher": "steps share the job's resources; it acts as `--overlap`",
	"hint":              "tasks are not bound to CPUs",
	"oversubscribe":     "steps share the job's CPUs",
	"interactive":       "it acts as `--overlap`",
	"threads":           "the nodes start a step in parallel",
	"compress":          "programs are not copied to the nodes",
	"send-libs":         "programs are not copied to the nodes",
	"msg-timeout":       "time limits of messages are fixed",
	"slurmd-debug":      "`gnoded.toml` sets the log level of nodes",
	"treewidth":         "the nodes connect to srun directly",
	"verbose":           "there is nothing more to print",
}

// Run runs srun and returns its exit status.
func Run(ctx context.Context, p *ui.Process) int {
	c := slurmcmd.New(p, Program())
	for _, word := range p.Args {
		if !strings.HasPrefix(word, "-") {
			break
		}
		if word == "--version" || word == "-V" {
			return c.Finish(ctx, c.PrintVersion())
		}
	}
	status, err := grun.Srun(ctx, p)
	if err != nil {
		return c.Finish(ctx, err)
	}
	return status
}

// SallocProgram returns the description of salloc.
func SallocProgram() slurmcmd.Program {
	p := slurmcmd.Program{
		Name: "salloc", Usage: "[OPTIONS] [COMMAND [ARGUMENTS]]", Summary: "Allocates nodes, and runs a command on this host until it ends.",
		Notes: []string{
			"Without a command the user's shell runs on the first node, as with `LaunchParameters=use_interactive_step`, with the variables of salloc. It is step `N.interactive`, and other steps are numbered from 0.",
			"The job ends with salloc, also if the host of salloc fails. If the user detaches the shell, the job ends with the shell.",
		},
	}
	for _, o := range jobscript.SallocOptions() {
		switch o.Long {
		case "array", "wrap", "parsable", "output", "error", "input", "open-mode", "wait", "requeue", "no-requeue", "export", "export-file",
			"get-user-env", "every-node", "env", "test-only", "help", "usage", "version", "ignore-pbs":
			continue
		}
		p.Options = append(p.Options, sbatch.Row(o))
	}
	return p
}

// RunSalloc runs salloc and returns its exit status.
func RunSalloc(ctx context.Context, p *ui.Process) int {
	c := slurmcmd.New(p, SallocProgram())
	return c.Finish(ctx, salloc(ctx, c))
}

func salloc(ctx context.Context, c *slurmcmd.Command) error {
	line, err := jobscript.SallocLine(c.Args)
	switch {
	case err != nil:
		return err
	case line.Has("help"), line.Has("usage"):
		return c.PrintHelp()
	case line.Has("version"):
		return c.PrintVersion()
	}
	operands := line.Operands
	say := func(formats ...string) func(uint64) {
		return func(job uint64) {
			for _, format := range formats {
				if !line.Has("quiet") {
					fmt.Fprintf(c.Stderr, "salloc: "+format+"\n", job)
				}
			}
		}
	}
	return interactive.Allocate(ctx, c.Process, alloc.Request{
		Line: line, Environ: alloc.SlurmVariables("SALLOC_", c.Environ), Name: "interactive", Command: strings.Join(append([]string{"salloc"}, operands...), " "),
		Pending:  say("Pending job allocation %d", "job %d queued and waiting for resources"),
		Granted:  say("Granted job allocation %d"),
		Released: say("Relinquishing job allocation %d"),
	}, operands)
}
