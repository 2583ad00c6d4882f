// Command bench measures a whole cluster on this machine and prints tables for docs/benchmarks.md.
// If Slurm's bench script is available, in the folder that GREYLAG_TRACES names, it measures Slurm
// in the same run.
//
// It states machine, controllers, nodes and queue with each figure, and has no thresholds.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/greylag/greylag/test/cluster"
)

// part is one table.
type part struct {
	name string
	run  func(context.Context, *paper) error
}

func parts(compared passSize, crunIn string) []part {
	return []part{
		{"start", startTimes}, {"submit", submissions}, {"processes", processes}, {"names", names}, {"arrays", arrays}, {"steps", steps},
		{"jobs", func(ctx context.Context, out *paper) error { return endToEnd(ctx, out, crunIn) }},
		{"queue", listing}, {"failover", failover}, {"memory", memory}, {"passes", passes}, {"ledger", ledger}, {"credits", credits},
		{"backfill", func(ctx context.Context, out *paper) error { return compareBackfill(ctx, out, compared) }},
	}
}

func main() {
	cluster.ReapIfAsked()
	only := flag.String("only", "", "measure these alone, such as passes,backfill")
	lines := flag.String("json", "", "write each row to this file as well, a line of JSON for each")
	compared := passSize{gpus: 8}
	flag.IntVar(&compared.nodes, "slurm-nodes", 128, "nodes of 8 GPUs on which a pass of Slurm's is measured: a daemon for each")
	flag.IntVar(&compared.pending, "slurm-pending", 1000, "and jobs that wait there")
	rateOf := flag.String("rate", "", "print jobs/s end to end with this OCI runtime, and nothing else")
	crunIn := flag.String("crun", "", "the folder of a crun with which jobs are measured as well, such as one that is linked statically")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *rateOf != "" {
		if err := printRate(ctx, *rateOf); err != nil {
			fail(err)
		}
		return
	}
	out := &paper{text: os.Stdout}
	if *lines != "" {
		f, err := os.Create(*lines)
		if err != nil {
			fail(err)
		}
		defer f.Close()
		out.lines = json.NewEncoder(f)
	}
	if err := machine(out); err != nil {
		fail(err)
	}
	var failed error
	for _, p := range parts(compared, *crunIn) {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), p.name) {
			continue
		}
		if err := p.run(ctx, out); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", p.name, err))
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", p.name, err)
		}
	}
	if failed != nil {
		os.Exit(1)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "bench: error:", err)
	os.Exit(1)
}

// quantile returns a quantile of durations, which it sorts in place.
func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(int(q*float64(len(all))), len(all)-1)]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
