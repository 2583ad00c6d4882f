package gsim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/clusterdoc"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/jobscript"
	"github.com/greylag/greylag/internal/raftlog"
	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/pkg/cluster"
)

func (t *tool) snapshot() *cobra.Command {
	var path string
	c := &cobra.Command{
		Use: "snapshot [ADDRESS] -o FILE", Args: cobra.MaximumNArgs(1),
		Short: "Save a snapshot of a live cluster for what-if",
		Long: "Save the state of a live cluster, as gctl cluster snapshot does. ADDRESS is HOST:PORT of a\n" +
			"controller; without one it is that of the client's configuration.",
		RunE: func(c *cobra.Command, args []string) error {
			cfg, err := config.LoadClient("")
			if err != nil {
				return &ui.UsageError{Problem: err.Error()}
			}
			if len(args) > 0 {
				cfg.Controllers = args
			}
			cluster, err := t.Dial(cfg)
			if err != nil {
				return err
			}
			defer cluster.Close()
			data, err := pump(c.Context(), cluster)
			if err != nil {
				return err
			}
			if err := os.WriteFile(path, data, 0o600); err != nil { // it names users and their jobs
				return &ui.UsageError{Problem: err.Error()}
			}
			_, err = fmt.Fprintf(t.Stdout, "saved %d bytes to %s\n", len(data), path)
			return err
		},
	}
	c.Flags().StringVarP(&path, "output", "o", "", "output file")
	if err := c.MarkFlagRequired("output"); err != nil {
		panic(err) // the line above is wrong
	}
	return c
}

func pump(ctx context.Context, c ui.Cluster) ([]byte, error) {
	stream, err := c.Cluster().StreamSnapshot(ctx, &greylagv1.StreamSnapshotRequest{})
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	var data []byte
	for stream.Receive() {
		data = append(data, stream.Msg().Data...)
	}
	return data, stream.Err()
}

// asking is one run of gsim what-if.
type asking struct {
	*tool
	files  []string
	submit []string
	add    []string
	remove []string
	policy string
	lasts  string
	user   string
	check  bool
	saves  checkpointing
	clouds
	values string
	seed   uint64
	svg    string
}

func (t *tool) whatIf() *cobra.Command {
	a := &asking{tool: t}
	c := &cobra.Command{
		Use: "what-if SNAPSHOT", Args: cobra.ExactArgs(1),
		Short: "Show when pending jobs of a saved cluster would start",
		Long: "Continue a saved cluster in virtual time, once without and once with the changes of the\n" +
			"options, and print when each pending job would start. Jobs run until their time limit,\n" +
			"which gives the latest starts, or with --runtimes expected as long as jobs of the same\n" +
			"user, name, script and size usually did.\n" +
			"With --burst it prints instead how long the jobs wait, and what cloud nodes cost, for each value of\n" +
			"saved time. SNAPSHOT is a file of gsim snapshot or gctl cluster snapshot.",
		RunE: func(_ *cobra.Command, args []string) error { return a.run(args[0]) },
	}
	f := c.Flags()
	f.StringArrayVar(&a.files, "add-jobs", nil, "file of jobs to add: each line is options of gsubmit")
	f.StringArrayVar(&a.submit, "submit", nil, `job to add, as options of gsubmit, such as "-N2 --gpus-per-node=8 -t 60"`)
	f.StringArrayVar(&a.add, "add-nodes", nil, "N:TYPE: add N nodes like one with GPUs of that type (cpu: without GPUs)")
	f.StringArrayVar(&a.remove, "remove-node", nil, "nodes to remove as if they had failed; hostlists are allowed")
	f.StringVar(&a.policy, "policy", "", "the cluster's policy instead of the saved one, as for gctl apply")
	f.StringVar(&a.user, "user", defaultUser, "user of the added jobs, for fair share and charges; the default, what-if, has no usage and no account")
	f.StringVar(&a.lasts, "runtimes", "limits", "run times of jobs: limits, or expected (learned from similar jobs)")
	f.BoolVar(&a.check, "check", false, "check all invariants after every command: slow")
	a.clouds.flags(c, "burst", "; prints waits and costs for each of --burst-values")
	f.StringVar(&a.values, "burst-values", "0,0.25,0.5,1,2,4", "with --burst: what an hour less of waiting is worth for each GPU")
	f.Uint64Var(&a.seed, "seed", 1, "with --burst: random seed of the cloud")
	f.StringVar(&a.svg, "svg", "", "with --burst: draw wait against cost into this file")
	f.DurationVar(&a.saves.every, "checkpoint-every", 0, "print what a checkpoint at this interval would cost and save each job, instead of start times")
	f.DurationVar(&a.saves.write, "checkpoint-write", time.Minute, "with --checkpoint-every: how long a save stops the program, if it was not measured")
	f.DurationVar(&a.saves.restart, "restart-time", 10*time.Minute, "with --checkpoint-every: from a failure until the program works again")
	f.Float64Var(&a.saves.rate, "failure-rate", 0, "with --checkpoint-every: failures per 1,000 node-days; 0: the rate of the saved cluster")
	return c
}

