// Package gslurm is Slurm's commands: one program that acts by the name by which it is called.
//
// It decides from the name alone which program runs. Each has its own package below; package slurmcmd
// is what they share.
package gslurm

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/greylag/greylag/internal/cli/gslurm/priority"
	"github.com/greylag/greylag/internal/cli/gslurm/sacct"
	"github.com/greylag/greylag/internal/cli/gslurm/sacctmgr"
	"github.com/greylag/greylag/internal/cli/gslurm/sbatch"
	"github.com/greylag/greylag/internal/cli/gslurm/scancel"
	"github.com/greylag/greylag/internal/cli/gslurm/scontrol"
	"github.com/greylag/greylag/internal/cli/gslurm/sdiag"
	"github.com/greylag/greylag/internal/cli/gslurm/sinfo"
	"github.com/greylag/greylag/internal/cli/gslurm/slurmcmd"
	"github.com/greylag/greylag/internal/cli/gslurm/squeue"
	"github.com/greylag/greylag/internal/cli/gslurm/srun"
	"github.com/greylag/greylag/internal/cli/gslurm/usage"
	"github.com/greylag/greylag/internal/cli/ui"
)

// name is one row of the table of names.
type name struct {
	program func() slurmcmd.Program
	run     func(context.Context, *ui.Process) int
}

func names() map[string]name {
	all := map[string]name{
		"sacct":    {sacct.Program, sacct.Run},
		"sacctmgr": {sacctmgr.Program, sacctmgr.Run},
		"sdiag":    {sdiag.Program, sdiag.Run},
		"seff":     {usage.SeffProgram, usage.RunSeff},
		"sprio":    {priority.SprioProgram, priority.RunSprio},
		"sshare":   {priority.SshareProgram, priority.RunSshare},
		"sstat":    {usage.SstatProgram, usage.RunSstat},
		"sbatch":   {sbatch.Program, sbatch.Run},
		"scontrol": {scontrol.Program, scontrol.Run},
		"sinfo":    {sinfo.Program, sinfo.Run},
		"srun":     {srun.Program, srun.Run},
		"salloc":   {srun.SallocProgram, srun.RunSalloc},
		"sattach":  {srun.SattachProgram, srun.RunSattach},
		"squeue":   {squeue.Program, squeue.Run},
		"scancel":  {scancel.Program, scancel.Run},
	}
	for _, p := range refusing() {
		all[p.Name] = name{func() slurmcmd.Program { return p }, refuse(p)}
	}
	return all
}

// PassesSignals reports whether the program of a command line forwards signals instead of ending on them.
// The first word is its own name.
func PassesSignals(words []string) bool {
	interactive := []string{"srun", "salloc", "sattach"}
	return slices.Contains(interactive, filepath.Base(words[0])) || len(words) > 1 && slices.Contains(interactive, words[1])
}

// Programs describes all programs, in the order of their names.
func Programs() []slurmcmd.Program {
	var all []slurmcmd.Program
	for _, n := range names() {
		all = append(all, n.program())
	}
	slices.SortFunc(all, func(a, b slurmcmd.Program) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Run runs the program of the name by which this one was called, or that its first argument names.
func Run(ctx context.Context, p *ui.Process) int {
	known := names()
	called := filepath.Base(p.Program)
	if _, ok := known[called]; !ok && len(p.Args) > 0 {
		called, p.Args = p.Args[0], p.Args[1:]
	}
	p.Program = called
	if n, ok := known[called]; ok {
		return n.run(ctx, p)
	}
	var list []string
	for name := range known {
		list = append(list, name)
	}
	slices.Sort(list)
	fmt.Fprintf(p.Stderr, "gslurm: error: call it as one of %s, or write gslurm NAME ARGUMENTS\n", strings.Join(list, " "))
	return 1
}

// refusing are the programs that only say what to use instead.
func refusing() []slurmcmd.Program {
	return []slurmcmd.Program{
		{Name: "sreport", Usage: "", Summary: "sreport is not supported; gctl report prints usage by accounts, users, QOS and wckeys: docs/reports.md"},
		{Name: "sview", Usage: "", Summary: "sview is not supported; gctl top shows jobs and nodes in the terminal, docs/monitoring.md has graphs"},
		{Name: "smap", Usage: "", Summary: "smap is not supported; gctl top shows jobs and nodes, sinfo lists nodes"},
		{Name: "sbcast", Usage: "SOURCE DESTINATION", Summary: "sbcast is not supported; put files into a directory that the nodes share, or copy them with srun cp"},
		{Name: "strigger", Usage: "", Summary: "strigger is not supported; alerts of the monitoring report such events: docs/monitoring.md"},
		{Name: "scrontab", Usage: "", Summary: "scrontab is not supported; gctl cron submits recurring jobs"},
	}
}

// refuse runs a program that only prints its version and its sentence.
func refuse(p slurmcmd.Program) func(context.Context, *ui.Process) int {
	return func(ctx context.Context, process *ui.Process) int {
		c := slurmcmd.New(process, p)
		if slices.Contains(c.Args, "--version") || slices.Contains(c.Args, "-V") {
			return c.Finish(ctx, c.PrintVersion())
		}
		return c.Finish(ctx, &ui.UsageError{Problem: p.Summary})
	}
}
