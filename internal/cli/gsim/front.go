package gsim

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/picture"
	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/pkg/cluster"
)

// front is one run of gsim front.
type front struct {
	input
	rules
	orders   string
	ages     string
	maxAges  string
	horizons string
	svg      string
}

func (t *tool) front() *cobra.Command {
	r := &front{input: input{tool: t}, rules: rules{order: orderPriority}}
	c := &cobra.Command{
		Use: "front TRACE", Args: cobra.ExactArgs(1),
		Short: "Compare scheduling settings on a log",
		Long: "Replay a log once with each combination of the listed settings, and print slowdown, worst\n" +
			"wait and fairness of each. A setting is on the Pareto front, marked *, if no other is at least as\n" +
			"good in all three and better in one. TRACE, machine and policy are as for gsim replay.\n" +
			"The replays run on all cores; the result does not depend on their number.",
		RunE: func(c *cobra.Command, args []string) error { return r.run(c, args[0]) },
	}
	r.input.flags(c)
	r.rules.flags(c)
	f := c.Flags()
	f.StringVar(&r.orders, "order", "priority,fcfs", "job orders: priority, fcfs")
	f.StringVar(&r.ages, "age", "0,1000,3000,10000,30000", "age weights, for --order priority")
	f.StringVar(&r.maxAges, "max-age", "", "ages at which the age factor reaches 1 (default: the policy's)")
	f.StringVar(&r.horizons, "promise-horizon", "0,1h,1d,unlimited", "promise horizons: times, 0, unlimited; with --policy easy 0 by default")
	f.StringVar(&r.svg, "svg", "", "plot worst wait against slowdown as SVG into this file")
	return c
}

func (r *front) run(c *cobra.Command, name string) error {
	if err := r.words(); err != nil {
		return err
	}
	policy, err := r.rules.apply(c)
	if err != nil {
		return err
	}
	policy.Credits.On = false // the users of a log have no credits
	settings, err := r.settings(c, policy)
	if err != nil {
		return err
	}
	log, fleet, err := r.load(name)
	if err != nil {
		return err
	}
	jobs := sim.Workload(log, fleet, r.procs == "gpu")
	rows, err := sim.ReplayFront(fleet, policy, jobs, settings, func(done int) {
		if r.showsProgress() {
			fmt.Fprintf(r.Stderr, "gsim: %d of %d settings replayed\n", done, len(settings))
		}
	})
	if err != nil {
		return err
	}
	if r.svg != "" {
		p := scatterOf(fmt.Sprintf("%s: %s, %s", filepath.Base(name), ui.Count(int64(len(jobs)), "job"), ui.Count(int64(len(rows)), "setting")), rows)
		if err := r.tool.file(r.svg, p.WriteSVG); err != nil {
			return err
		}
	}
	switch {
	case r.json:
		return r.WriteJSON(frontOf(filepath.Base(name), log.Bad.Count, policy, rows))
	case r.svg == "-":
		return nil
	}
	return r.WriteTable(frontTable(rows))
}

// settings returns the combinations of the lists.
func (r *front) settings(c *cobra.Command, p *cluster.Policy) ([]sim.Setting, error) {
	if !c.Flags().Changed("max-age") {
		r.maxAges = lengthText(p.Scheduling.Weights.MaxAge)
	}
	if (r.rules.policy == "easy" || r.rules.policy == "fcfs") && !c.Flags().Changed("promise-horizon") {
		r.horizons = "0"
	}
	var g sim.Grid
	var err error
	if g.FCFS, err = list("order", r.orders, readOrder); err != nil {
		return nil, err
	}
	if g.Ages, err = list("age", r.ages, readWeight); err != nil {
		return nil, err
	}
	if g.MaxAges, err = list("max-age", r.maxAges, readTime); err != nil {
		return nil, err
	}
	if g.Horizons, err = list("promise-horizon", r.horizons, readHorizon); err != nil {
		return nil, err
	}
	return g.Settings()
}

// list reads the values of an option that are separated by commas. It refuses duplicates.
func list[T comparable](option, text string, read func(option, text string) (T, error)) ([]T, error) {
	var all []T
	seen := map[T]bool{}
	for word := range strings.SplitSeq(text, ",") {
		word = strings.TrimSpace(word)
		if word == "" {
			return nil, &ui.UsageError{Problem: "--" + option + " " + text + " lists an empty value", Advice: "write values separated by commas"}
		}
		v, err := read(option, word)
		if err != nil {
			return nil, err
		}
		if seen[v] {
			return nil, &ui.UsageError{Problem: "--" + option + " " + text + " lists " + word + " twice", Advice: "list each value once"}
		}
		seen[v] = true
		all = append(all, v)
	}
	return all, nil
}

