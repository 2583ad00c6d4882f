package srun

import (
	"context"

	"github.com/greylag/greylag/internal/cli/gctl/interactive"
	"github.com/greylag/greylag/internal/cli/grun"
	"github.com/greylag/greylag/internal/cli/gslurm/slurmcmd"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/jobscript/getopt"
)

// SattachProgram returns the description of sattach.
func SattachProgram() slurmcmd.Program {
	p := slurmcmd.Program{
		Name: "sattach", Usage: "JOB.STEP", Summary: "Takes the terminal of a running step; Ctrl-\\ d leaves it.",
		Notes: []string{
			"Only steps with a terminal can be attached: those of `srun --pty`, and the shell of salloc. `gctl logs -f JOB` follows the output of others.",
			"One program at a time has the terminal; in Slurm several share it.",
		},
		Options: []slurmcmd.Option{
			{Option: getopt.Option{Long: "pty", Help: "accepted"}, Effect: slurmcmd.Nothing, Note: "sattach always uses the terminal"},
			{Option: getopt.Option{Long: "quiet", Short: 'Q', Help: "accepted"}, Effect: slurmcmd.Nothing, Note: "it prints one line"},
			{Option: getopt.Option{Long: "verbose", Short: 'v', Help: "accepted"}, Effect: slurmcmd.Nothing, Note: "there is nothing more to print"},
		},
	}
	for _, o := range []getopt.Option{
		{Long: "error-filter", Value: "RANK"}, {Long: "input-filter", Value: "RANK"}, {Long: "output-filter", Value: "RANK"},
		{Long: "label", Short: 'l'}, {Long: "layout"},
	} {
		note := "task 0 has the terminal"
		if o.Long == "layout" {
			note = "`scontrol show step JOB.STEP` shows the nodes and tasks"
		}
		p.Options = append(p.Options, slurmcmd.Option{Option: o, Effect: slurmcmd.Refused, Note: note})
	}
	return p
}

// RunSattach runs sattach and returns its exit status.
func RunSattach(ctx context.Context, p *ui.Process) int {
	c := slurmcmd.New(p, SattachProgram())
	_, words, done, err := c.Parse()
	switch {
	case err != nil || done:
		return c.Finish(ctx, err)
	case len(words) != 1:
		return c.Finish(ctx, &ui.UsageError{Problem: "sattach takes one step", Advice: "write sattach JOB.STEP"})
	}
	status, err := interactive.Attach(ctx, c.Process, words[0], grun.Attachment{})
	if err != nil {
		return c.Finish(ctx, err)
	}
	return status
}
