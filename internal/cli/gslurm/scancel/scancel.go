// Package scancel ends or signals jobs under Slurm's name: with scancel's options, messages and exit
// statuses.
//
// It decides which outcomes of a cancellation are errors for the callers of scancel. Whether a user may
// end a job is the cluster's decision.
package scancel

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gslurm/slurmcmd"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/jobscript"
	"github.com/greylag/greylag/internal/jobscript/getopt"
	"github.com/greylag/greylag/pkg/cluster"
)

// Program is the description of scancel.
func Program() slurmcmd.Program {
	row := func(long string, short byte, value string, effect slurmcmd.Effect, note, help string, aliases ...string) slurmcmd.Option {
		return slurmcmd.Option{Option: getopt.Option{Long: long, Short: short, Value: value, Aliases: aliases, Help: help}, Effect: effect, Note: note}
	}
	const same, differs, nothing, refused = slurmcmd.Same, slurmcmd.Differs, slurmcmd.Nothing, slurmcmd.Refused
	return slurmcmd.Program{
		Name: "scancel", Usage: "[OPTIONS] [JOB...]", Summary: "Ends jobs, or sends them a signal.",
		Options: []slurmcmd.Option{
			row("account", 'A', "ACCOUNTS", same, "", "of these accounts"),
			row("admin-comment", 0, "TEXT", refused, "scontrol update sets the comment of a job", ""),
			row("batch", 'b', "", same, "", "signal only the batch script"),
			row("clusters", 'M', "NAMES", differs, "this cluster, or all", "this cluster, or all", "cluster"),
			row("cron", 'c', "", refused, "there is no scrontab: gctl cron hold, remove and list manage recurring jobs", ""),
			row("ctld", 0, "", nothing, "one request is sent in any case", ""),
			row("full", 'f', "", same, "", "signal the batch script and all its processes"),
			row("hurry", 'H', "", nothing, "there are no burst buffers", ""),
			row("interactive", 'i', "", same, "", "ask before each job"),
			row("jobname", 0, "NAMES", same, "", "with these names"),
			row("me", 0, "", same, "", "your own"),
			row("name", 'n', "NAMES", same, "", "with these names"),
			row("nodelist", 'w', "NODES", same, "", "that run on these nodes"),
			row("partition", 'p', "PARTITIONS", same, "", "in these partitions"),
			row("qos", 'q', "QOS", same, "", "of these QOS"),
			row("quiet", 'Q', "", same, "", "print no errors of jobs that have ended"),
			row("reservation", 'R', "NAME", same, "", "of this reservation"),
			row("sibling", 0, "NAMES", refused, "there is one cluster", ""),
			row("signal", 's', "SIGNAL", same, "", "send this signal, by name or number: to the steps; with -b to the batch script"),
			row("state", 't', "STATES", same, "", "in these states: PENDING, RUNNING", "states"),
			row("user", 'u', "USERS", same, "", "of these users"),
			row("verbose", 'v', "", same, "", "name the jobs"),
			row("wckey", 0, "KEYS", same, "", "with these wckeys"),
		},
		Notes: []string{"Jobs that have ended, or that do not exist, are no error unless a signal is sent."},
	}
}

// cancellation is the request on the command line.
type cancellation struct {
	filter      *greylagv1.Filter
	words       []string // the jobs as given
	steps       []stepRef
	signal      int32
	batch, full bool
	interactive bool
	quiet       bool
	verbose     bool
	clusters    string
	reservation string
	wckeys      []string
}

// command is one run of scancel.
type command struct{ *slurmcmd.Command }

// Run runs scancel and returns its exit status.
func Run(ctx context.Context, p *ui.Process) int {
	c := command{slurmcmd.New(p, Program())}
	return c.Finish(ctx, slurmcmd.Unreachable("scancel: error: ", c.run(ctx)))
}

func (c command) run(ctx context.Context) error {
	found, operands, done, err := c.Parse()
	if err != nil || done {
		return err
	}
	x, err := read(found, operands)
	if err != nil {
		return err
	}
	_, cluster, err := c.Client()
	if err != nil {
		return err
	}
	defer cluster.Close()
	if x.clusters != "" {
		status, err := cluster.Cluster().GetStatus(ctx, &greylagv1.GetStatusRequest{})
		if err != nil {
			return err
		}
		if err := slurmcmd.Ours(x.clusters, status.Cluster); err != nil {
			return err
		}
	}
	users := x.filter.Users
	if x.interactive || x.reservation != "" || len(x.wckeys) > 0 {
		if err := c.choose(ctx, cluster, x); err != nil || len(x.filter.Jobs) == 0 {
			return cmp.Or(err, slurmcmd.CheckUsers(ctx, cluster, users))
		}
	}
	if x.verbose {
		for _, word := range x.words {
			c.say(x, word)
		}
	}
	if err := c.signalSteps(ctx, cluster, x); err != nil || len(x.steps) > 0 && len(x.filter.Jobs) == 0 || x.stepsOnly() {
		return err
	}
	answer, err := cluster.Jobs().CancelJobs(ctx, &greylagv1.CancelJobsRequest{
		RequestId: client.NewRequestID(), Filter: x.filter, Signal: x.signal, BatchOnly: x.batch && !x.full,
	})
	if err != nil {
		return err
	}
	if len(answer.Outcomes) == 0 {
		return slurmcmd.CheckUsers(ctx, cluster, users)
	}
	return c.outcomes(x, answer.Outcomes)
}

func (c command) say(x *cancellation, job string) {
	if x.signal == 0 {
		fmt.Fprintf(c.Stderr, "scancel: Terminating job %s\n", job)
	} else {
		fmt.Fprintf(c.Stderr, "scancel: Signal %d to job %s\n", x.signal, job)
	}
}