// readOrder reads a word of --order. It reports whether the order is fcfs.
func readOrder(option, text string) (bool, error) {
	return text == orderFCFS, oneOf(option, text, orderPriority, orderFCFS)
}

// readWeight reads a weight. The policy bounds it.
func readWeight(option, text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, &ui.UsageError{Problem: "--" + option + " " + text + " is not a weight", Advice: "write whole numbers such as 0,1000,10000"}
	}
	return n, nil
}

// settingWords is a setting in the words of the options; empty if an option has no effect.
type settingWords struct {
	Order   string `json:"order"`
	Age     string `json:"age,omitempty"`
	MaxAge  string `json:"max_age,omitempty"`
	Horizon string `json:"promise_horizon"`
}

func wordsOf(s *sim.Setting) settingWords {
	w := settingWords{Order: orderPriority, Age: strconv.FormatInt(s.Age, 10), Horizon: lengthText(s.Horizon)}
	if s.FCFS {
		w.Order, w.Age = orderFCFS, ""
	}
	if s.Age > 0 {
		w.MaxAge = lengthText(s.MaxAge)
	}
	return w
}

// frontRow is a setting and its figures in JSON. Times are in seconds.
type frontRow struct {
	settingWords
	Slowdown  float64 `json:"mean_bounded_slowdown"`
	WorstWait float64 `json:"worst_wait"`
	Jain      float64 `json:"jain"`
	Made      int     `json:"promises_made"`
	Broken    int     `json:"promises_broken"`
	OnFront   bool    `json:"on_front"`
}

// frontResult is the JSON of a front.
type frontResult struct {
	Trace    string     `json:"trace"`
	Skipped  int        `json:"skipped_lines"`
	Settings settings   `json:"settings"` // those that all rows share
	Rows     []frontRow `json:"rows"`
}

func frontOf(trace string, skipped int, p *cluster.Policy, rows []sim.FrontRow) frontResult {
	f := frontResult{Trace: trace, Skipped: skipped, Settings: settingsOf(p)}
	f.Settings.Order, f.Settings.Events, f.Settings.Horizon = "", "", ""
	for i := range rows {
		r := &rows[i]
		f.Rows = append(f.Rows, frontRow{
			settingWords: wordsOf(&r.Setting), Slowdown: r.Slowdown, WorstWait: r.WorstWait.Seconds(), Jain: r.Jain,
			Made: r.Promises.Made, Broken: r.Promises.Broken, OnFront: r.OnFront,
		})
	}
	return f
}

// frontTable returns the rows of a front for people.
func frontTable(rows []sim.FrontRow) ui.Table {
	t := ui.Table{Head: []string{"ORDER", "AGE", "MAX_AGE", "HORIZON", "SLOWDOWN", "WORST_WAIT", "JAIN", "BROKEN", "FRONT"}, Right: "lrrrrrrrl"}
	for i := range rows {
		r := &rows[i]
		w, mark := wordsOf(&r.Setting), ""
		if r.OnFront {
			mark = "*"
		}
		t.Rows = append(t.Rows, []string{
			w.Order, w.Age, w.MaxAge, w.Horizon, fmt.Sprintf("%.2f", r.Slowdown), cluster.FormatElapsed(r.WorstWait.Round(time.Second)),
			fmt.Sprintf("%.3f", r.Jain), strconv.Itoa(r.Promises.Broken), mark,
		})
	}
	return t
}

// scatterOf returns the picture of a front.
func scatterOf(title string, rows []sim.FrontRow) *picture.Scatter {
	p := &picture.Scatter{Title: title, XName: "mean bounded slowdown", YName: "worst wait, hours"}
	for i := range rows {
		r := &rows[i]
		w := wordsOf(&r.Setting)
		name := w.Order
		if w.Age != "" {
			name = "age " + w.Age
		}
		if w.MaxAge != "" {
			name += "/" + w.MaxAge
		}
		p.Marks = append(p.Marks, picture.Mark{Point: picture.Point{X: r.Slowdown, Y: r.WorstWait.Hours()}, Name: name + ", " + w.Horizon, Strong: r.OnFront})
	}
	return p
}
