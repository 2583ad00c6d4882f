package main

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/greylag/greylag/test/cluster"
)

// startTimes measures how long the commands take to do nothing.
func startTimes(ctx context.Context) error {
	c, err := bare(ctx, 1)
	if err != nil {
		return err
	}
	defer c.Stop() // what was measured stands whatever stopping says
	table("A command's start to end", "command", "median", "99 %")
	for _, program := range []string{"gsubmit", "gqueue", "gcancel", "gctl"} {
		var all []time.Duration
		for range 100 {
			begun := time.Now()
			if result, err := c.Run(ctx, program, "--version"); err != nil || result.Exit != 0 {
				return fmt.Errorf("%s --version: %s: %w", program, result.Stderr, err)
			}
			all = append(all, time.Since(begun))
		}
		row(program+" --version", ms(quantile(all, 0.5)), ms(quantile(all, 0.99)))
	}
	return nil
}

// processes measures submissions by processes, beside sbatch.
func processes(ctx context.Context) error {
	table("Submissions by processes, 1 node", "command", "controllers", "processes at once", "jobs/s")
	for _, controllers := range []int{1, 3} {
		c, err := cluster.Start(ctx, cluster.Options{Name: "bench", Controllers: controllers, Nodes: 1, GPUs: 1})
		if err != nil {
			return err
		}
		for _, at := range []int{1, 8, 16} {
			rate, err := spawn(ctx, at, func(ctx context.Context) *exec.Cmd {
				return c.Command(ctx, "gsubmit", "--hold", "--parsable", "--wrap", "true")
			})
			if err != nil {
				return fmt.Errorf("%w: %w", err, c.Stop())
			}
			row("gsubmit", controllers, at, fmt.Sprintf("%.0f", rate))
		}
		if err := c.Stop(); err != nil {
			return err
		}
	}
	s, err := startSlurm(ctx, 1)
	if s == nil {
		return err
	}
	defer s.stop()
	for _, at := range []int{1, 8, 16} {
		rate, err := spawn(ctx, at, func(ctx context.Context) *exec.Cmd {
			return s.command(ctx, "sbatch", "--hold", "--parsable", "--wrap", "true", "-o", "/dev/null")
		})
		if err != nil {
			return err
		}
		row("sbatch", 1, at, fmt.Sprintf("%.0f", rate))
	}
	return nil
}

// spawn runs commands, so many at once, for a while, and returns how many ended
// well a second.
func spawn(ctx context.Context, at int, command func(context.Context) *exec.Cmd) (float64, error) {
	var done atomic.Int64
	var all sync.WaitGroup
	var failed atomic.Pointer[error]
	begun := time.Now()
	for range at {
		all.Go(func() {
			for time.Since(begun) < window {
				if out, err := command(ctx).CombinedOutput(); err != nil {
					err = fmt.Errorf("%w: %s", err, out)
					failed.Store(&err)
					return
				}
				done.Add(1)
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return float64(done.Load()) / time.Since(begun).Seconds(), nil
}
