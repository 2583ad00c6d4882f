package gsim

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/picture"
	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/internal/sim/cloudsim"
	"github.com/greylag/greylag/internal/sim/trace"
	"github.com/greylag/greylag/pkg/cluster"
)

// burst is one run of gsim burst.
type burst struct {
	input
	rules
	clouds
	list  string
	each  string
	nodes int32
	idle  time.Duration
	svg   string
}

// allRules are the rules that gsim burst compares by default.
const allRules = "none,immediate,queue>5,queue>10,queue>20,wait>1h,wait>4h,wait>8h,value=0.25,value=0.5,value=1,value=2,value=4"

func (t *tool) burst() *cobra.Command {
	r := &burst{input: input{tool: t}, rules: rules{order: orderFCFS}}
	c := &cobra.Command{
		Use: "burst TRACE...", Args: cobra.MinimumNArgs(1),
		Short: "Compare rules that lease cloud nodes on logs",
		Long: "Replay each log once with each rule, all jobs with --burst=allow, and print waits and node-hours.\n" +
			"The rules are none; immediate (for each job that cannot start at once); queue>N (while more than N\n" +
			"jobs wait); wait>TIME (for each job that is planned to wait longer); and value=AMOUNT: that of Greylag,\n" +
			"with AMOUNT for each hour of wait saved. Without --offers a cloud node has 8 processors and a price of 1.",
		RunE: func(c *cobra.Command, args []string) error { return r.run(c, args) },
	}
	r.input.flags(c)
	r.rules.flags(c)
	r.clouds.flags(c, "offers", "; without it spot nodes of 8 processors")
	f := c.Flags()
	f.StringVar(&r.order, "order", orderFCFS, "order of jobs: fcfs, by submission, or priority")
	f.StringVar(&r.horizon, "promise-horizon", "", "window in which planned starts are promises: a time, 0 or unlimited")
	f.StringVar(&r.list, "rules", allRules, "rules to compare")
	f.StringVar(&r.each, "value-per", "job", "the value of an hour of wait saved is that of a job, or of each gpu or other processor of the log")
	f.Int32Var(&r.nodes, "max-nodes", 16, "most cloud nodes at a time; 0 is no limit")
	f.DurationVar(&r.idle, "idle", 10*time.Minute, "for how long an idle cloud node is kept; 0: as long as one takes to join")
	f.StringVar(&r.svg, "svg", "", "draw wait against node-hours, a picture burst-LOG.svg for each log, into this directory")
	return c
}

func (r *burst) run(c *cobra.Command, names []string) error {
	if err := r.words(); err != nil {
		return err
	}
	if err := oneOf("value-per", r.each, "job", "gpu"); err != nil {
		return err
	}
	policy, err := r.rules.apply(c)
	if err != nil {
		return err
	}
	policy.Credits.On = false // the users of a log have no credits
	policy.Burst.MaxNodes, policy.Burst.IdleTime = r.nodes, r.idle
	words, err := list("rules", r.list, readRule)
	if err != nil {
		return err
	}
	rules := make([]cloudsim.Named, len(words))
	for i, word := range words {
		rules[i], _ = cloudsim.ParseRule(word) // it was read before
	}
	var all []burstResult
	for _, name := range names {
		one, err := r.compare(name, policy, rules)
		if err != nil {
			return err
		}
		all = append(all, *one)
	}
	if r.json {
		return r.WriteJSON(all)
	}
	for i := range all {
		if err := r.write(&all[i]); err != nil {
			return err
		}
	}
	return nil
}

// compare replays one log.
func (r *burst) compare(name string, policy *cluster.Policy, rules []cloudsim.Named) (*burstResult, error) {
	kinds, err := r.clouds.read("offers", cloudsim.EightProcessors())
	if err != nil {
		return nil, err
	}
	fleet, err := r.fleet()
	if err != nil {
		return nil, err
	}
	described := fleet != nil
	log, fleet, err := r.input.read(name, fleet)
	if err != nil {
		return nil, err
	}
	var jobs []sim.Job
	if described {
		jobs = sim.Workload(log, fleet, r.procs == "gpu")
	} else if fleet, jobs, err = interchangeable(log); err != nil {
		return nil, err
	}
	if r.each == "job" {
		policy, jobs = cloudsim.EqualJobs(policy, jobs)
	}
	short, _, _ := strings.Cut(filepath.Base(name), ".")
	rows, err := cloudsim.Compare(fleet, policy, jobs, kinds, r.seed, rules, func(done int) {
		if r.showsProgress() {
			fmt.Fprintf(r.Stderr, "gsim: %s: %d of %d rules replayed\n", short, done, len(rules))
		}
	})
	if err != nil {
		return nil, err
	}
	if r.svg != "" {
		p := burstPicture(fmt.Sprintf("%s: %s", short, ui.Count(int64(len(jobs)), "job")), rows)
		if err := ui.WriteFile(filepath.Join(r.svg, "burst-"+strings.ToLower(short)+".svg"), p.WriteSVG); err != nil {
			return nil, err
		}
	}
	return resultOf(short, log.Bad.Count, rows), nil
}

