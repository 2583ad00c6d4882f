package gsim

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/internal/sim/faultsim"
	"github.com/greylag/greylag/internal/sim/oracle"
	"github.com/greylag/greylag/internal/sim/trace"
	"github.com/greylag/greylag/pkg/cluster"
)

// replaying is one run of gsim replay.
type replaying struct {
	*tool
	machine
	rules
	trials
	table     string
	bad       string
	sort      bool
	procs     string
	estimates string
	seed      uint64
	events    string
	csv, svg  string
	check     bool
	progress  bool
	first     int
}

func (t *tool) replay() *cobra.Command {
	r := &replaying{tool: t}
	c := &cobra.Command{
		Use: "replay TRACE", Args: cobra.ExactArgs(1),
		Short: "Replay a log of a real workload",
		Long: "Run a log of a real workload through the production state and scheduler in virtual time.\n\n" +
			"TRACE is a log in the Standard Workload Format, a table with a header such as\n" +
			"id,submit,run,gpus,est,user,account, or an archive of such tables; gzip is fine.\n" +
			"If no machine is described, it is a log's MaxProcs. See docs/gsim.md.",
		RunE: func(c *cobra.Command, args []string) error { return r.run(c, args[0]) },
	}
	r.machine.flags(c)
	r.rules.flags(c)
	r.trials.flags(c)
	f := c.Flags()
	f.StringVar(&r.table, "cluster", "", "table of an archive")
	f.StringVar(&r.bad, "bad", "refuse", "invalid lines: refuse (the log) or skip")
	f.BoolVar(&r.sort, "sort", false, "sort jobs by submission first")
	f.StringVar(&r.procs, "processors", "cpu", "meaning of a log's processors: cpu or gpu")
	f.StringVar(&r.estimates, "estimates", "", "SWF log whose users' requested times are drawn for jobs without one")
	f.Uint64Var(&r.seed, "seed", 1, "seed of --estimates and --faults")
	f.StringVar(&r.events, "events", "production", "production, or oracle: the order of events of published schedules (needs --flat)")
	f.StringVar(&r.csv, "csv", "", "write one line per job to this file; - is standard output")
	f.StringVar(&r.svg, "svg", "", "draw the schedule into this file")
	f.BoolVar(&r.check, "check", false, "check all invariants after every command: slow")
	f.BoolVar(&r.progress, "progress", false, "show progress even if standard error is not a terminal")
	f.IntVar(&r.first, "first", 0, "read only the first N jobs of the log")
	return c
}

func (r *replaying) run(c *cobra.Command, name string) error {
	if err := r.words(); err != nil {
		return err
	}
	if c.Flags().Changed("grant") && r.price == "" {
		return &ui.UsageError{Problem: "--grant " + r.grant + " without --price has no effect", Advice: "add a price, such as --price 2"}
	}
	trials, err := r.trials.read(r.seed, r.check)
	if err != nil {
		return err
	}
	fleet, err := r.fleet()
	if err != nil {
		return err
	}
	for _, odd := range r.warnings {
		r.Warn(odd)
	}
	log, fleet, err := r.read(name, fleet)
	if err != nil {
		return err
	}
	if err := r.priced(trials, fleet); err != nil {
		return err
	}
	policy, err := r.rules.apply(c)
	if err != nil {
		return err
	}
	if policy.Credits.On && r.price == "" { // the users of a log have no credits
		r.Note("credits are not simulated without --price: the policy's [credits] is off")
		policy.Credits.On = false
	}
	out, err := r.simulate(log, fleet, policy, trials)
	if err != nil {
		return err
	}
	return r.write(name, log, out, r.settings(policy))
}

// words checks options that take one of a few words.
func (r *replaying) words() error {
	for _, x := range []struct{ name, word, a, b string }{
		{"bad", r.bad, "refuse", "skip"}, {"processors", r.procs, "cpu", "gpu"}, {"events", r.events, "production", "oracle"},
	} {
		if x.word != x.a && x.word != x.b {
			return &ui.UsageError{Problem: "--" + x.name + " " + x.word + " is not known", Advice: "write " + x.a + " or " + x.b}
		}
	}
	switch {
	case r.first < 0:
		return &ui.UsageError{Problem: fmt.Sprintf("--first %d is not a number of jobs", r.first), Advice: "0 is all jobs of the log"}
	case r.depth < cluster.Unlimited:
		return &ui.UsageError{Problem: fmt.Sprintf("--depth %d is not a number of jobs", r.depth), Advice: "-1 is all pending jobs"}
	}
	if r.events == "oracle" {
		switch {
		case r.faults != "" || r.price != "":
			return &ui.UsageError{Problem: "--events oracle does not support faults and prices", Advice: "leave it out"}
		case r.flat == 0:
			return &ui.UsageError{Problem: "--events oracle supports interchangeable processors only", Advice: "describe the machine with --flat"}
		case r.policy != "conservative" && r.policy != "easy" && r.policy != "fcfs":
			return &ui.UsageError{Problem: "unknown policy " + r.policy, Advice: "write conservative, easy or fcfs"}
		}
	}
	return nil
}

