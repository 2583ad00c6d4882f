package gsim

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/pkg/cluster"
)

// passing is one run of gsim pass.
type passing struct {
	*tool
	size     sim.PassSize
	jobs     string
	sweep    string
	to       int
	svg      string
	progress bool
}

func (t *tool) pass() *cobra.Command {
	p := &passing{tool: t}
	c := &cobra.Command{
		Use: "pass", Args: cobra.NoArgs,
		Short: "Measure one scheduling pass on a full cluster",
		Long: "Measure the production pass on a full cluster whose running jobs end at different times:\n" +
			"a full pass by a new planner, and a pass after one event, which is in turn a job that\n" +
			"ends early and a job that is submitted. Times are from the snapshot of the state to the\n" +
			"decision. Passes in which the policy's replan interval had elapsed are shown separately:\n" +
			"they plan all starts without a promise again.\n\n" +
			"With --sweep, measure one size after the other, doubling the nodes or the queue up to\n" +
			"--to; --svg draws how the times grow.",
		RunE: func(c *cobra.Command, _ []string) error {
			sizes, err := p.sizes(c)
			if err != nil {
				return err
			}
			return p.measure(sizes)
		},
	}
	f := c.Flags()
	f.IntVar(&p.size.Nodes, "nodes", 128, "nodes")
	f.IntVar(&p.size.GPUsPerNode, "gpus-per-node", 8, "GPUs per node")
	f.IntVar(&p.size.CPUsPerNode, "cpus-per-node", 0, "CPUs per node; nodes have no GPUs and jobs take whole nodes")
	f.IntVar(&p.size.Pending, "pending", 1000, "number of pending jobs")
	f.Uint64Var(&p.size.Seed, "seed", 7, "random seed of the queue and the events")
	f.StringVar(&p.jobs, "jobs", "", "file of the pending jobs, instead of random ones: each line is options of gsubmit; repeated if --pending is larger")
	f.StringVar(&p.sweep, "sweep", "", "size to increase up to --to: nodes or pending")
	f.IntVar(&p.to, "to", 0, "last size of --sweep")
	f.StringVar(&p.svg, "svg", "", "draw the times of --sweep into this file")
	f.BoolVar(&p.progress, "progress", false, "show progress even if standard error is not a terminal")
	c.MarkFlagsRequiredTogether("sweep", "to")
	c.MarkFlagsMutuallyExclusive("cpus-per-node", "gpus-per-node")
	return c
}

// sizes returns the sizes to measure.
func (p *passing) sizes(c *cobra.Command) ([]sim.PassSize, error) {
	if c.Flags().Changed("cpus-per-node") {
		p.size.GPUsPerNode = 0
	}
	if p.jobs != "" {
		text, err := os.ReadFile(p.jobs)
		if err != nil {
			return nil, &ui.UsageError{Problem: err.Error()}
		}
		if p.size.Queue, err = p.specs(strings.Split(string(text), "\n")); err != nil {
			return nil, err
		}
		if len(p.size.Queue) == 0 {
			return nil, &ui.UsageError{Problem: p.jobs + " has no job", Advice: "each line is options of gsubmit, such as -N2 --gpus-per-node=8 -t 60"}
		}
		if !c.Flags().Changed("pending") {
			p.size.Pending = len(p.size.Queue)
		}
	}
	switch {
	case p.sweep == "" && p.svg != "":
		return nil, &ui.UsageError{Problem: "--svg draws what --sweep measures", Advice: "add --sweep nodes --to 16000, for example"}
	case p.sweep == "":
		return []sim.PassSize{p.size}, nil
	}
	growing, err := p.growing()
	if err != nil {
		return nil, err
	}
	return growing.Sweep(p.size, p.to)
}

func (p *passing) growing() (sim.Growing, error) {
	switch p.sweep {
	case "nodes":
		return sim.GrowingNodes, nil
	case "pending":
		return sim.GrowingQueue, nil
	}
	return 0, &ui.UsageError{Problem: "--sweep " + p.sweep + " is not a size", Advice: "write nodes or pending"}
}

// measure measures the sizes, and prints each, or all of a sweep as JSON.
func (p *passing) measure(sizes []sim.PassSize) error {
	policy := cluster.DefaultPolicy()
	var rows []*sim.PassTimings
	err := sim.MeasureSweep(sizes, &policy, func(step string) {
		if p.progress || p.terminal() {
			fmt.Fprintf(p.Stderr, "gsim: %s\n", step)
		}
	}, func(m *sim.PassTimings) error {
		rows = append(rows, m)
		if p.json {
			return nil
		}
		return p.print(m)
	})
	if err != nil {
		return err
	}
	if p.svg != "" {
		growing, err := p.growing()
		if err != nil {
			return err
		}
		if err := p.file(p.svg, func(w io.Writer) error { return sim.WriteGrowthSVG(w, rows, growing) }); err != nil {
			return err
		}
	}
	switch {
	case !p.json:
		return nil
	case p.sweep == "":
		return p.WriteJSON(rows[0])
	}
	return p.WriteJSON(struct {
		Sweep string             `json:"sweep"`
		Rows  []*sim.PassTimings `json:"rows"`
	}{p.sweep, rows})
}

func (p *passing) print(m *sim.PassTimings) error {
	return p.Facts(fmt.Sprintf("%d nodes of %s, %d pending jobs", m.Nodes, m.NodeSize(), m.Pending), [][2]string{
		{"full pass", fmt.Sprintf("p50 %.3f ms, p99 %.3f ms (%d passes, %d starts planned)", m.Full.P50, m.Full.P99, m.FullPasses, m.Planned)},
		{"after one event", fmt.Sprintf("p50 %.3f ms, p99 %.3f ms (%d passes, %d starts, %d moves)", m.Event.P50, m.Event.P99, m.EventPasses, m.Started, m.Moved)},
		{"periodic replan", fmt.Sprintf("p50 %.3f ms, p99 %.3f ms (%d passes)", m.Replan.P50, m.Replan.P99, m.Replans)},
		{"heap", fmt.Sprintf("%.0f MiB", m.Heap)},
	})
}