func (a *asking) run(name string) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return &ui.UsageError{Problem: err.Error()}
	}
	if data, err = savedState(data); err != nil {
		return noSnapshot(name, err)
	}
	if a.saves.every != 0 && (a.offers != "" || a.prices != "") {
		return &ui.UsageError{Problem: "--checkpoint-every cannot be combined with --burst", Advice: "run gsim what-if once for each"}
	}
	if a.saves.every != 0 {
		return a.writeCheckpointCosts(name, data)
	}
	changes, err := a.changes()
	if err != nil {
		return err
	}
	if a.offers != "" || a.prices != "" {
		return a.writeBurst(name, data, changes)
	}
	list, now, err := sim.WhatIf(data, changes, sim.Options{Check: a.check})
	if errors.Is(err, sim.ErrSnapshot) {
		return noSnapshot(name, err)
	}
	if err != nil {
		return err
	}
	homeless := func(f sim.Forecast) bool { return f.User == defaultUser && strings.Contains(f.Why, "account") }
	if slices.ContainsFunc(list, homeless) {
		a.Note("the added jobs have no user and so no account: set --user NAME to a user of an account")
	}
	if a.json {
		return a.writeJSON(list, now)
	}
	t := ui.Table{Head: []string{"JOB", "USER", "NAME", "BEFORE", "AFTER", "LATER", "WHY"}, Right: "lllrrrl", Wide: []int{6, 2, 1}}
	for i := range list {
		f := &list[i]
		t.Rows = append(t.Rows, []string{jobName(f), f.User, f.Name, in(f.Before, now), in(f.After, now), later(f), f.Why})
	}
	return a.WriteTable(t)
}

// noSnapshot returns the error of a file that is no snapshot or a damaged one.
func noSnapshot(name string, err error) error {
	why := strings.TrimPrefix(err.Error(), sim.ErrSnapshot.Error()+": ")
	return &ui.UsageError{Problem: fmt.Sprintf("%v: %s: %s", sim.ErrSnapshot, name, why), Advice: "gsim snapshot and gctl cluster snapshot save one"}
}

