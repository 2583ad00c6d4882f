package gsim

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/clusterdoc"
	"github.com/greylag/greylag/internal/sim/reliability"
	"github.com/greylag/greylag/pkg/cluster"
)

// reliable is one run of gsim reliability.
type reliable struct {
	*tool
	scenario string
	words    string
	seeds    string
	policy   string
	every    int
	shifts   bool
}

func (t *tool) reliability() *cobra.Command {
	r := &reliable{tool: t}
	var about strings.Builder
	for _, s := range reliability.Scenarios() {
		fmt.Fprintf(&about, "  %-13s %s\n", s.Name, s.About)
	}
	c := &cobra.Command{
		Use: "reliability", Args: cobra.NoArgs,
		Short: "Measure the effective time of a large job under hardware failures",
		Long: "Run a cluster with failing hardware through the production state and scheduler, once for\n" +
			"each seed, and print how much of its time a large job works, how long its restarts take,\n" +
			"and what each cause of failure costs. The runs use all cores. Scenarios:\n\n" + about.String() +
			"\n--model changes parameters of a scenario; docs/gsim.md lists them.",
		RunE: func(_ *cobra.Command, _ []string) error { return r.run() },
	}
	f := c.Flags()
	f.StringVar(&r.scenario, "scenario", "month", "scenario of the list above")
	f.StringVar(&r.words, "model", "", "parameters, such as rate=21,interval=1h (see docs/gsim.md)")
	f.StringVar(&r.seeds, "seeds", "1", "random seed, or a range of them such as 1-100")
	f.StringVar(&r.policy, "policy-file", "", "the cluster's policy, as for gctl apply")
	f.IntVar(&r.every, "check-every", 0, "check all invariants each time after this many commands; 0: only at the end")
	f.BoolVar(&r.shifts, "double", false, "also double each parameter that is an estimate, and print how far the results move")
	return c
}

func (r *reliable) run() error {
	m, err := r.model()
	if err != nil {
		return err
	}
	seeds, err := r.seedRange()
	if err != nil {
		return err
	}
	policy := cluster.DefaultPolicy()
	if r.policy != "" {
		text, err := os.ReadFile(r.policy)
		if err != nil {
			return &ui.UsageError{Problem: err.Error()}
		}
		if policy, err = clusterdoc.ReadPolicy(r.policy, text); err != nil {
			return err
		}
	}
	if r.shifts {
		return r.double(m, &policy, seeds)
	}
	runs, err := reliability.RunSeeds(m, &policy, seeds, r.every, func(done int) {
		if r.terminal() {
			fmt.Fprintf(r.Stderr, "\rgsim: %d of %d seeds", done, seeds.Last-seeds.First+1)
		}
	})
	if r.terminal() {
		fmt.Fprintln(r.Stderr)
	}
	if err != nil {
		return r.replayable(err)
	}
	s := reliability.Summarize(m, runs)
	if r.json {
		return r.WriteJSON(s)
	}
	return r.WriteTable(ui.Table{Head: []string{"FIGURE", "VALUE"}, Rows: figures(m, s)})
}

// model returns the model of the options.
func (r *reliable) model() (*reliability.Model, error) {
	m := reliability.Default()
	list := reliability.Scenarios()
	at := slices.IndexFunc(list, func(s reliability.Scenario) bool { return s.Name == r.scenario })
	if at < 0 {
		return nil, &ui.UsageError{Problem: fmt.Sprintf("--scenario %s is not known", r.scenario), Advice: "see gsim reliability --help"}
	}
	if err := errors.Join(m.Set(list[at].Words), m.Set(r.words)); err != nil {
		return nil, &ui.UsageError{Problem: "--" + err.Error()}
	}
	return &m, nil
}

// seedRange returns the seeds of the option.
func (r *reliable) seedRange() (reliability.Range, error) {
	first, last, isRange := strings.Cut(r.seeds, "-")
	if !isRange {
		last = first
	}
	from, err1 := strconv.ParseUint(first, 10, 32)
	to, err2 := strconv.ParseUint(last, 10, 32)
	if err1 != nil || err2 != nil || to < from {
		return reliability.Range{}, &ui.UsageError{Problem: fmt.Sprintf("--seeds %s is not a seed or a range", r.seeds), Advice: "write --seeds 7 or --seeds 1-100"}
	}
	return reliability.Range{First: from, Last: to}, nil
}

// replayable adds the command that replays the first failed seed.
func (r *reliable) replayable(err error) error {
	var failed *reliability.SeedError
	if !errors.As(err, &failed) {
		return err
	}
	command := fmt.Sprintf("gsim reliability --scenario %s --check-every %d --seeds %d", r.scenario, max(r.every, 1), failed.Seed)
	var doubled *reliability.DoubledError
	model := r.words
	if errors.As(err, &doubled) {
		model = strings.TrimPrefix(model+","+doubled.Word, ",")
	}
	if model != "" {
		command += " --model " + model
	}
	if r.policy != "" {
		command += " --policy-file " + r.policy
	}
	return fmt.Errorf("%w\nreplay: %s", err, command)
}

