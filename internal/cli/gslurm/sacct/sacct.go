// Package sacct prints past and active jobs under Slurm's name: with sacct's options, columns and
// states.
//
// It decides which jobs sacct's options select, and leaves the lines to package acct. Other than
// Slurm's it shows a job as soon as it is submitted, since both read one state.
package sacct

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/acct"
	"github.com/greylag/greylag/internal/cli/gslurm/slurmcmd"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/jobscript/getopt"
)

// Program is the description of sacct.
func Program() slurmcmd.Program {
	row := func(long string, short byte, value string, effect slurmcmd.Effect, note, help string, aliases ...string) slurmcmd.Option {
		return slurmcmd.Option{Option: getopt.Option{Long: long, Short: short, Value: value, Aliases: aliases, Help: help}, Effect: effect, Note: note}
	}
	const same, differs, nothing, refused = slurmcmd.Same, slurmcmd.Differs, slurmcmd.Nothing, slurmcmd.Refused
	const one = "there is one cluster"
	return slurmcmd.Program{
		Name: "sacct", Usage: "[OPTIONS]", Summary: "Shows jobs and their steps, active and ended.",
		Options: []slurmcmd.Option{
			row("accounts", 'A', "ACCOUNTS", same, "", "of these accounts", "account"),
			row("allclusters", 'L', "", nothing, one, ""),
			row("allocations", 'X', "", same, "", "jobs without their steps"),
			row("allusers", 'a', "", same, "", "of all users"),
			row("array", 0, "", nothing, "each element that started has its line", ""),
			row("associations", 'x', "IDS", refused, "select with -A and -u", ""),
			row("batch-script", 'B', "", same, "", "print the batch scripts of the jobs of -j"),
			row("brief", 'b', "", same, "", "ID, state and exit code"),
			row("clusters", 'M', "NAMES", differs, "this cluster, or all", "this cluster, or all", "cluster"),
			row("completion", 'c', "", refused, "choose columns with -o", ""),
			row("constraints", 'C', "LIST", refused, "print -o JobID,Constraints and grep", ""),
			row("delimiter", 0, "TEXT", same, "", "separator of -p and -P"),
			row("duplicates", 'D', "", same, "", "also the earlier runs of requeued jobs"),
			row("endtime", 'E', "TIME", same, "", "until this time", "end"),
			row("env-vars", 0, "", refused, "gctl script --json has the environment", ""),
			row("expand-patterns", 0, "", nothing, "patterns of file names are always replaced", ""),
			row("federation", 0, "", nothing, one, ""),
			row("file", 'f', "FILE", refused, "there is no accounting file", ""),
			row("flags", 'F', "FLAGS", refused, "there is one scheduler", ""),
			row("format", 'o', "FIELDS", same, "", "JobID,State%20,Elapsed; --helpformat lists the fields", "fields"),
			row("group", 'g', "GROUPS", same, "", "of these groups", "gid"),
			row("helpformat", 'e', "", differs, "lists also the fields that are always empty", "list the fields"),
			row("jobs", 'j', "IDS", same, "", "123,124_5,125.batch", "job"),
			{Option: getopt.Option{Long: "json", Value: "PARSER", Absent: "list", Help: "print JSON"}, Effect: differs, Note: "the fields that Greylag knows, in the schema of data_parser v0.0.42"},
			row("local", 0, "", nothing, one, ""),
			row("long", 'l', "", differs, "fewer fields", "many fields"),
			row("name", 0, "NAMES", same, "", "with these names", "jobname"),
			row("ncpus", 'i', "RANGE", refused, "print -o JobID,NCPUS and compare", ""),
			row("nnodes", 'I', "RANGE", refused, "print -o JobID,NNodes and compare", ""),
			row("noconvert", 0, "", same, "", "sizes without conversion"),
			row("nodelist", 'N', "NODES", same, "", "that ran on these nodes"),
			row("noheader", 'n', "", same, "", "no header line"),
			row("parsable", 'p', "", same, "", "fields separated by |, with one at the end"),
			row("parsable2", 'P', "", same, "", "fields separated by |"),
			row("partition", 'r', "PARTITIONS", same, "", "in these partitions", "partitions"),
			row("qos", 'q', "QOS", same, "", "of these QOS"),
			row("reason", 'R', "REASONS", refused, "print -o JobID,Reason and grep", ""),
			row("starttime", 'S', "TIME", same, "", "from this time on", "start"),
			row("state", 's', "STATES", same, "", "in these states", "states"),
			row("timelimit-max", 'K', "TIME", refused, "print -o JobID,TimelimitRaw and compare", ""),
			row("timelimit-min", 'k', "TIME", refused, "print -o JobID,TimelimitRaw and compare", ""),
			row("truncate", 'T', "", same, "", "cut times to the interval"),
			row("uid", 'u', "USERS", same, "", "of these users", "user", "users"),
			row("units", 0, "UNIT", same, "", "sizes in K, M, G, T or P"),
			row("use-local-uid", 0, "", nothing, "users are named", ""),
			row("verbose", 'v', "", nothing, "it only prints more", ""),
			row("wckeys", 'W', "KEYS", same, "", "with these wckeys", "wckey"),
			row("whole-hetjob", 0, "", nothing, "there are no heterogeneous jobs", ""),
			{Option: getopt.Option{Long: "yaml", Value: "PARSER", Absent: "list"}, Effect: refused, Note: "--json prints the same data"},
		},
		Notes: []string{
			"A job appears as soon as `sbatch` has answered.",
			"States are those of Slurm's database: a job that starts or ends is `RUNNING`.",
			"A job that ran has the lines `N`, `N.batch`, and `N.0`, `N.1` and so on for its steps. Steps of earlier runs are not kept.",
			"`N.interactive` is the shell of `salloc`. There is no `N.extern`: processes that Greylag did not start are not adopted, and a shell of ssh (`gctl ssh-check`) is a numbered step.",
			"`N.batch` includes the usage of the steps on its node: do not add them up.",
			"Jobs of `srun` and `salloc` have a line `N.batch` too. `ExitCode` is `137:0` after `OUT_OF_MEMORY`, and `0:15` after `TIMEOUT`.",
			slurmcmd.OwnFields,
		},
	}
}

