// Package squeue lists jobs under Slurm's name: with squeue's options, columns and messages.
//
// It decides how jobs of the cluster are written in squeue's columns and JSON. Ended jobs appear for
// slurmcmd.MinJobAge, as in Slurm.
package squeue

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gslurm/slurmcmd"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/jobscript/getopt"
	"github.com/greylag/greylag/pkg/cluster"
)

// The formats of squeue without -o, and with -l, -s and --start.
const (
	usualFormat = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
	longFormat  = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
	startFormat = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"
)

// Program is the description of squeue.
func Program() slurmcmd.Program {
	const same, differs, nothing, refused = slurmcmd.Same, slurmcmd.Differs, slurmcmd.Nothing, slurmcmd.Refused
	row := func(long string, short byte, value string, effect slurmcmd.Effect, note, help string, aliases ...string) slurmcmd.Option {
		return slurmcmd.Option{Option: getopt.Option{Long: long, Short: short, Value: value, Aliases: aliases, Help: help}, Effect: effect, Note: note}
	}
	const one = "there is one cluster"
	return slurmcmd.Program{
		Name: "squeue", Usage: "[OPTIONS]", Summary: "Shows pending, running and completing jobs.",
		Options: []slurmcmd.Option{
			row("account", 'A', "ACCOUNTS", same, "", "of these accounts", "accounts"),
			row("all", 'a', "", nothing, "no partition is hidden", ""),
			row("array", 'r', "", same, "", "one line for each element of an array"),
			row("array-unique", 0, "", same, "", "one line for each element of an array"),
			row("clusters", 'M', "NAMES", differs, "this cluster or all; prints `CLUSTER: NAME` above the table, as Slurm does", "this cluster, or all", "cluster"),
			row("federation", 0, "", nothing, one, ""),
			row("format", 'o', "FORMAT", same, "", `columns: "%.18i %.9P %j %t %R"`),
			row("Format", 'O', "FIELDS", same, "", "columns: JobID:10,Name:.30,State"),
			row("hide", 0, "", nothing, "no partition is hidden", ""),
			row("iterate", 'i', "SECONDS", same, "", "repeat every SECONDS"),
			{Option: getopt.Option{Long: "json", Value: "PARSER", Absent: "list", Help: "print JSON"}, Effect: differs, Note: "the fields that Greylag knows, in the schema of data_parser v0.0.42"},
			row("jobs", 'j', "IDS", same, "", "these: 123,124_5,125_[2-5]", "job"),
			row("licenses", 'L', "NAMES", refused, "select with -o %W and grep", ""),
			row("local", 0, "", nothing, one, ""),
			row("long", 'l', "", same, "", "full state names and time limits"),
			row("me", 0, "", same, "", "your own"),
			row("name", 'n', "NAMES", same, "", "with these names", "jobname", "names"),
			row("noconvert", 0, "", nothing, "sizes are exact", ""),
			row("nodelist", 'w', "NODES", same, "", "that run on these nodes", "nodes"),
			row("noheader", 'h', "", same, "", "no header line"),
			row("notme", 0, "", same, "", "of other users"),
			row("only-job-state", 0, "", same, "", "only IDs and states"),
			row("partition", 'p', "PARTITIONS", same, "", "in these partitions", "partitions"),
			row("priority", 'P', "", same, "", "one line for each partition of a pending job"),
			row("qos", 'q', "QOS", same, "", "of these QOS"),
			row("reservation", 'R', "NAME", same, "", "of this reservation"),
			row("running-over", 0, "TIME", refused, "print -o '%i %M' and compare", ""),
			row("running-under", 0, "TIME", refused, "print -o '%i %M' and compare", ""),
			row("sibling", 0, "", nothing, one, ""),
			row("sort", 'S', "KEYS", same, "", "letters of -o; a minus reverses"),
			row("start", 0, "", same, "", "when pending jobs are planned to start"),
			row("states", 't', "STATES", same, "", "in these states, by name or code; all", "state"),
			{Option: getopt.Option{Long: "steps", Short: 's', Value: "IDS", Absent: allSteps, Help: "active steps, of these jobs or steps: 123,124.0"}, Effect: differs, Note: "active steps, of these jobs or steps: 123,124.0; without --json, -S and -t"},
			row("user", 'u', "USERS", same, "", "of these users", "users"),
			row("verbose", 'v', "", nothing, "it only prints more", ""),
			{Option: getopt.Option{Long: "yaml", Value: "PARSER", Absent: "list"}, Effect: refused, Note: "--json prints the same data"},
		},
		Notes: []string{
			"Ended jobs appear for `MinJobAge`, 300 s, with `-t all`; later `squeue -j ID` prints `Invalid job id specified`, as Slurm does.",
			"An array's pending elements are never truncated: `SLURM_BITSTR_LEN` has no effect.",
			"`SQUEUE_FORMAT`, `SQUEUE_FORMAT2` and `SLURM_TIME_FORMAT` are read.",
			"Running jobs have priority 0.",
			"Without `-S`, jobs of the same partition and state are in the order of their IDs, not of their priorities.",
			"A job that waits for its dependencies has `(unfulfilled)` after each, also after those that hold already.",
			slurmcmd.OwnFields,
			letters(), names(), stepLetters(), stepNames(),
		},
	}
}

