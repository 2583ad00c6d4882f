package squeue

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/greylag/greylag/internal/cli/gslurm/slurmcmd"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/jobscript/getopt"
)

// stepFormat is the format of -s without -o.
const stepFormat = "%.15i %.8j %.9P %.8u %.9M %N"

// stepField writes one property of a step.
type stepField struct {
	letter byte
	names  string // of -O, separated by blanks
	title  string
	write  func(v *view, s *slurmcmd.Step) string
}

// stepFields are the columns of -s. The other letters of a job are not those of a step.
func stepFields() []stepField {
	ofJob := func(of func(*slurmcmd.Job) string) func(*view, *slurmcmd.Step) string {
		return func(_ *view, s *slurmcmd.Step) string { return of(s.Job) }
	}
	return []stepField{
		{'i', "stepid jobid", "STEPID", func(_ *view, s *slurmcmd.Step) string { return s.FullID() }},
		{'j', "stepname name", "NAME", func(_ *view, s *slurmcmd.Step) string { return s.Name }},
		{0, "stepstate state", "STATE", func(*view, *slurmcmd.Step) string { return "RUNNING" }},
		{'P', "partition", "PARTITION", ofJob((*slurmcmd.Job).PartitionText)},
		{'u', "username", "USER", ofJob(func(j *slurmcmd.Job) string { return j.User })},
		{'U', "userid", "UID", ofJob(func(j *slurmcmd.Job) string { return strconv.FormatUint(uint64(j.Uid), 10) })},
		{'M', "timeused", "TIME", func(v *view, s *slurmcmd.Step) string { return slurmcmd.Length(v.printedAt.Sub(s.Started)) }},
		{'l', "timelimit", "TIME_LIMIT", func(*view, *slurmcmd.Step) string { return "UNLIMITED" }},
		{'S', "starttime", "START_TIME", func(v *view, s *slurmcmd.Step) string { return v.clock.Format(s.Started, "N/A") }},
		{'N', "nodelist nodes", "NODELIST", func(_ *view, s *slurmcmd.Step) string { return slurmcmd.Hosts(s.Nodes) }},
		{'A', "numtasks", "TASKS", func(_ *view, s *slurmcmd.Step) string { return strconv.FormatInt(s.Tasks, 10) }},
		{'C', "numcpus", "CPUS", func(_ *view, s *slurmcmd.Step) string { return strconv.FormatInt(s.CPUs, 10) }},
		{'b', "gres trespernode", "TRES_PER_NODE", func(_ *view, s *slurmcmd.Step) string {
			if s.GPUs == 0 {
				return "N/A"
			}
			return fmt.Sprintf("gres/gpu:%d", s.GPUs/int64(len(s.Nodes)))
		}},
		{0, "arrayjobid", "ARRAY_JOB_ID", ofJob(func(j *slurmcmd.Job) string { return strconv.FormatUint(j.BaseID(), 10) })},
		{0, "arraytaskid", "ARRAY_TASK_ID", ofJob(func(j *slurmcmd.Job) string { return cmp.Or(j.IndexText(), "N/A") })},
	}
}

// steps is the part of the command line about steps.
type steps struct {
	wanted bool
	ids    []slurmcmd.StepID // none: all
	fields []stepField
}

// withSteps returns the request for steps: what selects jobs selects their steps. Options that are only
// for jobs are refused.
func (l *listing) withSteps(found []getopt.Found, operands []string) error {
	for _, f := range found {
		switch f.Option.Long {
		case "sort", "start", "states", "json", "priority", "only-job-state", "array", "array-unique", "reservation":
			return &ui.UsageError{Problem: f.As + " is not supported with --steps", Advice: "sacct -j JOB lists all steps of a job, gctl show job JOB --json prints JSON"}
		case "steps":
			if f.Value != allSteps {
				operands = append(operands, f.Value)
			}
		}
	}
	for _, word := range operands {
		ids, err := slurmcmd.ParseStepIDs(word)
		if err != nil {
			return err
		}
		for _, id := range ids {
			l.filter.Jobs = append(l.filter.Jobs, id.Job)
		}
		l.steps.ids = append(l.steps.ids, ids...)
	}
	return nil
}

