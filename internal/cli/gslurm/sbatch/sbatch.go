// Package sbatch submits a batch script under Slurm's name: with sbatch's options, defaults, messages
// and exit statuses.
//
// It decides how sbatch's options and answers map to those of the cluster. The options themselves are
// read by package jobscript, and what a job may ask for is the cluster's decision.
package sbatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"google.golang.org/protobuf/proto"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gslurm/slurmcmd"
	"github.com/greylag/greylag/internal/cli/gsubmit"
	"github.com/greylag/greylag/internal/cli/jobspec"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/jobscript"
	"github.com/greylag/greylag/internal/jobscript/getopt"
)

// Program is the description of sbatch.
func Program() slurmcmd.Program {
	p := slurmcmd.Program{
		Name: "sbatch", Usage: "[OPTIONS] [SCRIPT [ARGUMENTS]]", Summary: "Submits a batch script, from a file or from standard input.",
		Notes: []string{
			"`#SBATCH` lines are read as in Slurm; `#GSUB` lines of the same script override them. `#PBS` and `#BSUB` lines are not read, and cause a warning.",
			"Of the environment, `SBATCH_` variables count, before the lines of the script. Variables of the job that submits another one never reach it.",
			"Without `--output` a job writes `slurm-%j.out`, an array `slurm-%A_%a.out`.",

			"Heterogeneous jobs (`hetjob`, `:`) are refused.",
		},
	}
	for _, o := range jobscript.SbatchOptions() {
		p.Options = append(p.Options, Row(o))
	}
	return p
}

// Row describes an option for a new job, in sbatch, srun and salloc.
func Row(o jobscript.SbatchOption) slurmcmd.Option {
	row := slurmcmd.Option{Option: o.Option}
	row.Help = strings.NewReplacer("[greylag-%j.out]", "[slurm-%j.out]", "gctl release", "scontrol release").Replace(row.Help)
	switch note, differs := differences[o.Long]; {
	case o.Own():
		row.Effect = slurmcmd.Added
	case o.Refused != "":
		row.Effect, row.Note = slurmcmd.Refused, o.Refused
	case o.Missing != "":
		row.Effect, row.Note = slurmcmd.Warned, o.Missing
	case o.Harmless != "":
		row.Effect, row.Note = slurmcmd.Nothing, o.Harmless
	case differs:
		row.Effect, row.Note = slurmcmd.Differs, note
	}
	return row
}

// differences are the options that behave differently from Slurm's.
var differences = map[string]string{
	"array":             "no upper bound of 1,000 elements; the policy limits the number",
	"constraint":        "without a number of nodes, such as `[a*2&b*4]`",
	"exclusive":         "only without a value: whole nodes",
	"export":            "with `NONE` the login shell runs on the host of the submission, not on the node",
	"get-user-env":      "the login shell runs on the host of the submission, not on the node",
	"gres":              "a node has one type of a generic resource, and at most four of them; counts up to 2^30 without suffixes",
	"nodelist":          "with a smaller `--nodes` the job runs on some of the nodes; Slurm refuses it",
	"nodes":             "one number or a range; lists such as `2,4` are refused",
	"ntasks":            "every node gets the same number of tasks; without `--nodes` the job gets the fewest nodes that divide the tasks evenly",
	"signal":            "`R:` is ignored",
	"tmp":               "reserves the space, in a private directory; Slurm only filters nodes by TmpDisk",
	"container-image":   "OCI images; squashfs files are refused",
	"container-workdir": "the directory must exist on the node",
	"qos":               "one QOS",
	"account":           "one account",
	"licenses":          "joined by commas only",
}

// command is one run of sbatch.
type command struct{ *slurmcmd.Command }

// Run runs sbatch and returns its exit status.
func Run(ctx context.Context, p *ui.Process) int {
	c := command{slurmcmd.New(p, Program())}
	return c.Finish(ctx, c.run(ctx))
}

func (c command) run(ctx context.Context) error {
	line, err := jobscript.SbatchLine(c.Args)
	switch {
	case err != nil:
		return err
	case line.Has("help"), line.Has("usage"):
		return c.Write("Usage: sbatch [OPTIONS] [SCRIPT [ARGUMENTS]]\n" + getopt.Help(tableOf(c.Program.Options)))
	case line.Has("version"):
		return c.PrintVersion()
	}
	script, args, err := c.script(line)
	if err != nil {
		return err
	}
	options, warnings, err := jobscript.Resolve(line, c.Environ, script, c.Now())
	if !options.Quiet {
		for _, w := range append(warnings, script.Foreign()...) {
			c.Warn(w)
		}
	}
	if err != nil {
		return err
	}
	spec, err := c.spec(ctx, options, script, args)
	if err != nil {
		return err
	}
	_, cluster, err := c.Client()
	if err != nil {
		return err
	}
	defer cluster.Close()
	suffix, err := c.clusterSuffix(ctx, cluster, options.Clusters)
	if err != nil {
		return err
	}
	if options.TestOnly {
		return c.forecast(ctx, cluster, spec)
	}
	return c.submit(ctx, cluster, spec, options, suffix)
}

func tableOf(options []slurmcmd.Option) (table []getopt.Option) {
	for _, o := range options {
		if o.Offered() {
			table = append(table, o.Option)
		}
	}
	return table
}