func read(found []getopt.Found, operands []string) (*cancellation, error) {
	x := &cancellation{}
	filter, err := ui.ReadFilter(rename(found))
	if err != nil {
		return nil, err
	}
	x.filter, x.words = filter, operands
	for _, f := range found {
		switch f.Option.Long {
		case "signal":
			if x.signal, err = jobscript.ParseSignal(f.Value); err != nil {
				return nil, &ui.UsageError{Problem: "Unknown job signal: " + f.Value, Advice: "use a name such as USR1 or TERM, or a number"}
			}
		case "batch":
			x.batch = true
		case "full":
			x.full = true
		case "interactive":
			x.interactive = true
		case "quiet":
			x.quiet = true
		case "verbose":
			x.verbose = true
		case "clusters":
			x.clusters = f.Value
		case "reservation":
			x.reservation = f.Value
		case "wckey":
			x.wckeys = append(x.wckeys, strings.Split(f.Value, ",")...)
		}
	}
	for _, word := range operands {
		if err := x.add(word); err != nil {
			return nil, err
		}
	}
	f := x.filter
	chosen := len(x.steps) + len(f.Jobs) + len(f.Users) + len(f.Names) + len(f.Partitions) + len(f.Accounts) + len(f.Nodes) + len(f.Qos) + len(f.States) + len(x.wckeys)
	if chosen == 0 && !f.Mine && x.reservation == "" {
		return nil, &ui.UsageError{Problem: "No job identification provided", Advice: "write scancel JOB, or select jobs with --me, -u, -n, -t or -p"}
	}
	if x.batch && x.signal == 0 {
		x.signal = kill
	}
	return x, nil
}

// rename returns the options under the names that package ui knows.
func rename(found []getopt.Found) []getopt.Found {
	known := map[string]string{"jobname": "name", "state": "states"}
	out := make([]getopt.Found, len(found))
	for i, f := range found {
		out[i] = f
		if name, ok := known[f.Option.Long]; ok {
			o := *f.Option
			o.Long, out[i].Option = name, &o
		}
	}
	return out
}

// add reads a job, or a step of one: the step batch is the script.
func (x *cancellation) add(word string) (err error) {
	job, step, stepped := strings.Cut(word, ".")
	switch {
	case stepped && step == "batch" && x.signal != 0:
		x.batch = true
	case stepped:
		id, err := cluster.ParseStep(step)
		if err != nil {
			return &ui.UsageError{Problem: "Invalid job id " + word, Advice: "write steps such as 12.0 or 12.batch"}
		}
		if _, err := ui.Refs([]string{job}); err != nil {
			return &ui.UsageError{Problem: "Invalid job id " + word}
		}
		x.steps = append(x.steps, stepRef{job, id})
		return nil
	}
	if x.filter.Jobs, err = ui.AppendRefs(x.filter.Jobs, job); err != nil {
		return &ui.UsageError{Problem: "Invalid job id " + word}
	}
	return nil
}

// choose replaces the filter by the IDs of the jobs that match all conditions, and that the user
// confirmed if asked.
func (c command) choose(ctx context.Context, cluster ui.Cluster, x *cancellation) error {
	jobs, err := slurmcmd.FetchJobs(ctx, cluster, x.filter, c.Now(), slurmcmd.Whole)
	if err != nil {
		return err
	}
	x.filter = &greylagv1.Filter{}
	answers := bufio.NewScanner(c.Stdin)
	for _, j := range jobs {
		if x.reservation != "" && j.Reservation != x.reservation || len(x.wckeys) > 0 && !contains(x.wckeys, j.Wckey) {
			continue
		}
		if x.interactive {
			fmt.Fprintf(c.Stdout, "Cancel job_id=%s name=%s partition=%s [y/n]? ", j.Ref, ui.Printable(j.Name), ui.Printable(j.Partition))
			if !answers.Scan() {
				return answers.Err()
			}
			if word := strings.ToLower(strings.TrimSpace(answers.Text())); word != "y" && word != "yes" {
				continue
			}
		}
		x.filter.Jobs = append(x.filter.Jobs, j.Ref)
	}
	return nil
}

func contains(words []string, word string) bool {
	for _, w := range words {
		if w == word {
			return true
		}
	}
	return false
}

// outcomes prints the errors. A job that has ended, or does not exist, is no error of a cancellation.
func (c command) outcomes(x *cancellation, all []*greylagv1.Outcome) error {
	failed := false
	for _, o := range all {
		gone := o.Code == greylagv1.ErrorCode_ERROR_CODE_NOT_FOUND || o.State >= greylagv1.JobState_JOB_STATE_COMPLETED
		switch {
		case o.Error == "" && x.verbose && len(x.words) == 0:
			c.say(x, o.Ref)
		case o.Error == "":
		case gone && x.signal == 0 && !x.verbose:
		case gone && x.quiet:
		default:
			fmt.Fprintf(c.Stderr, "scancel: error: Kill job error on job id %s: %s\n", o.Ref, problem(o))
			failed = failed || !gone || x.signal != 0
		}
	}
	if failed {
		return ui.Exit(ui.Failed)
	}
	return nil
}

// problem returns Slurm's phrase for an outcome, or the cluster's own.
func problem(o *greylagv1.Outcome) string {
	switch {
	case o.Code == greylagv1.ErrorCode_ERROR_CODE_NOT_FOUND:
		return "Invalid job id specified"
	case o.State >= greylagv1.JobState_JOB_STATE_COMPLETED:
		return "Job/step already completing or completed"
	case o.Code == greylagv1.ErrorCode_ERROR_CODE_PERMISSION_DENIED:
		return "Access/permission denied"
	}
	return ui.Printable(o.Error)
}