// interchangeable returns the machine of a log and its jobs, each of whose processors may be on any node: so a job fits on the
// machine as well as on smaller nodes of the cloud. All jobs are of one account, and so share those nodes.
func interchangeable(log *trace.Trace) (*sim.Machine, []sim.Job, error) {
	fleet, err := sim.Uniform(1, int(log.MaxProcs))
	if err != nil {
		return nil, nil, err
	}
	for i := range log.Jobs {
		log.Jobs[i].Account = ""
	}
	return fleet, sim.Spread(sim.Workload(log, fleet, true)), nil
}

// burstRow is a rule and its figures in JSON. Times are in seconds.
type burstRow struct {
	Rule     string  `json:"rule"`
	Mean     float64 `json:"mean_wait"`
	P90      float64 `json:"p90_wait"`
	P99      float64 `json:"p99_wait"`
	Slowdown float64 `json:"mean_bounded_slowdown"`
	Hours    float64 `json:"node_hours"`
	Cost     string  `json:"cost"`
	Leases   int     `json:"leases"`
	Reclaims int     `json:"reclaims"`
	Restarts int     `json:"restarts"`
	Broken   int     `json:"promises_broken"`
	Never    int     `json:"never_started"`
	Refused  int     `json:"refused"`
	// Against is the rule on the length of the queue with the nearest mean wait, of a rule with a value; Part its share of that
	// rule's node-hours.
	Against string  `json:"against,omitempty"`
	Part    float64 `json:"part_of_its_node_hours,omitempty"`
}

// burstResult is the rules on one log.
type burstResult struct {
	Trace   string     `json:"trace"`
	Skipped int        `json:"skipped_lines"`
	Rows    []burstRow `json:"rows"`
}

func resultOf(name string, skipped int, rows []cloudsim.Row) *burstResult {
	out := &burstResult{Trace: name, Skipped: skipped}
	for i := range rows {
		s := &rows[i].Summary
		out.Rows = append(out.Rows, burstRow{
			Rule: rows[i].Name, Mean: s.Wait.Mean, P90: s.Wait.P90, P99: s.Wait.P99, Slowdown: s.Slowdown, Hours: s.Cloud.Hours,
			Cost: cluster.FormatMoney(s.Cloud.Cost), Leases: s.Cloud.Leases, Reclaims: s.Cloud.Reclaims, Restarts: s.Cloud.Restarts,
			Broken: s.Promises.Broken, Never: s.Never, Refused: s.Refused,
		})
	}
	for _, x := range cloudsim.Savings(rows, cloudsim.QueueLength) {
		out.Rows[x.Row].Against, out.Rows[x.Row].Part = rows[x.Other].Name, x.Part
	}
	return out
}

// write writes the rules on one log for people.
func (r *burst) write(x *burstResult) error {
	fmt.Fprintf(r.Stdout, "%s\n", x.Trace) // the next write returns the error
	t := ui.Table{Head: []string{"RULE", "MEAN_WAIT", "P90", "P99", "NODE_HOURS", "COST", "LEASES", "RECLAIMS", "BROKEN", "AGAINST"}, Right: "lrrrrrrrrl"}
	for i := range x.Rows {
		row := &x.Rows[i]
		against := ""
		if row.Against != "" {
			against = fmt.Sprintf("%.0f %% of %s", 100*row.Part, row.Against)
		}
		t.Rows = append(t.Rows, []string{
			row.Rule, fmt.Sprintf("%.0f", row.Mean), fmt.Sprintf("%.0f", row.P90), fmt.Sprintf("%.0f", row.P99), fmt.Sprintf("%.0f", row.Hours),
			row.Cost, fmt.Sprint(row.Leases), fmt.Sprint(row.Reclaims), fmt.Sprint(row.Broken), against,
		})
	}
	return r.WriteTable(t)
}

// burstPicture returns the picture of rules, in one colour for each family.
func burstPicture(title string, rows []cloudsim.Row) *picture.Scatter {
	p := &picture.Scatter{Title: title + ", mean wait against node-hours", XName: "node-hours", YName: "mean wait, hours"}
	hues := map[cloudsim.Family]uint8{cloudsim.None: 1, cloudsim.AtOnce: 1, cloudsim.QueueLength: 4, cloudsim.PlannedWait: 7, cloudsim.CostBenefit: 10}
	const hour = 3600
	for i := range rows {
		s := &rows[i].Summary
		at := picture.Point{X: s.Cloud.Hours, Y: s.Wait.Mean / hour}
		p.Marks = append(p.Marks, picture.Mark{Point: at, Name: rows[i].Name, Strong: true, Hue: hues[rows[i].Family]})
	}
	return p
}