// allSteps is the value of --steps without one.
const allSteps = "all"

// stepColumns returns the columns of -s.
func (l *listing) stepColumns() (columns []slurmcmd.Column, err error) {
	if l.extended != "" {
		columns, err = slurmcmd.ParseLongFormat(l.extended)
	} else {
		columns, err = slurmcmd.ParseFormat(cmp.Or(l.format, stepFormat))
	}
	if err != nil {
		return nil, err
	}
	all := stepFields()
	for _, c := range columns {
		i := slices.IndexFunc(all, func(f stepField) bool {
			if c.Name == "" {
				return f.letter == c.Letter && c.Letter != 0
			}
			return hasName(f.names, c.Name)
		})
		if i < 0 {
			return nil, &ui.UsageError{Problem: "Invalid job step format specification: " + cmp.Or(c.Name, string(c.Letter)), Advice: "docs/from-slurm.md lists the fields of steps"}
		}
		l.steps.fields = append(l.steps.fields, all[i])
	}
	return columns, nil
}

// stepLetters and stepNames list the columns of -s, for the documentation.
func stepLetters() string {
	var list []byte
	for _, f := range stepFields() {
		list = append(list, f.letter)
	}
	return "Letters of `-o` with `-s`: " + slurmcmd.ListLetters(list) + "."
}

func stepNames() string {
	var list []string
	for _, f := range stepFields() {
		list = append(list, f.names)
	}
	return "Fields of `-O` with `-s`: " + slurmcmd.ListNames(list) + "."
}

// runSteps lists steps.
func (c command) runSteps(ctx context.Context, l *listing, found []getopt.Found, operands []string) error {
	if err := l.withSteps(found, operands); err != nil {
		return err
	}
	columns, err := l.stepColumns()
	if err != nil {
		return err
	}
	_, cluster, err := c.Client()
	if err != nil {
		return err
	}
	defer cluster.Close()
	return slurmcmd.Repeat(ctx, l.every, func() error { return c.printSteps(ctx, cluster, l, columns) })
}

// printSteps prints the active steps of the selected jobs, by partition and ID.
func (c command) printSteps(ctx context.Context, cl ui.Cluster, l *listing, columns []slurmcmd.Column) error {
	if err := l.fetchCluster(ctx, cl, nil); err != nil {
		return err
	}
	jobs, err := slurmcmd.FetchJobs(ctx, cl, l.filter, c.Now(), slurmcmd.Whole)
	if err != nil {
		return err
	}
	me, kept := slurmcmd.UserName(), jobs[:0]
	for _, j := range jobs {
		if !l.notMe || j.User != me {
			kept = append(kept, j)
		}
	}
	list := slurmcmd.SelectSteps(kept, l.steps.ids)
	if len(list) == 0 {
		if err := cmp.Or(c.UnknownNames(ctx, cl, l.filter), slurmcmd.CheckUsers(ctx, cl, l.filter.Users)); err != nil {
			return err
		}
	}
	slices.SortStableFunc(list, func(a, b slurmcmd.Step) int { return cmp.Compare(a.Job.Partition, b.Job.Partition) })
	out := bufio.NewWriter(c.Stdout)
	c.printTop(out, l)
	v := &view{listing: l, clock: c.Clock()}
	var line []byte
	if !l.noHeader {
		for i := range columns {
			line = columns[i].Append(line, l.steps.fields[i].title)
		}
		out.Write(append(line, '\n')) // an error shows at Flush
	}
	for k := range list {
		line = line[:0]
		for i := range columns {
			line = columns[i].Append(line, l.steps.fields[i].write(v, &list[k]))
		}
		out.Write(append(line, '\n'))
	}
	return out.Flush()
}