// listing is the request on the command line.
type listing struct {
	filter    *greylagv1.Filter
	named     int // number of IDs, with duplicates
	format    string
	extended  string // of -O
	sort      string
	long      bool
	start     bool
	single    bool
	byPart    bool // one line for each partition
	noHeader  bool
	json      bool
	states    bool // only IDs and states
	notMe     bool
	clusters  string
	reserved  string
	every     time.Duration
	cluster   string // set where it is shown
	priority  map[uint64]int64
	planned   map[string]*greylagv1.PlannedJob
	steps     steps
	anyState  bool
	stateSet  map[greylagv1.JobState]bool
	printedAt time.Time
}

// command is one run of squeue.
type command struct{ *slurmcmd.Command }

// Run runs squeue and returns its exit status.
func Run(ctx context.Context, p *ui.Process) int {
	c := command{slurmcmd.New(p, Program())}
	return c.Finish(ctx, slurmcmd.Unreachable("slurm_load_jobs error: ", c.run(ctx)))
}

func (c command) run(ctx context.Context) error {
	found, operands, done, err := c.Parse()
	if err != nil || done {
		return err
	}
	l, err := c.listing(found)
	if err != nil {
		return err
	}
	if l.steps.wanted {
		return c.runSteps(ctx, l, found, operands)
	}
	if len(operands) > 0 {
		return &ui.UsageError{Problem: fmt.Sprintf("unexpected argument %q", operands[0]), Advice: "select jobs with -j"}
	}
	columns, err := c.columns(l)
	if err != nil {
		return err
	}
	keys, err := parseSort(l.sort, l.start)
	if err != nil {
		return err
	}
	_, cluster, err := c.Client()
	if err != nil {
		return err
	}
	defer cluster.Close()
	return slurmcmd.Repeat(ctx, l.every, func() error { return c.print(ctx, cluster, l, columns, keys) })
}

// listing reads the options.
func (c command) listing(found []getopt.Found) (*listing, error) {
	l := &listing{sort: c.Variable("SQUEUE_SORT")}
	var rest []getopt.Found
	for _, f := range found {
		switch f.Option.Long {
		case "array", "array-unique":
			l.single = true
		case "clusters":
			l.clusters = f.Value
		case "format":
			l.format, l.extended = f.Value, ""
		case "Format":
			l.extended, l.format = f.Value, ""
		case "iterate":
			n, err := strconv.ParseUint(f.Value, 10, 16)
			if err != nil || n == 0 {
				return nil, &ui.UsageError{Problem: fmt.Sprintf("--iterate: not a number of seconds: %q", f.Value)}
			}
			l.every = time.Duration(n) * time.Second
		case "json":
			l.json = true
		case "long":
			l.long = true
		case "notme":
			l.notMe = true
		case "noheader":
			l.noHeader = true
		case "only-job-state":
			l.states = true
		case "priority":
			l.byPart = true
		case "reservation":
			l.reserved = f.Value
		case "sort":
			l.sort = f.Value
		case "start":
			l.start = true
		case "steps":
			l.steps.wanted = true
		case "states":
			if err := l.addStates(f.Value); err != nil {
				return nil, err
			}
		case "jobs":
			l.named += strings.Count(f.Value, ",") + 1
			rest = append(rest, f)
		default:
			rest = append(rest, f)
		}
	}
	filter, err := ui.ReadFilter(rest)
	if err != nil {
		return nil, err
	}
	l.filter = filter
	l.filter.AllStates = l.anyState || l.named > 0 || l.stateSet != nil
	if l.start {
		l.stateSet, l.anyState = map[greylagv1.JobState]bool{greylagv1.JobState_JOB_STATE_PENDING: true}, false
	}
	return l, nil
}

// addStates adds names and codes of states. Those in which no job here is ever select nothing.
func (l *listing) addStates(value string) error {
	if l.stateSet == nil {
		l.stateSet = map[greylagv1.JobState]bool{}
	}
	for word := range strings.SplitSeq(value, ",") {
		if strings.EqualFold(word, "all") {
			l.anyState = true
			continue
		}
		state, known := slurmcmd.ParseState(word)
		if !known {
			return &ui.UsageError{Problem: "Invalid job state specified: " + word, Advice: "valid are " + slurmcmd.StateList()}
		}
		l.stateSet[greylagv1.JobState(state)] = true
	}
	return nil
}

