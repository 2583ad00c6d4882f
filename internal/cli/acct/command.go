package acct

import (
	"context"
	"fmt"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/options"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/pkg/cluster"
)

// command is the commands of this package on one run of gctl.
type command struct{ *tool.Tool }

// Command returns gctl acct.
func Command(t *tool.Tool) *cobra.Command { return command{t}.acct() }

// acctOptions are the options of gctl acct, as they were typed.
type acctOptions struct {
	jobs, users, accounts, partitions, qos, states, names, nodes []string
	groups, clusters                                             []string

	start, end, format, delimiter, units              string
	all, me, allocations, steps, duplicates, truncate bool
	long, brief, parsable, parsable2, noHeader        bool
	helpFormat, noConvert                             bool
}

func (t command) acct() *cobra.Command {
	o := &acctOptions{}
	c := &cobra.Command{
		Use: "acct [JOB...]", Short: "Show finished and active jobs, as sacct does", GroupID: tool.GroupJobs,
		Long: `Prints your active jobs and those that ended today, one per line; options
select other times and users, as in sacct. Up to 5,000 jobs are sorted by job
ID; of more jobs, finished ones come first, sorted by end time, then active
ones.

Without --starttime only today's jobs are shown, unless jobs are given by ID.
Final states (--state F,TO) select jobs that ended in the interval; PENDING
and RUNNING select the current state, or with --starttime or --endtime any
time in the interval, as in sacct. Times are 16:00, 1121 (month and day),
11/21/26, 2026-11-21T16:00, today, midnight, noon, now, each optionally
followed by an offset such as -2days or +1hour.

SACCT_FORMAT sets the default format.`,
		RunE: func(command *cobra.Command, args []string) error {
			if o.helpFormat {
				_, err := fmt.Fprint(t.Stdout, HelpFormat())
				return err
			}
			q, err := o.question(args, t.Now())
			if err != nil {
				return err
			}
			style, err := o.style(t.Environ)
			if err != nil {
				return err
			}
			text := o.parsable || o.parsable2 || o.format != ""
			return t.On(func(ctx context.Context, c ui.Cluster, _ []string) error {
				if t.JSON && (!text || command.Flags().Changed("json")) {
					style.Layout = JSON
				}
				return t.printAcct(ctx, c, q, style)
			})(command, args)
		},
	}
	o.flags(c.Flags())
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		problem, advice := options.Problem(err), options.Advice(c, err)
		for option, instead := range notInAcct {
			if problem == fmt.Sprintf("unknown option %q", option) {
				advice = instead
			}
		}
		return &ui.UsageError{Problem: problem, Advice: advice}
	})
	c.MarkFlagsMutuallyExclusive("format", "long", "brief")
	c.MarkFlagsMutuallyExclusive("parsable", "parsable2")
	c.MarkFlagsMutuallyExclusive("me", "user")
	c.MarkFlagsMutuallyExclusive("me", "allusers")
	c.MarkFlagsMutuallyExclusive("units", "noconvert")
	return c
}

// notInAcct are options of sacct that are none here, and what does the same.
var notInAcct = map[string]string{
	"-B": "gctl script JOB prints a job's script", "--batch-script": "gctl script JOB prints a job's script",
	"--env-vars": "gctl script JOB --json has a job's environment", "-c": "-o chooses columns: gctl acct --helpformat lists them",
	"-x": "gctl account list shows associations; -A and -u choose jobs by them", "--associations": "gctl account list shows associations; -A and -u choose jobs by them",
	"-V": "gctl version", "--version": "gctl version", "--yaml": "--json prints JSON",
}

// wholeJob is the job that a step belongs to: 123.batch, 123_4.0.
func wholeJob(id string) string {
	job, step, found := strings.Cut(id, ".")
	if _, err := cluster.ParseStep(step); found && (err == nil || step == BatchStep || step == "extern") {
		return job
	}
	return id
}

func (t command) printAcct(ctx context.Context, c ui.Cluster, q Question, style Style) error {
	if len(q.Filter.Jobs) == 0 && !q.AtTheTime {
		whose := "jobs"
		if q.Filter.Mine {
			whose = "your jobs"
		}
		t.Note("%s since %s; -S asks for earlier ones%s", whose, q.Since.Format(ui.TimeLayout), others(q.Filter))
	}
	found, err := Print(ctx, t.Process, c, q, style)
	if err == nil && found == 0 && len(q.Filter.Jobs) > 0 {
		t.Note("no such job, or not visible to you")
	}
	if err == nil && found == 0 {
		t.WarnUnknown(ctx, c, q.Filter)
	}
	return err
}

