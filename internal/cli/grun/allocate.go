package grun

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/greylag/greylag/internal/cli/alloc"
	"github.com/greylag/greylag/internal/jobscript"
	"github.com/greylag/greylag/internal/jobscript/getopt"
	"github.com/greylag/greylag/internal/step/launch"
)

// jobSizes lists the options of a step that also describe a new job.
var jobSizes = []string{"ntasks", "nodes", "ntasks-per-node", "nodelist", "exclude", "cpus-per-task", "gpus", "gpus-per-node", "gpus-per-task", "gres", "time", "chdir"}

// allocate runs the program in a new job, which ends with it.
func (p command) allocate(ctx context.Context, r *request, found []getopt.Found, words []string) (int, error) {
	read, environ := jobscript.CommandLine, p.Environ
	if p.slurm {
		read, environ = jobscript.SbatchLine, alloc.SlurmVariables("SLURM_", p.Environ)
	}
	line, err := read(jobWords(found))
	if err != nil {
		return 0, err
	}
	var waited atomic.Bool
	wanted := alloc.Request{
		Line: line, Environ: environ, Name: programName(words), Command: p.Program + " " + strings.Join(words, " "),
		Pending: func(job uint64) {
			waited.Store(true)
			p.jobNote(r, "job %d queued and waiting for resources", job)
		},
		Granted: func(job uint64) {
			if waited.Load() {
				p.jobNote(r, "job %d has been allocated resources", job)
			}
		},
	}
	if r.testOnly {
		return 0, alloc.Forecast(ctx, p.Process, wanted)
	}
	a, running, err := alloc.New(ctx, p.Process, wanted)
	if err != nil {
		return 0, err
	}
	inside := *p.Process
	inside.Environ = a.Over(p.Environ)
	return command{Process: &inside, slurm: p.slurm, allocation: a}.runIn(running, a, r, words)
}

// runIn runs the step in an allocation, and releases it.
func (p command) runIn(ctx context.Context, a *alloc.Allocation, r *request, words []string) (int, error) {
	r.job, r.limit = a.Job, 0
	r.spec.Name = ""
	if err := p.finish(r, words); err != nil {
		a.Release(1)
		return 0, err
	}
	status, err := p.start(context.WithoutCancel(ctx), r)
	if err != nil {
		a.Release(1)
		return 0, err
	}
	if status == launch.StatusDetached {
		a.Leave()
		return 0, nil
	}
	if ctx.Err() != nil {
		p.Complain(a.Why(ctx), "")
		status = max(status, 1)
	}
	a.Release(status)
	return status, nil
}

// jobNote prints a message about a job.
func (p command) jobNote(r *request, format string, job uint64) {
	if !r.quiet {
		fmt.Fprintf(p.Stderr, "%s: "+format+"\n", p.Program, job)
	}
}

// jobWords returns the options that describe the job.
func jobWords(found []getopt.Found) (words []string) {
	for _, f := range found {
		name, value := f.Option.Long, f.Value
		switch {
		case strings.HasPrefix(f.As, "--exclusive"):
			name, value = "exclusive", ""
		case name == "gres" && value == "none":
			continue
		case !jobOption(name) && !slices.Contains(jobSizes, name):
			continue
		}
		word := "--" + name
		if value != "" {
			word += "=" + value
		}
		words = append(words, word)
	}
	return words
}