// script returns the script and its arguments.
func (c command) script(line jobscript.Line) (jobscript.Script, []string, error) {
	none := jobscript.Script{}
	switch {
	case len(line.Operands) > 0 && line.Operands[0] == ":":
		return none, nil, jobscript.HetJob()
	case line.Has("wrap") && len(line.Operands) > 0:
		return none, nil, &ui.UsageError{Problem: "script arguments are not permitted with --wrap", Advice: "quote the command as one argument"}
	case line.Has("wrap"):
		script, err := jobscript.Wrap(line.Value("wrap"))
		return script, nil, err
	case len(line.Operands) > 0 && line.Operands[0] != "-":
		script, err := jobscript.Open(line.Operands[0])
		return script, line.Operands[1:], err
	}
	script, err := jobscript.Read(jobscript.StandardInput, c.Stdin)
	return script, line.Operands[min(1, len(line.Operands)):], err
}

// spec converts the request to the form of the API, with sbatch's defaults.
func (c command) spec(ctx context.Context, o jobscript.Options, script jobscript.Script, args []string) (*greylagv1.JobSpec, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("working directory: %w", err)
	}
	host, _ := os.Hostname() // for people only; "" is fine
	environ := c.Environ
	if o.LoginEnv || o.Export.Login {
		login, err := c.loginEnvironment(ctx)
		switch {
		case err == nil:
			environ = o.Export.Over(login, environ)
		case o.LoginEnv:
			return nil, err
		default:
			c.Warn(err.Error() + "; the job gets no variables of a login shell")
		}
	}
	o.SlurmDefaults(script)
	message, left, err := jobspec.Encode(o, script, args, jobspec.Place{Dir: dir, Host: host, Environ: environ})
	var garbled *jobspec.NotText
	if errors.As(err, &garbled) {
		return nil, &ui.UsageError{Problem: garbled.Error(), Advice: "the working directory and the script's arguments must be"}
	}
	for _, name := range left {
		c.Warn(fmt.Sprintf("the variable %q is not UTF-8: the job does not get it", name))
	}
	spec := &greylagv1.JobSpec{}
	return spec, errors.Join(err, proto.Unmarshal(message, spec))
}

// clusterSuffix returns the cluster's name if --clusters is given, which must name it; else "".
func (c command) clusterSuffix(ctx context.Context, cluster ui.Cluster, names string) (string, error) {
	if names == "" {
		return "", nil
	}
	answer, err := cluster.Cluster().GetStatus(ctx, &greylagv1.GetStatusRequest{})
	if err != nil {
		return "", slurmcmd.Unreachable(failed, err)
	}
	return answer.Cluster, slurmcmd.Ours(names, answer.Cluster)
}

// failed begins the message of a submission that the cluster refused.
const failed = "sbatch: error: Batch job submission failed: "

func (c command) submit(ctx context.Context, cluster ui.Cluster, spec *greylagv1.JobSpec, o jobscript.Options, suffix string) error {
	request := &greylagv1.SubmitJobsRequest{RequestId: c.Request, Jobs: []*greylagv1.JobSpec{spec}}
	if request.RequestId == "" {
		request.RequestId = client.NewRequestID()
	}
	answer, err := cluster.Jobs().SubmitJobs(ctx, request)
	switch {
	case ui.IsInterrupted(ctx):
		c.Warn("outcome unknown: check squeue --me before you submit again")
		return ui.Exit(ui.Interrupted)
	case ui.NoAnswer(err) && !client.NotSent(err):
		c.Warn("outcome unknown: check squeue --me when the controllers are reachable")
		return slurmcmd.Unreachable(failed, err)
	case ui.NoAnswer(err):
		return slurmcmd.Unreachable(failed, err)
	case err != nil:
		return slurmcmd.Message(failed + ui.Printable(strings.Join(slurmcmd.Sentences(err), "; ")))
	case len(answer.Jobs) != 1:
		return fmt.Errorf("the controller acknowledged %d jobs, expected 1", len(answer.Jobs))
	}
	if !o.Quiet { // before the answer: tools read the last word of both streams
		for _, w := range answer.Warnings {
			c.Warn(w)
		}
		if answer.Lien > 0 {
			fmt.Fprintf(c.Stderr, "sbatch: %s\n", jobspec.SetAside(answer.Lien))
		}
	}
	if err := c.Write(jobspec.SbatchLine(answer.Jobs[0].Id, o.Parsable, o.Quiet, suffix)); err != nil || !o.Wait {
		return err
	}
	quiet := *c.Process
	quiet.Stderr = io.Discard // sbatch prints nothing after its answer
	return slurmcmd.Unreachable("sbatch: error: ", gsubmit.Wait(ctx, &quiet, cluster, answer.Jobs[0], 1))
}

// forecast prints when and where a job would start, and submits nothing.
func (c command) forecast(ctx context.Context, cluster ui.Cluster, spec *greylagv1.JobSpec) error {
	a, err := cluster.Jobs().ForecastJob(ctx, &greylagv1.ForecastJobRequest{Job: spec})
	switch {
	case ui.NoAnswer(err):
		return slurmcmd.Unreachable("allocation failure: ", err)
	case err != nil:
		return slurmcmd.Message("allocation failure: " + ui.Printable(strings.Join(slurmcmd.Sentences(err), "; ")))
	}
	for _, w := range a.Warnings {
		c.Warn(w)
	}
	q := spec.Request
	cpus := max(q.GetCpusPerTask(), 1) * max(q.GetTasksPerNode(), 1) * max(q.GetNodes(), int32(len(a.Nodes)), 1)
	start := "unknown"
	if a.Now {
		start = c.Clock().Format(c.Now(), "")
	} else if a.Start != nil {
		start = c.Clock().Stamp(a.Start, "")
	}
	_, err = fmt.Fprintf(c.Stderr, "sbatch: Job 0 to start at %s using %d processors on nodes %s in partition %s\n",
		start, cpus, ui.Printable(hostlist.Compress(a.Nodes)), ui.Printable(a.Partition))
	return err
}
