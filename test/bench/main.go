// Command bench measures a whole cluster on this machine and prints tables for
// docs/benchmarks.md. Where Slurm's bench script is at hand, in the folder that
// GREYLAG_TRACES names, the same is measured of Slurm in the same run.
//
// It states machine, controllers, nodes and queue with each figure, and judges
// nothing.
package main

import (
	"context"
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
	run  func(context.Context) error
}

func parts() []part {
	return []part{
		{"start", startTimes}, {"submit", submissions}, {"processes", processes}, {"jobs", endToEnd},
		{"queue", listing}, {"failover", failover}, {"memory", memory},
	}
}

func main() {
	cluster.ReapIfAsked()
	only := flag.String("only", "", "measure these alone, such as submit,failover")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := machine(); err != nil {
		fail(err)
	}
	var failed error
	for _, p := range parts() {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), p.name) {
			continue
		}
		if err := p.run(ctx); err != nil {
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

// table prints one heading and one row of column names.
func table(title string, columns ...string) {
	fmt.Printf("\n### %s\n| %s |\n|%s\n", title, strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
}

func row(cells ...any) {
	words := make([]string, len(cells))
	for i, c := range cells {
		words[i] = fmt.Sprint(c)
	}
	fmt.Printf("| %s |\n", strings.Join(words, " | "))
}

// quantile of durations, which are sorted in place.
func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(int(q*float64(len(all))), len(all)-1)]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
