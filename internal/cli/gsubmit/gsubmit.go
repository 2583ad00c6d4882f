// Package gsubmit submits a batch script: the full gsubmit, with every option.
//
// It has an option parser of our own, not cobra: scripts start it thousands of times.
package gsubmit

import (
	"context"
	"fmt"
	"io"
	"os"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/jobspec"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/jobscript"
	"github.com/greylag/greylag/internal/jobscript/getopt"
)

const usageText = `usage: gsubmit [OPTIONS] SCRIPT [ARGUMENTS]
       gsubmit [OPTIONS] --wrap COMMAND
       gsubmit [OPTIONS] -            (the script comes from standard input)

Submits a batch script. When the command returns, a quorum of controllers has
stored the job. Options can also be set in the script, in lines that begin
with #GSUB (or #SBATCH) before the first command, and in the environment:
GSUB_TIME is --time. The command line overrides the environment, which
overrides the script.
`

// command is one run of gsubmit.
type command struct{ *ui.Process }

// Run runs gsubmit and returns its exit status.
func Run(ctx context.Context, p *ui.Process) int { return p.Finish(ctx, command{p}.run(ctx)) }

func (p command) run(ctx context.Context) error {
	if p.Completing() {
		return p.Complete(ctx, ui.Completion{Table: jobscript.Table(), Order: getopt.First})
	}
	line, err := jobscript.CommandLine(p.Args)
	switch {
	case err != nil:
		return err
	case line.Has("help"):
		_, err := io.WriteString(p.Stdout, usageText+getopt.Help(jobscript.Table())+ui.StatusHelp()+"  With --wait: the job's own, 128 and the number of a signal that ended it.\n")
		return err
	case line.Has("version"):
		return p.PrintVersion()
	}
	options, spec, err := p.job(line)
	if err != nil {
		return err
	}
	cfg, cluster, err := p.Client()
	if err != nil {
		return err
	}
	defer cluster.Close()
	if options.Quote {
		return p.quote(ctx, cluster, spec, options.JSON || cfg.Output == "json")
	}
	if options.TestOnly {
		return p.forecast(ctx, cluster, spec, options.JSON || cfg.Output == "json")
	}
	request := &greylagv1.SubmitJobsRequest{RequestId: p.Request, Jobs: []*greylagv1.JobSpec{spec}}
	if request.RequestId == "" {
		request.RequestId = client.NewRequestID()
	}
	answer, err := cluster.Jobs().SubmitJobs(ctx, request)
	if ui.IsInterrupted(ctx) {
		p.Note("outcome unknown: check gqueue --me before you submit again")
		return ui.Exit(ui.Interrupted)
	}
	if err != nil {
		if ui.StatusOf(err) == ui.Unavailable { // an answer may have been lost, and with it an ID
			p.Report(err)
			if client.NotSent(err) {
				p.Note("nothing was submitted: no controller was reached")
			} else {
				p.Note("outcome unknown: check gqueue --me when the controllers are reachable")
			}
			return ui.Exit(ui.Unavailable)
		}
		return err
	}
	if len(answer.Jobs) != 1 {
		return fmt.Errorf("the controller acknowledged %d jobs, expected 1", len(answer.Jobs))
	}
	options.JSON = options.JSON || cfg.Output == "json" && !options.Parsable
	if err := p.printSubmitted(options, answer); err != nil || !options.Wait {
		return err
	}
	return Wait(ctx, p.Process, cluster, answer.Jobs[0], 0)
}

// Job reads a command line of gsubmit and returns its options and its job.
func Job(p *ui.Process, words []string) (o jobscript.Options, spec *greylagv1.JobSpec, err error) {
	line, err := jobscript.CommandLine(words)
	if err != nil {
		return o, nil, err
	}
	return command{p}.job(line)
}

// job returns the options and the job of a command line, and prints warnings about them.
func (p command) job(line jobscript.Line) (jobscript.Options, *greylagv1.JobSpec, error) {
	script, args, err := p.script(line)
	if err != nil {
		return jobscript.Options{}, nil, err
	}
	options, warnings, err := jobscript.Resolve(line, p.Environ, script, p.Now())
	if !options.Quiet {
		for _, w := range warnings {
			p.Warn(w)
		}
	}
	if err != nil {
		return options, nil, err
	}
	spec, err := p.spec(options, script, args)
	return options, spec, err
}

// script is the script and its arguments.
func (p command) script(line jobscript.Line) (jobscript.Script, []string, error) {
	none := jobscript.Script{}
	if line.Has("wrap") {
		if len(line.Operands) > 0 {
			return none, nil, &ui.UsageError{Problem: fmt.Sprintf("both --wrap and the script %q are given", line.Operands[0]), Advice: "quote the command as one argument: --wrap 'COMMAND ARGUMENTS'"}
		}
		script, err := jobscript.Wrap(line.Value("wrap"))
		return script, nil, err
	}
	if len(line.Operands) > 0 && line.Operands[0] != "-" {
		script, err := jobscript.Open(line.Operands[0])
		return script, line.Operands[1:], err
	}
	if len(line.Operands) == 0 && ui.TerminalWidth(p.Stdin) > 0 {
		return none, nil, &ui.UsageError{Problem: "no script given", Advice: "write gsubmit SCRIPT, gsubmit --wrap 'COMMAND', or pipe the script to gsubmit"}
	}
	script, err := jobscript.Read(jobscript.StandardInput, p.Stdin)
	if len(line.Operands) > 0 {
		return script, line.Operands[1:], err
	}
	return script, nil, err
}

func (p command) printSubmitted(o jobscript.Options, answer *greylagv1.SubmitJobsResponse) error {
	job := answer.Jobs[0]
	if !o.Quiet {
		for _, w := range answer.Warnings {
			p.Warn(w)
		}
	}
	switch {
	case o.JSON:
		return p.WriteJSON(submittedJSON{job.Id, job.ArraySize, answer.Index, ui.CreditsWord(answer.Lien), answer.Warnings})
	case o.Quiet:
		return nil
	}
	if answer.Lien > 0 {
		p.Note("%s", jobspec.SetAside(answer.Lien))
	}
	_, err := io.WriteString(p.Stdout, jobspec.Submitted{ID: job.Id, ArraySize: job.ArraySize}.Line(o.Parsable))
	return err
}

// submittedJSON is the output of gsubmit --json.
type submittedJSON struct {
	ID        uint64   `json:"id"`
	ArraySize int32    `json:"array_size,omitempty"`
	Index     uint64   `json:"index"`
	SetAside  string   `json:"set_aside,omitempty"` // credits
	Warnings  []string `json:"warnings,omitempty"`
}

// folder returns the working directory, by the path that the user entered if it is known.
func folder() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("working directory: %w", err)
	}
	return dir, nil
}
