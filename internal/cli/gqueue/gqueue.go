// Package gqueue lists jobs, as squeue does: once, or again on each change.
//
// It has an option parser of our own, not cobra: scripts start it thousands of times.
package gqueue

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/jobscript/getopt"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

const usageText = `usage: gqueue [OPTIONS]

Shows pending and running jobs. Pending elements of an array with the same
reason share one line, with the earliest start; -r prints one line per
element. Without -o, -O, -l, --start and --json the columns are those of
GQUEUE_FORMAT, or of SQUEUE_FORMAT, written as for -o.
`

func options() []getopt.Option {
	return append(ui.FilterOptions(),
		getopt.Option{Long: "all", Short: 'a'}, // squeue's: hidden partitions too, which do not exist here
		getopt.Option{Long: "array", Short: 'r', Group: "Output", Help: "one line for each element of an array"},
		getopt.Option{Long: "start", Group: "Output", Help: "when pending jobs are planned to start"},
		getopt.Option{Long: "tree", Group: "Output", Help: "show jobs as a dependency tree"},
		getopt.Option{Long: "why", Group: "Output", Help: "print the reason below each pending job"},
		getopt.Option{Long: "long", Short: 'l', Group: "Output", Help: "full state names and time limits"},
		getopt.Option{Long: "format", Short: 'o', Value: "FORMAT", Group: "Output", Help: "columns, as in squeue -o: \"%.10i %9P %.8j %t %R\""},
		getopt.Option{Long: "Format", Short: 'O', Value: "FIELDS", Group: "Output", Help: "columns, as in squeue -O: jobid:10,name,state"},
		getopt.Option{Long: "sort", Short: 'S', Value: "KEYS", Group: "Output", Help: "sort keys: letters of -o, prefix - reverses [P,t,i]"},
		getopt.Option{Long: "noheader", Short: 'h', Group: "Output", Help: "no header line"},
		getopt.Option{Long: "json", Group: "Output", Help: "print JSON"},
		getopt.Option{Long: "iterate", Short: 'i', Value: "SECONDS", Group: "Other options", Help: "refresh after changes, at most every SECONDS"},
		getopt.Option{Long: "stale", Group: "Other options", Help: "accept possibly stale data from any controller"},
		getopt.Option{Long: "help", Group: "Other options", Help: "print this"},
		getopt.Option{Long: "version", Short: 'V', Group: "Other options", Help: "print the version"},
	)
}

// listing is the request on the command line.
type listing struct {
	filter   *greylagv1.Filter
	format   string // "" means the fitted table
	long     bool
	start    bool
	why      bool
	tree     bool
	single   bool // no folding of arrays
	noHeader bool
	json     bool
	stale    bool
	sort     []sortKey
	asOf     *greylagv1.AsOf  // of the answer; nil when it is unknown
	ranked   map[uint64]int64 // priorities of pending jobs, if requested
	waited   dependencies     // if the listing explains pending jobs
	every    time.Duration    // 0: once
}

// command is one run of gqueue.
type command struct{ *ui.Process }

// Run runs gqueue and returns its exit status.
func Run(ctx context.Context, p *ui.Process) int { return p.Finish(ctx, command{p}.run(ctx)) }

func (p command) run(ctx context.Context) error {
	if p.Completing() {
		return p.Complete(ctx, ui.Completion{Table: options(), Operands: func(context.Context, ui.Cluster) []string { return nil }})
	}
	if err := p.CheckWords(); err != nil {
		return err
	}
	found, operands, err := getopt.Parse(options(), p.Args, getopt.Anywhere)
	if err != nil {
		return err
	}
	if len(operands) > 0 {
		return &ui.UsageError{Problem: fmt.Sprintf("unexpected argument %q", operands[0]), Advice: "select jobs by ID with -j " + operands[0]}
	}
	l, done, err := p.listing(found)
	if done || err != nil {
		return err
	}
	cfg, cluster, err := p.Client()
	if err != nil {
		return err
	}
	defer cluster.Close()
	l.json = l.json || cfg.Output == "json" && l.format == ""
	if l.every > 0 {
		return p.iterate(ctx, cfg, cluster, l)
	}
	jobs, asOf, err := l.fetch(ctx, cluster)
	if err != nil {
		return err
	}
	p.TellStale(asOf)
	if len(jobs) == 0 && len(l.filter.Jobs) > 0 && len(l.filter.States) == 0 && !l.filter.AllStates {
		p.Note("none of these jobs is active; gctl show job %s shows finished ones", l.filter.Jobs[0])
	}
	if len(jobs) == 0 && !l.stale {
		if err := p.UnknownNames(ctx, cluster, l.filter); err != nil {
			return err
		}
		p.WarnUnknown(ctx, cluster, l.filter)
	}
	planned, err := l.ask(ctx, cluster, jobs)
	if err != nil {
		return err
	}
	l.asOf = asOf
	return p.printQueue(cfg, l, jobs, planned)
}

