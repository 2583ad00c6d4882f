package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/jobscript"
	"github.com/greylag/greylag/internal/jobscript/getopt"
)

const cancelUsage = `usage: gcancel [OPTIONS] [JOB...]

Ends jobs, or sends them a signal. JOB is 123, a job or a whole array, 123_4, an
element of it, or 123_[2-5], several. Conditions of different kinds must all
hold.
`

func cancelTable() []getopt.Option {
	return append(filterRows(),
		getopt.Option{Long: "signal", Short: 's', Value: "SIGNAL", Group: "How", Help: "only send this signal, a name or a number"},
		getopt.Option{Long: "batch", Short: 'b', Group: "How", Help: "the signal goes to the batch script alone"},
		getopt.Option{Long: "full", Short: 'f', Group: "How", Help: "the signal goes to the script and all it has started, as it does anyway"},
		getopt.Option{Long: "interactive", Short: 'i', Group: "How", Help: "ask before each job"},
		getopt.Option{Long: "quiet", Short: 'Q', Group: "How", Help: "say nothing of jobs that have ended already"},
		getopt.Option{Long: "verbose", Short: 'v', Group: "How", Help: "name each job that was ended"},
		getopt.Option{Long: "json", Group: "How", Help: "print JSON"},
		getopt.Option{Long: "help", Short: 'h', Group: "How", Help: "print this"},
		getopt.Option{Long: "version", Short: 'V', Group: "How", Help: "print the version"},
	)
}

// cancellation is what gcancel was asked to do.
type cancellation struct {
	filter      *greylagv1.Filter
	signal      int32
	batch, full bool
	interactive bool
	quiet       bool
	verbose     bool
	json        bool
}

// cancelCommand is one run of gcancel.
type cancelCommand struct{ *Process }

// Cancel runs gcancel and returns its exit status.
func Cancel(ctx context.Context, p *Process) int { return p.Finish(ctx, cancelCommand{p}.run(ctx)) }

func (p cancelCommand) run(ctx context.Context) error {
	if p.completing() {
		return p.complete(ctx, completion{table: cancelTable(), operands: JobNames})
	}
	if err := p.CheckWords(); err != nil {
		return err
	}
	found, operands, err := getopt.Parse(cancelTable(), p.Args, getopt.Anywhere)
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
	answer, err := cluster.Jobs().Cancel(ctx, &greylagv1.CancelRequest{
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
	}
	return p.Outcomes(answer.Outcomes, OutcomeStyle{JSON: c.json, Verbose: c.verbose, Quiet: c.quiet, Verb: verb, EndedIsDone: true})
}

func (p cancelCommand) cancellation(found []getopt.Found, operands []string) (c cancellation, done bool, err error) {
	if c.filter, err = filterOf(found); err != nil {
		return c, false, err
	}
	for _, word := range operands {
		if c.filter.Jobs, err = appendRefs(c.filter.Jobs, word); err != nil {
			return c, false, err
		}
	}
	for _, f := range found {
		switch f.Option.Long {
		case "signal":
			if c.signal, err = jobscript.ParseSignal(f.Value); err != nil {
				return c, false, &UsageError{err.Error(), "write a name such as USR1 or TERM, or a number from 1 to 64"}
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
			_, err := io.WriteString(p.Stdout, cancelUsage+getopt.Help(cancelTable())+StatusHelp())
			return c, true, err
		case "version":
			return c, true, p.PrintVersion()
		}
	}
	if !chooses(c.filter) {
		return c, false, &UsageError{"no job is named", "write gcancel JOB, or choose jobs with --me, -u, -n, -t, -p, -A, -q or -w"}
	}
	if c.batch && c.full {
		return c, false, &UsageError{"--batch and --full contradict each other", "leave out one of them"}
	}
	if c.batch && c.signal == 0 {
		return c, false, &UsageError{"--batch goes with a signal", "write gcancel --batch --signal TERM JOB"}
	}
	return c, false, nil
}

// chooses reports whether a filter leaves anything out: gcancel never ends
// everything because somebody forgot a word. "all" states are no choice.
func chooses(f *greylagv1.Filter) bool {
	states := slices.DeleteFunc(slices.Clone(f.States), func(s string) bool { return s == "all" })
	return f.Mine || len(f.Jobs)+len(f.Users)+len(f.Names)+len(f.Partitions)+len(f.Accounts)+len(f.Nodes)+len(f.Qos)+len(states) > 0
}

// confirm asks about each job that is chosen and returns those that were affirmed.
func (p cancelCommand) confirm(ctx context.Context, c Cluster, asked cancellation) ([]string, error) {
	jobs, _, err := FetchJobs(ctx, c, &greylagv1.ListRequest{Filter: asked.filter, Brief: true})
	if err != nil {
		return nil, err
	}
	answers := bufio.NewScanner(p.Stdin)
	var yes []string
	for _, j := range jobs {
		fmt.Fprintf(p.Stderr, "%s: end job %s, %s of %s, %s? [y/n] ", p.Program, j.Ref, Printable(j.Name), Printable(j.User), strings.ToLower(j.State))
		if !answers.Scan() {
			fmt.Fprintln(p.Stderr)
			return yes, answers.Err()
		}
		if word := strings.ToLower(strings.TrimSpace(answers.Text())); word == "y" || word == "yes" {
			yes = append(yes, j.Ref)
		}
	}
	if len(jobs) == 0 {
		p.Note("no active job is chosen")
	}
	return yes, nil
}