func others(f *greylagv1.Filter) string {
	if f.Mine {
		return ", -a for those of others"
	}
	return ""
}

// flags has them all. A second name that sacct knows means the first.
func (o *acctOptions) flags(f *pflag.FlagSet) {
	same := map[string]string{
		"uid": "user", "users": "user", "account": "accounts", "partitions": "partition", "states": "state", "start": "starttime", "end": "endtime",
		"job": "jobs", "nodes": "nodelist", "jobname": "name", "fields": "format", "gid": "group", "cluster": "clusters",
	}
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if first, ok := same[name]; ok {
			name = first
		}
		return pflag.NormalizedName(name)
	})
	f.StringArrayVarP(&o.jobs, "jobs", "j", nil, "these `IDS`: 123,124_5,125_[2-5]")
	f.StringSliceVarP(&o.users, "user", "u", nil, "of these `USERS`, by name or number")
	f.BoolVarP(&o.all, "allusers", "a", false, "of all users")
	f.StringSliceVarP(&o.accounts, "accounts", "A", nil, "of these `ACCOUNTS`")
	f.StringSliceVarP(&o.partitions, "partition", "r", nil, "in these `PARTITIONS`")
	f.StringSliceVarP(&o.qos, "qos", "q", nil, "of these `QOS`")
	f.StringArrayVarP(&o.states, "state", "s", nil, "in these `STATES`: COMPLETED,F,TO,...")
	f.StringSliceVar(&o.names, "name", nil, "with these `NAMES`")
	f.StringArrayVarP(&o.nodes, "nodelist", "N", nil, "that ran on these `NODES`: gpu[001-004]")
	f.StringVarP(&o.start, "starttime", "S", "", "start `TIME` [midnight]")
	f.StringVarP(&o.end, "endtime", "E", "", "end `TIME` [now]")
	f.StringVarP(&o.format, "format", "o", "", "these `FIELDS`: JobID,State%20,Elapsed")
	f.BoolVarP(&o.long, "long", "l", false, "many fields")
	f.BoolVarP(&o.brief, "brief", "b", false, "ID, state and exit code only")
	f.BoolVarP(&o.helpFormat, "helpformat", "e", false, "list the fields")
	f.BoolVarP(&o.parsable, "parsable", "p", false, "separate fields with |, with a trailing |")
	f.BoolVarP(&o.parsable2, "parsable2", "P", false, "separate fields with |")
	f.StringVar(&o.delimiter, "delimiter", "|", "field separator `TEXT` instead of |")
	f.BoolVarP(&o.noHeader, "noheader", "n", false, "no header line")
	f.BoolVarP(&o.duplicates, "duplicates", "D", false, "also one line per earlier attempt of a job")
	f.BoolVarP(&o.allocations, "allocations", "X", false, "one line per job (the default)")
	f.BoolVar(&o.steps, "steps", false, "also one line for the script and for each step of a job that ran")
	f.BoolVarP(&o.truncate, "truncate", "T", false, "truncate times to the interval")
	f.StringVar(&o.units, "units", "", "sizes in this `UNIT`: K, M, G, T or P")
	f.BoolVar(&o.noConvert, "noconvert", false, "sizes as stored, without conversion")
	f.StringSliceVarP(&o.groups, "group", "g", nil, "of these `GROUPS`, by name or number")
	f.StringSliceVarP(&o.clusters, "clusters", "M", nil, "cluster `NAME`: this cluster or all")
	for _, nothing := range [...]string{"local", "federation", "array"} {
		f.Bool(nothing, false, "")
		_ = f.MarkHidden(nothing) // there is one cluster, and elements have lines; scripts say so
	}
	f.BoolVar(&o.me, "me", false, "only your jobs (the default)")
	f.BoolP("allclusters", "L", false, "")
	_ = f.MarkHidden("allclusters")
}