// listing reads the options. done reports that everything was printed already.
func (p command) listing(found []getopt.Found) (l listing, done bool, err error) {
	l.sort = []sortKey{{'P', false}, {'t', false}, {'i', false}}
	l.filter, err = ui.ReadFilter(found)
	for _, f := range found {
		if err != nil {
			return l, false, err
		}
		switch f.Option.Long {
		case "array":
			l.single = true
		case "start":
			l.start = true
		case "why":
			l.why = true
		case "tree":
			l.tree = true
		case "long":
			l.long = true
		case "format":
			l.format = f.Value
		case "Format":
			l.format, err = longFormat(f.Value)
		case "sort":
			l.sort, err = parseSort(f.Value)
		case "noheader":
			l.noHeader = true
		case "json":
			l.json = true
		case "stale":
			l.stale = true
		case "iterate":
			l.every, err = parseSeconds(f.Value)
		case "help":
			_, err := io.WriteString(p.Stdout, usageText+getopt.Help(options())+queueLetters()+ui.StatusHelp())
			return l, true, err
		case "version":
			return l, true, p.PrintVersion()
		}
	}
	if err == nil && l.format == "" && !l.json && !l.long && !l.start {
		l.format = p.formatVariable()
	}
	if l.start {
		l.filter.States = []greylagv1.JobState{greylagv1.JobState_JOB_STATE_PENDING}
		l.sort = []sortKey{{'S', false}, {'i', false}}
	}
	return l, false, err
}

// formatVariable returns the format of the environment. An invalid one, since it is for squeue,
// must not block the queue.
func (p command) formatVariable() string {
	for _, name := range []string{"GQUEUE_FORMAT", "SQUEUE_FORMAT"} {
		format := p.Variable(name)
		if format == "" {
			continue
		}
		if _, err := parseFormat(format); err != nil {
			p.Warn(fmt.Sprintf("ignored %s: %v", name, err))
			continue
		}
		return format
	}
	return ""
}

func parseSeconds(word string) (time.Duration, error) {
	d, err := time.ParseDuration(word + "s")
	if err != nil || d <= 0 || d > 24*time.Hour {
		return 0, &ui.UsageError{Problem: fmt.Sprintf("not a number of seconds: %q", word), Advice: "write a number such as 5"}
	}
	return d, nil
}

// fetch returns the selected jobs, in the order of their IDs.
func (l listing) fetch(ctx context.Context, c ui.Cluster) ([]*greylagv1.Job, *greylagv1.AsOf, error) {
	brief := !l.json && l.format == "" && !l.why && !l.start && !l.tree
	return ui.FetchJobs(ctx, c, &greylagv1.ListJobsRequest{Filter: l.filter, Brief: brief, Fold: brief && !l.single, Read: &greylagv1.Read{Stale: l.stale}})
}

// ask fetches what is shown in addition to the jobs.
func (l *listing) ask(ctx context.Context, c ui.Cluster, jobs []*greylagv1.Job) (starts, error) {
	planned, err := l.starts(ctx, c)
	if err == nil {
		l.ranked, err = l.priorities(ctx, c)
	}
	if err == nil {
		l.waited, err = l.dependencies(ctx, c, jobs)
	}
	return planned, err
}

// printQueue prints jobs in the requested form.
func (p command) printQueue(cfg config.Client, l listing, jobs []*greylagv1.Job, planned starts) error {
	out := bufio.NewWriterSize(p.Stdout, 64<<10)
	if l.json {
		if err := writeJobsJSON(out, jobs, planned.json, l.asOf); err != nil {
			return err
		}
		return out.Flush()
	}
	rows := fold(jobs, l.single)
	if l.ranked != nil {
		rank(rows, l.ranked)
	}
	sortRows(rows, l.sort)
	if l.tree {
		rows = tree(rows)
	}
	v := view{now: p.Now(), starts: planned}
	columns, err := p.columns(cfg, l, &v, rows)
	if err != nil {
		return err
	}
	if !l.noHeader {
		writeHeader(out, columns)
	}
	var line []byte
	for i := range rows {
		line = writeRow(line[:0], columns, v, &rows[i])
		if l.why && rows[i].state == cluster.Pending {
			if why := l.waited.why(rows[i].job, v); why != "" {
				line = append(ui.AppendPrintable(append(line, "      "...), why), '\n')
			}
		}
		if _, err := out.Write(line); err != nil {
			return err
		}
	}
	return out.Flush()
}

