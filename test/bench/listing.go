package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/test/cluster"
)

// fill submits n pending jobs, 500 a request. They need more resources than exist, so they stay
// pending.
func fill(ctx context.Context, c *cluster.Cluster, n int) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	defer client.Close()
	for n > 0 {
		request := &greylagv1.SubmitJobsRequest{}
		for range min(n, 500) {
			request.Jobs = append(request.Jobs, spec())
		}
		if _, err := client.Jobs().SubmitJobs(ctx, request); err != nil {
			return err
		}
		n -= len(request.Jobs)
	}
	return nil
}

// listing measures gqueue over a long queue while submissions keep the passes
// coming.
func listing(ctx context.Context, out *paper) error {
	const pending = 100_000
	c, err := cluster.Start(ctx, cluster.Options{Name: "bench", Nodes: 4, GPUs: 8})
	if err != nil {
		return err
	}
	defer c.Stop() // the results stand even if stopping fails
	if _, err := c.Run(ctx, "gctl", "drain", "n[1-4]", "--reason", "bench"); err != nil {
		return err
	}
	if err := fill(ctx, c, pending); err != nil {
		return err
	}
	busy, stop := context.WithCancel(ctx)
	defer stop()
	go flood(busy, c, 1, 1, time.Minute) // ends with busy
	var all []time.Duration
	lines := 0
	for range 10 {
		begun := time.Now()
		result, err := c.Run(ctx, "gqueue", "-h")
		if err != nil || result.Exit != 0 {
			return fmt.Errorf("gqueue: %s: %w", result.Stderr, err)
		}
		all = append(all, time.Since(begun))
		lines = strings.Count(result.Stdout, "\n")
	}
	out.table("gqueue -h, 100,000 pending jobs, 4 nodes of 8 GPUs, submissions and passes going on", "lines", "median", "worst")
	out.row(lines, ms(quantile(all, 0.5)), ms(quantile(all, 1)))
	return nil
}

// memory measures gctld with a million pending jobs.
func memory(ctx context.Context, out *paper) error {
	const pending = 1_000_000
	c, err := bare(ctx, 1)
	if err != nil {
		return err
	}
	defer c.Stop() // the results stand even if stopping fails
	begun := time.Now()
	if err := fill(ctx, c, pending); err != nil {
		return err
	}
	took := time.Since(begun)
	out.table("Memory of gctld, 1 controller, no nodes", "pending", "resident", "peak", "filled in")
	pid := c.Controller(0).PID()
	out.row(pending, status(pid, "VmRSS"), status(pid, "VmHWM"), seconds(took))
	return nil
}

// status reads one field of /proc/PID/status.
func status(pid int, field string) string {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
			if err != nil {
				return value
			}
			return fmt.Sprintf("%d MiB", kib>>10)
		}
	}
	return "?"
}