// question is which jobs the options mean.
func (o *acctOptions) question(args []string, now time.Time) (q Question, err error) {
	f := &greylagv1.Filter{Accounts: o.accounts, Partitions: o.partitions, Qos: o.qos, Names: o.names}
	q = Question{Filter: f, AtTheTime: o.start != "" || o.end != ""}
	for _, list := range slices.Concat(o.jobs, args) {
		words := strings.Split(list, ",")
		for i := range words {
			words[i] = wholeJob(words[i])
		}
		refs, err := ui.Refs([]string{strings.Join(words, ",")})
		if err != nil {
			return q, err
		}
		f.Jobs = append(f.Jobs, refs...)
	}
	for _, name := range o.users {
		if f.Users, err = appendUser(f.Users, name); err != nil {
			return q, err
		}
	}
	if q.Groups, err = groupsOf(o.groups); err != nil {
		return q, err
	}
	if !slices.Contains(o.clusters, "all") {
		q.Clusters = o.clusters
	}
	f.Mine = o.me || len(o.users)+len(o.groups) == 0 && !o.all && len(f.Jobs) == 0
	if len(o.states) > 0 {
		if f.States, err = States(strings.Join(o.states, ",")); err != nil {
			return q, err
		}
	}
	for _, list := range o.nodes {
		names, err := hostlist.Expand(list)
		if err != nil || len(names) == 0 {
			return q, &ui.UsageError{Problem: fmt.Sprintf("not a list of nodes: %q", list), Advice: "use a host list such as gpu[001-004],login1"}
		}
		f.Nodes = append(f.Nodes, names...)
	}
	start := o.start
	if start == "" && len(f.Jobs) == 0 {
		start = "midnight"
	}
	return q, o.interval(&q, start, now)
}

func (o *acctOptions) interval(q *Question, start string, now time.Time) (err error) {
	if start != "" {
		if q.Since, err = ui.ParseTime(start, now); err != nil {
			return err
		}
	}
	if o.end != "" {
		if q.Until, err = ui.ParseTime(o.end, now); err != nil {
			return err
		}
		if q.Until.Before(q.Since) {
			advice := "swap --starttime and --endtime"
			if o.start == "" {
				advice = "set --starttime: the default is midnight today"
			}
			return &ui.UsageError{Problem: "the interval ends before it begins", Advice: advice}
		}
	}
	return nil
}

// appendUser adds a user who is given by name or by number.
func appendUser(names []string, word string) ([]string, error) {
	if _, err := strconv.ParseUint(word, 10, 32); err != nil {
		return append(names, word), nil
	}
	u, err := user.LookupId(word)
	if err != nil {
		return nil, &ui.UsageError{Problem: "no user on this host has the UID " + word, Advice: "name the user"}
	}
	return append(names, u.Username), nil
}

// groupsOf are groups by name or by number; nil when none are named.
func groupsOf(words []string) (list []uint32, err error) {
	for _, word := range words {
		if g, err := user.LookupGroup(word); err == nil {
			word = g.Gid
		}
		n, err := strconv.ParseUint(word, 10, 32)
		if err != nil {
			return nil, &ui.UsageError{Problem: "this host has no group " + word, Advice: "use the numeric group ID"}
		}
		list = append(list, uint32(n))
	}
	return list, nil
}

// style is how the options want the answer.
func (o *acctOptions) style(environ []string) (Style, error) {
	s := Style{Format: o.format, Delimiter: o.delimiter, NoHeader: o.noHeader, Earlier: o.duplicates, Steps: o.steps && !o.allocations, Truncate: o.truncate}
	switch {
	case o.long:
		s.Format = LongFormat
	case o.brief:
		s.Format = BriefFormat
	case s.Format == "":
		s.Format = UsualFormat
		for _, pair := range environ {
			if value, ok := strings.CutPrefix(pair, "SACCT_FORMAT="); ok && value != "" {
				s.Format = value
			}
		}
	}
	switch {
	case o.parsable:
		s.Layout = Parsable
	case o.parsable2:
		s.Layout = Parsable2
	}
	if o.noConvert {
		s.Unit = Unconverted
	}
	if o.units != "" {
		if len(o.units) != 1 || !strings.Contains("KMGTP", strings.ToUpper(o.units)) {
			return s, &ui.UsageError{Problem: fmt.Sprintf("not a unit: %q", o.units), Advice: "write K, M, G, T or P"}
		}
		s.Unit = strings.ToUpper(o.units)[0]
	}
	return s, nil
}