// keep reports whether a job is listed.
func (l *listing) keep(j *greylagv1.Job, me string) bool {
	switch {
	case l.notMe && j.User == me, l.reserved != "" && j.Reservation != l.reserved:
		return false
	case l.anyState:
		return true
	case l.stateSet != nil:
		return l.stateSet[j.State]
	}
	return j.State < greylagv1.JobState_JOB_STATE_COMPLETED
}

// columns returns those of the requested format.
func (c command) columns(l *listing) ([]slurmcmd.Column, error) {
	format, extended := l.format, l.extended
	switch {
	case l.json || format != "" || extended != "":
	case l.states:
		format = "%.18i %.8T"
	case l.start:
		format = startFormat
	case l.long:
		format = longFormat
	case c.Variable("SQUEUE_FORMAT2") != "":
		extended = c.Variable("SQUEUE_FORMAT2")
	case c.Variable("SQUEUE_FORMAT") != "":
		format = c.Variable("SQUEUE_FORMAT")
	default:
		format = usualFormat
	}
	switch {
	case extended != "":
		columns, err := slurmcmd.ParseLongFormat(extended)
		if err == nil {
			err = known(columns)
		}
		return columns, err
	case format == "":
		return nil, nil
	case strings.TrimSpace(format) == "%all" || format == "all":
		return allColumns(), nil
	}
	columns, err := slurmcmd.ParseFormat(format)
	if err == nil {
		err = known(columns)
	}
	return columns, err
}

// print fetches the jobs and prints them.
func (c command) print(ctx context.Context, cl ui.Cluster, l *listing, columns []slurmcmd.Column, keys []sortKey) error {
	if err := l.fetchCluster(ctx, cl, columns); err != nil {
		return err
	}
	jobs, err := slurmcmd.FetchJobs(ctx, cl, l.filter, c.Now(), l.form(columns, keys))
	if err != nil {
		return err
	}
	if len(jobs) == 0 && l.named == 1 {
		return slurmcmd.UnknownJob
	}
	me := slurmcmd.UserName()
	kept := jobs[:0]
	for _, j := range jobs {
		if l.keep(j, me) {
			kept = append(kept, j)
		}
	}
	if len(kept) == 0 {
		if err := cmp.Or(c.UnknownNames(ctx, cl, l.filter), slurmcmd.CheckUsers(ctx, cl, l.filter.Users)); err != nil {
			return err
		}
	}
	if l.json {
		return c.printJSON(ctx, cl, kept)
	}
	if err := l.fetchMore(ctx, cl, columns, keys); err != nil {
		return err
	}
	rows := l.rows(kept)
	l.sortRows(rows, keys)
	return c.printRows(l, columns, rows)
}

// rows returns the lines for jobs.
func (l *listing) rows(jobs []*greylagv1.Job) []slurmcmd.Job {
	rows := slurmcmd.Fold(jobs, l.single)
	if !l.byPart {
		return rows
	}
	var all []slurmcmd.Job
	for _, r := range rows {
		parts := []string{r.Partition}
		if r.State == cluster.Pending {
			parts = append(parts, r.OtherPartitions...)
		}
		for _, name := range parts {
			one := r
			one.Job = slurmcmd.CloneJob(r.Job)
			one.Partition, one.OtherPartitions = name, nil
			all = append(all, one)
		}
	}
	return all
}

// printTop prints the lines above the header.
func (c command) printTop(out *bufio.Writer, l *listing) {
	l.printedAt = c.Now()
	if l.noHeader {
		return
	}
	if l.clusters != "" {
		fmt.Fprintf(out, "CLUSTER: %s\n", l.cluster)
	}
	if l.long || l.every > 0 {
		out.WriteString(c.Now().Format("Mon Jan _2 15:04:05 2006") + "\n")
	}
}

func (c command) printRows(l *listing, columns []slurmcmd.Column, rows []slurmcmd.Job) error {
	out := bufio.NewWriterSize(c.Stdout, 64<<10)
	c.printTop(out, l)
	v := &view{listing: l, clock: c.Clock()}
	fields := fieldsOf(columns)
	var line []byte
	if !l.noHeader {
		for i := range columns {
			line = columns[i].Append(line, fields[i].title)
		}
		out.Write(append(line, '\n')) // an error shows at Flush
	}
	for i := range rows {
		line = line[:0]
		for k := range columns {
			line = columns[k].Append(line, fields[k].write(v, &rows[i]))
		}
		if _, err := out.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return out.Flush()
}