// double prints the results with each estimate doubled.
func (r *reliable) double(m *reliability.Model, p *cluster.Policy, seeds reliability.Range) error {
	base, list, err := reliability.Shifts(m, p, seeds, func(name string) {
		if r.terminal() {
			fmt.Fprintf(r.Stderr, "gsim: %s doubled\n", name)
		}
	})
	if err != nil {
		return r.replayable(err)
	}
	if r.json {
		return r.WriteJSON(struct {
			Base   *reliability.Summary `json:"base"`
			Shifts []reliability.Shift  `json:"shifts"`
		}{base, list})
	}
	t := ui.Table{Head: []string{"PARAMETER", "FROM", "TO", "EFFECTIVE", "FAILURES", "RESTART", "LOST"}, Right: "lllrrrr"}
	row := func(name, from, to string, effective, failures, restart, lost float64) {
		t.Rows = append(t.Rows, []string{
			name, from, to, percent(effective), fmt.Sprintf("%.1f", failures), reliability.Seconds(restart).String(), fmt.Sprintf("%.2f %%", lost),
		})
	}
	row("none", "", "", base.Effective.Mean, base.GangFailures, base.Restarts.P50, base.LostPercent())
	for _, s := range list {
		row(s.Name, s.From, s.To, s.After, s.Failures, s.Restart, s.Lost)
	}
	return r.WriteTable(t)
}

func percent(part float64) string { return fmt.Sprintf("%.2f %%", 100*part) }

// figures returns a summary as text.
func figures(m *reliability.Model, s *reliability.Summary) [][]string {
	times := func(x reliability.Spread) string {
		return fmt.Sprintf("mean %s, p50 %s, p90 %s, p99 %s, max %s", reliability.Seconds(x.Mean), reliability.Seconds(x.P50), reliability.Seconds(x.P90), reliability.Seconds(x.P99), reliability.Seconds(x.Max))
	}
	rows := [][]string{
		{"runs", fmt.Sprintf("%s of %s, %s", ui.Count(int64(s.Seeds), "seed"), m.Days, ui.Count(int64(s.Commands), "command"))},
		{"node failures", fmt.Sprintf("%.1f a run, %.1f per 1,000 node-days; %.1f nodes fail often, %.1f of them were found, and %.1f others", s.NodeFailures, 1000*s.NodeFailures/s.NodeDays, s.Often, s.OftenFound, s.OftenFalse)},
	}
	if m.Gang > 0 {
		rows = append(rows, []string{"effective time", fmt.Sprintf("mean %s, minimum %s of %d nodes", percent(s.Effective.Mean), percent(s.Effective.Min), m.Gang)},
			[]string{"its failures", fmt.Sprintf("%.1f a run, %.1f from day 10 on; held %d, failed %d in all runs", s.GangFailures, s.FromDay10, s.GangHeld, s.GangFailed)},
			[]string{"restart", times(s.Restarts)},
			[]string{"nodes found", times(s.Placed) + fmt.Sprintf("; %s within 60s, %s within 60s after the backoff", percent(s.PlacedIn60), percent(s.WaitedIn60))},
			[]string{"work repeated", times(s.Repeated)})
	}
	var sizes []string
	for _, nodes := range slices.Sorted(maps.Keys(s.MTTF)) {
		sizes = append(sizes, fmt.Sprintf("%s %.1fh", ui.Count(int64(nodes), "node"), s.MTTF[nodes]))
	}
	var lost []string
	for _, cause := range slices.Sorted(maps.Keys(s.Lost)) {
		lost = append(lost, fmt.Sprintf("%s %.3f %%", cause, s.Lost[cause]))
	}
	return append(rows,
		[]string{"time to failure", strings.Join(sizes, ", ")},
		[]string{"GPU-hours lost", fmt.Sprintf("%.2f %% of %.0f a run: ", s.LostPercent(), s.GPUHours) + strings.Join(lost, ", ")},
		[]string{"checkpoints", fmt.Sprintf("writing them takes %.3f %% of the GPU-hours", s.Writes)},
		[]string{"other jobs", fmt.Sprintf("%.0f a run; held %d, failed %d in all runs; longest wait p50 %s, max %s", s.Jobs, s.Held-s.GangHeld, s.Failed-s.GangFailed, reliability.Seconds(s.LongestWait.P50), reliability.Seconds(s.LongestWait.Max))},
		[]string{"preemptions", fmt.Sprintf("%.1f a run for %.1f jobs, %d of them did not start; at most %d of a job in 24h; %.3f %% of the GPU-hours repeated", s.Preempted, s.Preemptors, s.NotStarted, s.MostPreempt, s.RepeatedPercent["preemption"])},
		[]string{"drains", fmt.Sprintf("at most %d in 10m for one cause; %.1f resumed by operators a run, %.1f nodes drained at the end", s.MostDrained, s.Resumed, s.Drained)},
	)
}