// read reads the log, and returns the machine of its header if none was described.
func (r *replaying) read(name string, fleet *sim.Machine) (*trace.Trace, *sim.Machine, error) {
	o := trace.Options{Member: r.table, Skip: r.bad == "skip", Sort: r.sort}
	if fleet != nil {
		o.Largest = trace.Size{Procs: orNone(fleet.CPUs()), GPUs: orNone(fleet.GPUs())}
		if r.procs == "gpu" {
			o.Largest.Procs = o.Largest.GPUs
		}
	}
	log, err := readLog(name, o)
	if err != nil {
		return nil, nil, err
	}
	if fleet == nil {
		if log.MaxProcs == 0 {
			return nil, nil, &ui.UsageError{Problem: "no machine is described", Advice: "describe it with --flat, --nodes or --machine"}
		}
		r.flat = log.MaxProcs
		fleet, o.Largest.Procs = sim.Flat(log.MaxProcs), log.MaxProcs
		if log, err = readLog(name, o); err != nil {
			return nil, nil, err
		}
	}
	if r.first > 0 && r.first < len(log.Jobs) {
		log.Jobs = log.Jobs[:r.first]
	}
	if r.estimates != "" {
		model, err := readLog(r.estimates, trace.Options{Skip: true, Sort: true})
		if err != nil {
			return nil, nil, err
		}
		trace.NewModel(model).Apply(log, r.seed)
		r.Note("requested times are drawn from those of %s, seed %d", filepath.Base(r.estimates), r.seed)
	}
	r.say(log)
	return log, fleet, nil
}

// orNone returns the largest size of a job; -1, none, for a machine without.
func orNone(n int32) int32 {
	if n == 0 {
		return -1
	}
	return n
}

// say prints what was changed in a log.
func (r *replaying) say(log *trace.Trace) {
	if log.Bad.Count > 0 {
		r.Warn(ui.Count(int64(log.Bad.Count), "line") + " left out as invalid")
		for _, line := range strings.Split(log.Bad.String(), "\n") {
			r.Warn(line)
		}
	}
	if log.Capped > 0 {
		r.Note("%s ran for longer than requested: killed at the requested time", ui.Count(int64(log.Capped), "job"))
	}
	if log.Guessed > 0 && r.estimates == "" {
		r.Note("%s without a requested time: the run time is used", ui.Count(int64(log.Guessed), "job"))
	}
}

func readLog(name string, o trace.Options) (*trace.Trace, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, &ui.UsageError{Problem: err.Error()}
	}
	defer f.Close()
	log, err := trace.Read(f, o)
	if errors.Is(err, trace.ErrNoGPUs) {
		return nil, &ui.UsageError{Problem: fmt.Sprintf("%s: %v", name, err), Advice: "describe a machine with GPUs: --nodes N --gpus-per-node 8, or --machine"}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return log, nil
}

func (r *replaying) options() sim.Options {
	o := sim.Options{Check: r.check}
	if r.progress || r.terminal() {
		began := time.Now()
		o.Progress = func(done, total int, _ cluster.Instant) {
			fmt.Fprintf(r.Stderr, "gsim: %d of %d jobs have ended, %s\n", done, total, time.Since(began).Round(time.Second))
		}
	}
	return o
}

// simulate replays the log as the options say.
func (r *replaying) simulate(log *trace.Trace, fleet *sim.Machine, policy *cluster.Policy, trials *faultsim.Options) (*sim.Outcome, error) {
	if r.events == "oracle" {
		a := map[string]oracle.Algorithm{"conservative": oracle.Conservative, "easy": oracle.EASY, "fcfs": oracle.FCFS}[r.policy]
		return sim.ReplayPublished(log, r.flat, a)
	}
	jobs := sim.Workload(log, fleet, r.procs == "gpu")
	if trials != nil {
		return faultsim.Replay(fleet, policy, jobs, trials, r.options())
	}
	return sim.Replay(fleet, policy, jobs, r.options())
}

// write writes the requested output.
func (r *replaying) write(name string, log *trace.Trace, out *sim.Outcome, under settings) error {
	summary := sim.Summarise(out)
	if r.csv != "" {
		if err := r.tool.file(r.csv, func(w io.Writer) error { return sim.WriteCSV(w, out.Results) }); err != nil {
			return err
		}
	}
	if r.svg != "" {
		title := fmt.Sprintf("%s: %d jobs, utilization %.1f %%, mean wait %.0f s", filepath.Base(name), summary.Ended, 100*summary.Utilisation, summary.Wait.Mean)
		if err := r.tool.file(r.svg, func(w io.Writer) error { return sim.WriteSVG(w, out, title) }); err != nil {
			return err
		}
	}
	switch {
	case r.json:
		return r.WriteJSON(struct {
			Trace    string   `json:"trace"`
			Skipped  int      `json:"skipped_lines"`
			Settings settings `json:"settings"`
			sim.Summary
		}{filepath.Base(name), log.Bad.Count, under, summary})
	case r.csv == "-" || r.svg == "-":
		return nil
	}
	return r.Facts(filepath.Base(name), facts(&summary, &under))
}

// file writes a file, or standard output for -.
func (t *tool) file(name string, write func(io.Writer) error) error {
	if name == "-" {
		return write(t.Stdout)
	}
	return ui.WriteFile(name, write)
}
