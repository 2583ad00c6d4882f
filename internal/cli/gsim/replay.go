package gsim

import (
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/internal/sim/cloudsim"
	"github.com/greylag/greylag/internal/sim/faultsim"
	"github.com/greylag/greylag/internal/sim/oracle"
	"github.com/greylag/greylag/internal/sim/trace"
	"github.com/greylag/greylag/pkg/cluster"
)

// replaying is one run of gsim replay.
type replaying struct {
	input
	rules
	trials
	clouds
	bursting
	events   string
	csv, svg string
	check    bool
}

func (t *tool) replay() *cobra.Command {
	r := &replaying{input: input{tool: t}}
	c := &cobra.Command{
		Use: "replay TRACE", Args: cobra.ExactArgs(1),
		Short: "Replay a log of a real workload",
		Long: "Run a log of a real workload through the production state and scheduler in virtual time.\n\n" +
			"TRACE is a log in the Standard Workload Format, a table with a header such as\n" +
			"id,submit,run,gpus,est,user,account, or an archive of such tables; gzip is fine.\n" +
			"If no machine is described, it is a log's MaxProcs. See docs/gsim.md.",
		RunE: func(c *cobra.Command, args []string) error { return r.run(c, args[0]) },
	}
	r.input.flags(c)
	r.rules.flags(c)
	r.trials.flags(c)
	r.clouds.flags(c, "burst", "; all jobs may then run on leased nodes")
	r.bursting.flags(c)
	f := c.Flags()
	f.StringVar(&r.order, "order", orderPriority, "order of jobs: priority (age, fair share, QOS...) or fcfs: by submission")
	f.StringVar(&r.horizon, "promise-horizon", "", "window in which planned starts are promises: a time, 0 or unlimited")
	f.StringVar(&r.events, "events", "production", "production, or oracle: the order of events of published schedules (needs --flat)")
	f.StringVar(&r.csv, "csv", "", "write one line per job to this file; - is standard output")
	f.StringVar(&r.svg, "svg", "", "draw the schedule into this file")
	f.BoolVar(&r.check, "check", false, "check all invariants after every command: slow")
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
	policy, err := r.rules.apply(c)
	if err != nil {
		return err
	}
	if err := r.bursting.applyTo(policy); err != nil {
		return err
	}
	log, fleet, err := r.load(name)
	if err != nil {
		return err
	}
	if err := r.priced(trials, fleet); err != nil {
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
	if err := r.input.words(); err != nil {
		return err
	}
	if err := oneOf("events", r.events, "production", "oracle"); err != nil {
		return err
	}
	if r.offers != "" && (r.faults != "" || r.trials.price != "") {
		return &ui.UsageError{Problem: "--burst does not support faults and prices", Advice: "leave --faults and --price out"}
	}
	if r.events == "oracle" {
		switch {
		case r.offers != "":
			return &ui.UsageError{Problem: "--events oracle does not support --burst", Advice: "leave it out"}
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

func (r *replaying) options() sim.Options {
	o := sim.Options{Check: r.check}
	if r.showsProgress() {
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
	kinds, err := r.clouds.read("burst", nil)
	if err != nil {
		return nil, err
	}
	if len(kinds) > 0 {
		return cloudsim.Replay(fleet, policy, jobs, &cloudsim.Options{Kinds: kinds, Seed: r.seed}, r.options())
	}
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
	switch {
	case name != "-":
		return ui.WriteFile(name, write)
	case t.json:
		return &ui.UsageError{Problem: "--json and - both write to standard output", Advice: "name a file instead of -"}
	}
	return write(t.Stdout)
}