// command is one run of sacct.
type command struct{ *slurmcmd.Command }

// Run runs sacct and returns its exit status.
func Run(ctx context.Context, p *ui.Process) int {
	c := command{slurmcmd.New(p, Program())}
	return c.Finish(ctx, slurmcmd.Unreachable("sacct: error: ", c.run(ctx)))
}

// request is the command line.
type request struct {
	values map[string][]string
	wanted map[string][]string // steps by job; a job without steps has "" and all steps
	single bool
	wckeys []string
}

func (c command) run(ctx context.Context) error {
	found, done, err := c.ParseOptions("select jobs with -j")
	if err != nil || done {
		return err
	}
	r := &request{values: map[string][]string{}}
	for _, f := range found {
		r.add(f)
	}
	if len(r.values["helpformat"]) > 0 {
		return c.Write(acct.HelpFormat())
	}
	q, style, err := acct.SlurmQuestion(func(long string) []string { return r.values[long] }, c.Now(), c.Environ)
	if err != nil {
		return err
	}
	style.Slurm = c.style(r)
	_, cluster, err := c.Client()
	if err != nil {
		return err
	}
	defer cluster.Close()
	switch {
	case len(r.values["batch-script"]) > 0:
		return c.printScripts(ctx, cluster, q.Filter.Jobs)
	case len(r.values["json"]) > 0:
		return c.printJSON(ctx, cluster, q)
	}
	count, err := acct.Print(ctx, c.Process, cluster, q, style)
	if err == nil && count == 0 {
		if name, found := ui.UnknownUser(ctx, cluster, q.Filter.Users); found {
			c.Warn("Invalid user: " + name)
		}
	}
	return err
}

// add stores one option. Values of -j may be steps.
func (r *request) add(f getopt.Found) {
	long, value := f.Option.Long, f.Value
	switch long {
	case "uid":
		long = "user"
	case "wckeys":
		r.wckeys = append(r.wckeys, strings.Split(value, ",")...)
	case "clusters":
		if strings.EqualFold(value, "all") {
			return
		}
	case "jobs":
		if r.wanted == nil {
			r.wanted = map[string][]string{}
		}
		var jobs []string
		for _, word := range splitIDs(value) {
			job, step, _ := strings.Cut(word, ".")
			jobs = append(jobs, job)
			refs, _ := ui.Refs([]string{job}) // the error is reported later
			for _, ref := range append(refs, job) {
				r.wanted[ref] = append(r.wanted[ref], step)
			}
			r.single = r.single || strings.Contains(job, "_")
		}
		value = strings.Join(jobs, ",")
	}
	r.values[long] = append(r.values[long], value)
}

// splitIDs splits at the commas outside brackets.
func splitIDs(value string) (words []string) {
	depth, start := 0, 0
	for i, c := range value {
		switch {
		case c == '[':
			depth++
		case c == ']':
			depth--
		case c == ',' && depth == 0:
			words = append(words, value[start:i])
			start = i + 1
		}
	}
	return slices.DeleteFunc(append(words, value[start:]), func(w string) bool { return strings.TrimSpace(w) == "" })
}

// style returns how the lines differ from those of gctl acct.
func (c command) style(r *request) *acct.Slurm {
	clock := c.Clock()
	return &acct.Slurm{
		Time: func(t time.Time) string { return clock.Format(t, "") }, Steps: len(r.values["allocations"]) == 0, Single: r.single,
		Select: func(j *greylagv1.Job) bool { return len(r.wckeys) == 0 || slices.Contains(r.wckeys, j.Wckey) },
		Wanted: func(job, step string) bool {
			if r.wanted == nil {
				return true
			}
			array, _, _ := strings.Cut(job, "_")
			for _, id := range []string{job, array} {
				if steps, named := r.wanted[id]; named && (slices.Contains(steps, "") || slices.Contains(steps, step)) {
					return true
				}
			}
			return false
		},
	}
}

// printScripts prints the batch scripts of jobs.
func (c command) printScripts(ctx context.Context, cluster ui.Cluster, jobs []string) error {
	if len(jobs) == 0 {
		return &ui.UsageError{Problem: "--batch-script needs jobs", Advice: "write sacct -B -j JOB"}
	}
	for _, job := range jobs {
		answer, err := cluster.Jobs().GetScript(ctx, &greylagv1.GetScriptRequest{Job: job})
		if err != nil {
			return err
		}
		head := "Batch Script for " + job
		if err := c.Write(fmt.Sprintf("%s\n%s\n%s\n", head, strings.Repeat("-", 80), answer.Script)); err != nil {
			return err
		}
	}
	return nil
}
