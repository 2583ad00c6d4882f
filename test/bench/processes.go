package main

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"time"

	"github.com/greylag/greylag/test/cluster"
)

// startTimes measures how long the commands take to start and end.
func startTimes(ctx context.Context, out *paper) error {
	c, err := bare(ctx, 1)
	if err != nil {
		return err
	}
	defer c.Stop() // the results stand even if stopping fails
	out.table("A command's start to end", "command", "median", "99 %")
	for _, program := range []string{"gsubmit", "gqueue", "gcancel", "gctl"} {
		var all []time.Duration
		for range 100 {
			begun := time.Now()
			if result, err := c.Run(ctx, program, "--version"); err != nil || result.Exit != 0 {
				return fmt.Errorf("%s --version: %s: %w", program, result.Stderr, err)
			}
			all = append(all, time.Since(begun))
		}
		out.row(program+" --version", ms(quantile(all, 0.5)), ms(quantile(all, 0.99)))
	}
	return nil
}

// processes measures submissions by processes, next to sbatch: their windows alternate, so that
// other load on the machine affects both.
func processes(ctx context.Context, out *paper) error {
	s, err := startSlurm(ctx, out, 1)
	if err != nil {
		return err
	}
	if s != nil {
		defer s.stop()
	}
	out.table("Submissions by processes, 1 node", "command", "controllers", "processes at once", "jobs/s", "CPU a job: command", "daemons")
	for _, controllers := range []int{1, 3} {
		c, err := cluster.Start(ctx, cluster.Options{Name: "bench", Controllers: controllers, Nodes: 1, GPUs: 1})
		if err != nil {
			return err
		}
		for _, at := range []int{1, 8, 16} {
			if err := out.compareSlurm(ctx, c, s, load{controllers, at}); err != nil {
				return fmt.Errorf("%w: %w", err, c.Stop())
			}
		}
		if err := c.Stop(); err != nil {
			return err
		}
	}
	return nil
}

// load is how many controllers there are and how many commands run at once.
type load struct{ controllers, at int }

// compareSlurm measures one load of gsubmit and, unless s is nil, of sbatch.
func (out *paper) compareSlurm(ctx context.Context, c *cluster.Cluster, s *slurm, l load) error {
	daemons := func() time.Duration { return controllersCPU(c) + cpu(c.Auth().PID()) }
	before := daemons()
	r, err := spawn(ctx, l.at, func(ctx context.Context) *exec.Cmd {
		return c.Command(ctx, "gsubmit", "--hold", "--parsable", "--wrap", "true")
	})
	if err != nil {
		return err
	}
	out.row("gsubmit", l.controllers, l.at, fmt.Sprintf("%.0f", r.rate()), micros(r.cpu, r.done), micros(daemons()-before, r.done))
	if s == nil {
		return nil
	}
	before = s.cpu()
	r, err = spawn(ctx, l.at, func(ctx context.Context) *exec.Cmd {
		return s.command(ctx, "sbatch", "--hold", "--parsable", "--wrap", "true", "-o", "/dev/null")
	})
	if err != nil {
		return err
	}
	out.row("sbatch", 1, l.at, fmt.Sprintf("%.0f", r.rate()), micros(r.cpu, r.done), micros(s.cpu()-before, r.done))
	return nil
}

// runs is the result of many commands.
type runs struct {
	done int
	took time.Duration
	cpu  time.Duration // of the commands themselves
}

func (r runs) rate() float64 { return float64(r.done) / r.took.Seconds() }

// spawn runs commands, n at once, for a while. All must succeed.
func spawn(ctx context.Context, at int, command func(context.Context) *exec.Cmd) (runs, error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	var r runs
	var failed error
	begun := time.Now()
	for range at {
		all.Go(func() {
			for time.Since(begun) < window {
				cmd := command(ctx)
				out, err := cmd.CombinedOutput()
				mu.Lock()
				if err != nil {
					failed = fmt.Errorf("%w: %s", err, out)
				} else {
					r.done++
					r.cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	all.Wait()
	r.took = time.Since(begun)
	return r, failed
}
