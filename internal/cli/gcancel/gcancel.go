// Package gcancel ends or signals jobs.
//
// It has an option parser of our own, not cobra: scripts start it thousands of times.
package gcancel

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/jobscript"
	"github.com/greylag/greylag/internal/jobscript/getopt"
	"github.com/greylag/greylag/internal/wire"
)

const usageText = `usage: gcancel [OPTIONS] [JOB...]

Cancels jobs, or sends them a signal. JOB is 123 (a job or a whole array),
123_4 (one array element) or 123_[2-5] (several elements). A job must match
all given hold.
`

func options() []getopt.Option {
	return append(ui.FilterOptions(),
		getopt.Option{Long: "signal", Short: 's', Value: "SIGNAL", Group: "Other options", Help: "send this signal (name or number) instead of cancelling"},
		getopt.Option{Long: "batch", Short: 'b', Group: "Other options", Help: "send the signal only to the batch script"},
		getopt.Option{Long: "full", Short: 'f', Group: "Other options", Help: "send the signal to the script and all its processes (default)"},
		getopt.Option{Long: "interactive", Short: 'i', Group: "Other options", Help: "ask before each job"},
		getopt.Option{Long: "quiet", Short: 'Q', Group: "Other options", Help: "do not report jobs that already ended"},
		getopt.Option{Long: "verbose", Short: 'v', Group: "Other options", Help: "print each cancelled job"},
		getopt.Option{Long: "json", Group: "Other options", Help: "print JSON"},
		getopt.Option{Long: "help", Short: 'h', Group: "Other options", Help: "print this"},
		getopt.Option{Long: "version", Short: 'V', Group: "Other options", Help: "print the version"},
	)
}

// cancellation is the request on the command line.
type cancellation struct {
	filter      *greylagv1.Filter
	signal      int32
	batch, full bool
	interactive bool
	quiet       bool
	verbose     bool
	json        bool
}

// command is one run of gcancel.
type command struct{ *ui.Process }

// Run runs gcancel and returns its exit status.
func Run(ctx context.Context, p *ui.Process) int { return p.Finish(ctx, command{p}.run(ctx)) }

func (p command) run(ctx context.Context) error {
	if p.Completing() {
		return p.Complete(ctx, ui.Completion{Table: options(), Operands: ui.JobNames})
	}
	if err := p.CheckWords(); err != nil {
		return err
	}
	found, operands, err := getopt.Parse(options(), p.Args, getopt.Anywhere)
	if err != nil {
		return err
	}
	c, done, err := p.cancellation(found, operands)
	if done || err != nil {
		return err
	}
	cfg, cluster, err := p.Client()
	if err != nil {
		return err
	}
	defer cluster.Close()
	c.json = c.json || cfg.Output == "json"
	if c.interactive {
		if c.filter.Jobs, err = p.confirm(ctx, cluster, c); err != nil || len(c.filter.Jobs) == 0 {
			return err
		}
		c.filter = &greylagv1.Filter{Jobs: c.filter.Jobs}
	}
	answer, err := cluster.Jobs().CancelJobs(ctx, &greylagv1.CancelJobsRequest{
		RequestId: client.NewRequestID(), Filter: c.filter, Signal: c.signal, BatchOnly: c.batch,
	})
	if err != nil {
		return err
	}
	verb := "ended"
	if c.signal != 0 {
		verb = "signalled"
	}
	if len(answer.Outcomes) == 0 && !c.json && !c.quiet {
		p.Note("no job matches")
		p.WarnUnknown(ctx, cluster, c.filter)
	}
	return p.Outcomes(answer.Outcomes, ui.OutcomeStyle{JSON: c.json, Verbose: c.verbose, Quiet: c.quiet, Verb: verb, EndedIsDone: true})
}

func (p command) cancellation(found []getopt.Found, operands []string) (c cancellation, done bool, err error) {
	if c.filter, err = ui.ReadFilter(found); err != nil {
		return c, false, err
	}
	for _, word := range operands {
		if c.filter.Jobs, err = ui.AppendRefs(c.filter.Jobs, word); err != nil {
			return c, false, err
		}
	}
	for _, f := range found {
		switch f.Option.Long {
		case "signal":
			if c.signal, err = jobscript.ParseSignal(f.Value); err != nil {
				return c, false, &ui.UsageError{Problem: err.Error(), Advice: "use a name such as USR1 or TERM, or a number from 1 to 64"}
			}
		case "batch":
			c.batch = true
		case "full":
			c.full = true
		case "interactive":
			c.interactive = true
		case "quiet":
			c.quiet = true
		case "verbose":
			c.verbose = true
		case "json":
			c.json = true
		case "help":
			_, err := io.WriteString(p.Stdout, usageText+getopt.Help(options())+ui.StatusHelp())
			return c, true, err
		case "version":
			return c, true, p.PrintVersion()
		}
	}
	if !chooses(c.filter) {
		return c, false, &ui.UsageError{Problem: "no job given", Advice: "write gcancel JOB, or select jobs with --me, -u, -n, -t, -p, -A, -q or -w"}
	}
	if c.batch && c.full {
		return c, false, &ui.UsageError{Problem: "--batch and --full contradict each other", Advice: "omit one of them"}
	}
	if c.batch && c.signal == 0 {
		return c, false, &ui.UsageError{Problem: "--batch needs --signal", Advice: "write gcancel --batch --signal TERM JOB"}
	}
	return c, false, nil
}

// chooses reports whether a filter excludes any job: gcancel never ends all jobs because of a
// forgotten word. "all" states select nothing.
func chooses(f *greylagv1.Filter) bool {
	return f.Mine || len(f.Jobs)+len(f.Users)+len(f.Names)+len(f.Partitions)+len(f.Accounts)+len(f.Nodes)+len(f.Qos)+len(f.States) > 0
}

// confirm asks about each selected job and returns the confirmed ones.
func (p command) confirm(ctx context.Context, c ui.Cluster, asked cancellation) ([]string, error) {
	jobs, _, err := ui.FetchJobs(ctx, c, &greylagv1.ListJobsRequest{Filter: asked.filter, Brief: true})
	if err != nil {
		return nil, err
	}
	answers := bufio.NewScanner(p.Stdin)
	var yes []string
	for _, j := range jobs {
		fmt.Fprintf(p.Stderr, "%s: cancel job %s, %s of %s, %s? [y/n] ", p.Program, j.Ref, ui.Printable(j.Name), ui.Printable(j.User), strings.ToLower(wire.Word(j.State)))
		if !answers.Scan() {
			fmt.Fprintln(p.Stderr)
			return yes, answers.Err()
		}
		if word := strings.ToLower(strings.TrimSpace(answers.Text())); word == "y" || word == "yes" {
			yes = append(yes, j.Ref)
		}
	}
	if len(jobs) == 0 {
		p.Note("no active job is selected")
	}
	return yes, nil
}
