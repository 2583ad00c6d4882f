package sim

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/pkg/cluster"
)

func (t *tool) pass() *cobra.Command {
	var size sim.PassSize
	var progress bool
	c := &cobra.Command{
		Use: "pass", Args: cobra.NoArgs,
		Short: "Measure one scheduling pass on a full cluster",
		Long: "Measures the production pass on a full cluster whose running jobs end at different times:\n" +
			"a full pass, which plans everything from nothing, and a pass after one event, which is in\n" +
			"turn a job that ends early and a job that is submitted. Times are from the snapshot of the\n" +
			"state to the decision. Passes in which the policy's replan interval was over, which plan all\n" +
			"starts that are no promises once more, are shown by themselves.",
		RunE: func(*cobra.Command, []string) error {
			policy := cluster.DefaultPolicy()
			m, err := sim.MeasurePass(size, &policy, func(step string) {
				if progress || t.terminal() {
					fmt.Fprintf(t.Stderr, "gsim: %s\n", step)
				}
			})
			if err != nil {
				return err
			}
			if t.json {
				return t.WriteJSON(m)
			}
			return t.Facts(fmt.Sprintf("%d nodes of %d GPUs, %d pending jobs", m.Nodes, m.GPUsPerNode, m.Pending), [][2]string{
				{"full pass", fmt.Sprintf("p50 %.3f ms, p99 %.3f ms (%d passes, %d starts planned)", m.Full.P50, m.Full.P99, m.FullPasses, m.Planned)},
				{"after one event", fmt.Sprintf("p50 %.3f ms, p99 %.3f ms (%d passes, %d starts, %d moves)", m.Event.P50, m.Event.P99, m.EventPasses, m.Started, m.Moved)},
				{"periodic replan", fmt.Sprintf("p50 %.3f ms, p99 %.3f ms (%d passes)", m.Replan.P50, m.Replan.P99, m.Replans)},
				{"heap", fmt.Sprintf("%.0f MiB", m.Heap)},
			})
		},
	}
	f := c.Flags()
	f.IntVar(&size.Nodes, "nodes", 128, "nodes")
	f.IntVar(&size.GPUsPerNode, "gpus-per-node", 8, "GPUs of each")
	f.IntVar(&size.Pending, "pending", 1000, "waiting jobs")
	f.Uint64Var(&size.Seed, "seed", 7, "of the queue and the events")
	f.BoolVar(&progress, "progress", false, "tell progress even if standard error is no terminal")
	return c
}
