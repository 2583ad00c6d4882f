package gsim

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/greylag/greylag/internal/sim/trace"
)

func (t *tool) generate() *cobra.Command {
	var w trace.Workload
	var out string
	c := &cobra.Command{
		Use: "generate", Args: cobra.NoArgs,
		Short: "Generate a log of multi-node jobs",
		Long: "Write a log of multi-node CPU jobs in the Standard Workload Format, for gsim replay.\n\n" +
			"Widths are powers of two up to --nodes: 2^k nodes with a probability proportional to\n" +
			"2^(-k/2). Run times are 60 to 20,000 s, uniform on a logarithmic scale; jobs request one,\n" +
			"two or four times as long. Arrivals have a daily cycle. The same --seed gives the same log.",
		RunE: func(*cobra.Command, []string) error {
			log, err := w.Generate()
			if err != nil {
				return err
			}
			return t.file(out, func(to io.Writer) error { return log.WriteSWF(to) })
		},
	}
	f := c.Flags()
	f.IntVar(&w.Jobs, "jobs", 20_000, "number of jobs")
	f.IntVar(&w.Nodes, "nodes", 5000, "nodes of the machine")
	f.IntVar(&w.CPUsPerNode, "cpus-per-node", 16, "CPUs of each node; each job takes all of them")
	f.Float64Var(&w.Load, "load", 0.75, "offered load, as a fraction of the machine (above 0, at most 100)")
	f.Uint64Var(&w.Seed, "seed", 1, "random seed")
	f.StringVarP(&out, "output", "o", "-", "file to write; - is standard output")
	return c
}