// savedState returns the state within what a controller saves. A file that is no backup is taken as
// a state.
func savedState(data []byte) ([]byte, error) {
	if !raftlog.IsBackup(data) {
		return data, nil
	}
	_, in, err := raftlog.OpenBackup(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(in)
}

func jobName(f *sim.Forecast) string {
	if f.Job == 0 {
		return "new"
	}
	return f.Job.String()
}

// in returns the time until a start.
func in(at, now cluster.Instant) string {
	switch {
	case at == 0:
		return "-"
	case at <= now:
		return "now"
	}
	return cluster.FormatElapsed(at.Sub(now))
}

// later returns how much later the changes make a start.
func later(f *sim.Forecast) string {
	d := f.After.Sub(f.Before)
	switch {
	case f.Before == 0 || f.After == 0:
		return "-"
	case d == 0:
		return "same"
	case d < 0:
		return "-" + cluster.FormatElapsed(-d)
	}
	return "+" + cluster.FormatElapsed(d)
}

func (a *asking) writeJSON(list []sim.Forecast, now cluster.Instant) error {
	type row struct {
		Job    string     `json:"job"` // "" for one that was added
		User   string     `json:"user"`
		Name   string     `json:"name"`
		Before *time.Time `json:"before"`
		After  *time.Time `json:"after"`
		Why    string     `json:"why"`
	}
	when := func(at cluster.Instant) *time.Time {
		if at == 0 {
			return nil
		}
		t := at.Time()
		return &t
	}
	rows := make([]row, len(list))
	for i := range list {
		f := &list[i]
		rows[i] = row{"", f.User, f.Name, when(f.Before), when(f.After), f.Why}
		if f.Job != 0 {
			rows[i].Job = f.Job.String()
		}
	}
	return a.WriteJSON(struct {
		Now  time.Time `json:"now"`
		Jobs []row     `json:"jobs"`
	}{now.Time(), rows})
}

// changes returns the changes that the options request.
func (a *asking) changes() (*sim.Changes, error) {
	if a.lasts != "limits" && a.lasts != "expected" {
		return nil, &ui.UsageError{Problem: "--runtimes " + a.lasts + " is not known", Advice: "write limits or expected"}
	}
	c := &sim.Changes{Expected: a.lasts == "expected"}
	for _, x := range a.remove {
		names, err := hostlist.Expand(x)
		if err != nil {
			return nil, &ui.UsageError{Problem: err.Error()}
		}
		c.Remove = append(c.Remove, names...)
	}
	for _, x := range a.add {
		n, kind, found := strings.Cut(x, ":")
		count, err := strconv.Atoi(n)
		if err != nil || !found {
			return nil, &ui.UsageError{Problem: fmt.Sprintf("--add-nodes %s: want N:TYPE", x), Advice: "write 4:h100, for example"}
		}
		c.Add = append(c.Add, sim.Addition{Count: count, Type: kind})
	}
	if a.policy != "" {
		text, err := os.ReadFile(a.policy)
		if err != nil {
			return nil, &ui.UsageError{Problem: err.Error()}
		}
		p, err := clusterdoc.ReadPolicy(a.policy, text)
		if err != nil {
			return nil, err
		}
		c.Policy = &p
	}
	lines := a.submit
	for _, name := range a.files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, &ui.UsageError{Problem: err.Error()}
		}
		lines = append(lines, strings.Split(string(text), "\n")...)
	}
	jobs, err := a.specs(lines)
	for i := range jobs {
		jobs[i].Owner.User = a.user
	}
	c.Jobs = jobs
	return c, err
}

// specs returns the jobs of lines with options of gsubmit. It skips empty lines and comments.
func (t *tool) specs(lines []string) ([]cluster.JobSpec, error) {
	var jobs []cluster.JobSpec
	for i, line := range lines {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		spec, err := t.spec(line)
		if err != nil {
			return nil, &ui.UsageError{Problem: fmt.Sprintf("line %d (%s): %v", i+1, line, err), Advice: "each line is options of gsubmit, such as -N2 --gpus-per-node=8 -t 60"}
		}
		jobs = append(jobs, spec)
	}
	return jobs, nil
}

// defaultUser is the user of added jobs without --user.
const defaultUser = "what-if"

// spec returns the job that options of gsubmit describe.
func (t *tool) spec(line string) (cluster.JobSpec, error) {
	script, err := jobscript.Wrap("true")
	if err != nil {
		return cluster.JobSpec{}, err
	}
	words, err := jobscript.CommandLine(strings.Fields(line))
	if err != nil {
		return cluster.JobSpec{}, err
	}
	o, _, err := jobscript.Resolve(words, nil, script, t.Now())
	if err != nil {
		return cluster.JobSpec{}, err
	}
	spec := cluster.JobSpec{
		Name: o.Name, Account: o.Account, Partition: o.Partition, OtherPartitions: o.Others, QOS: o.QOS, Reservation: o.Reservation,
		Burst: o.Burst, Image: o.Image, Request: o.Request, Nice: o.Nice, TimeLimit: time.Hour, Owner: cluster.Identity{User: defaultUser, UID: 65533, GID: 65533},
	}
	if spec.Name == "" {
		spec.Name = "what-if"
	}
	if o.TimeLimit != nil {
		spec.TimeLimit = *o.TimeLimit
	}
	return spec, nil
}