// columns returns those of the requested format, or of the fitted table.
func (p command) columns(cfg config.Client, l listing, v *view, rows []row) ([]column, error) {
	if l.format != "" {
		return parseFormat(l.format)
	}
	width, edge := p.Width()
	letters := "iPjutMDR"
	switch {
	case l.start:
		letters, v.short = startLetters(width, edge)
		v.begin = true
	case l.long:
		letters = "iPjuTMlDR"
	}
	columns := fit(letters, *v, rows, width, edge)
	columns[0].Right = columns[0].Right && !l.tree
	if p.UseColour(cfg) {
		for i := range columns {
			columns[i].colour = strings.IndexByte("tT", columns[i].letter) >= 0
		}
	}
	return columns, nil
}

// iterate prints the table after each change. The cluster pushes changes; nothing polls.
func (p command) iterate(ctx context.Context, cfg config.Client, c ui.Cluster, l listing) error {
	active := make(map[uint64]*greylagv1.Job)
	complete, failed := make(chan []*greylagv1.Job), make(chan error, 1)
	if l.stale { // a watch needs a leader
		go func() { failed <- p.look(ctx, c, l, complete) }()
		return p.repaint(ctx, cfg, l, c, changes{complete, failed})
	}
	go func() { // ends with ctx, or with the watch
		request := &greylagv1.WatchJobsRequest{Filter: l.filter}
		present := false
		failed <- c.Watch(ctx, request, func(m *greylagv1.WatchJobsResponse) error {
			for _, j := range m.Jobs {
				note(active, j, l.filter)
			}
			if present = present || m.CaughtUp; !present {
				return nil
			}
			select {
			case complete <- snapshot(active):
			case <-ctx.Done():
			}
			return nil
		})
	}()
	return p.repaint(ctx, cfg, l, c, changes{complete, failed})
}

// look polls any controller for the jobs.
func (p command) look(ctx context.Context, c ui.Cluster, l listing, updates chan<- []*greylagv1.Job) error {
	for {
		jobs, asOf, err := l.fetch(ctx, c)
		if err != nil {
			return err
		}
		p.TellStale(asOf)
		select {
		case updates <- jobs:
		case <-ctx.Done():
			return nil
		}
		select {
		case <-time.After(l.every):
		case <-ctx.Done():
			return nil
		}
	}
}

// changes are the sets of jobs from a watch, and how it ended.
type changes struct {
	sets   <-chan []*greylagv1.Job
	failed <-chan error
}

// repaint prints the newest set, at most once in l.every.
func (p command) repaint(ctx context.Context, cfg config.Client, l listing, c ui.Cluster, updates changes) error {
	var newest []*greylagv1.Job
	var due <-chan time.Time
	fresh := false
	for {
		if fresh && due == nil {
			planned, err := l.ask(ctx, c, newest)
			if err != nil {
				return err
			}
			if !l.json { // which is for programs
				fmt.Fprintln(p.Stdout, p.Now().Format(time.ANSIC))
			}
			if err := p.printQueue(cfg, l, newest, planned); err != nil {
				return err
			}
			fresh, due = false, time.After(l.every)
		}
		select {
		case newest = <-updates.sets:
			fresh = true
		case <-due:
			due = nil
		case err := <-updates.failed:
			return err
		case <-ctx.Done():
			return ui.Exit(ui.Interrupted)
		}
	}
}

func snapshot(active map[uint64]*greylagv1.Job) []*greylagv1.Job {
	jobs := make([]*greylagv1.Job, 0, len(active))
	for _, j := range active {
		jobs = append(jobs, j)
	}
	return jobs
}

// note applies a watch's change of one job.
func note(active map[uint64]*greylagv1.Job, j *greylagv1.Job, f *greylagv1.Filter) {
	state, err := cluster.ParseJobState(wire.Word(j.State))
	if err == nil && state.Final() && len(f.States) == 0 && !f.AllStates {
		delete(active, j.Id)
		return
	}
	active[j.Id] = j
}
