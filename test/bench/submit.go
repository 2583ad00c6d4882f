package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/test/cluster"
)

const window = 5 * time.Second // of one measurement

// bare returns a cluster without nodes, so that only the controllers work.
func bare(ctx context.Context, controllers int) (*cluster.Cluster, error) {
	return cluster.Start(ctx, cluster.Options{Name: "bench", Controllers: controllers, Runtime: "process"})
}

// spec is a small job.
func spec() *greylagv1.JobSpec {
	return &greylagv1.JobSpec{
		Name: "bench", Script: []byte("#!/bin/sh\ntrue\n"), WorkDir: "/tmp", Output: "/dev/null",
		Environment: []string{"PATH=/usr/bin:/bin", "HOME=/tmp"},
		Request:     &greylagv1.Request{GpusPerNode: 1, MemPerNode: 32 << 20},
	}
}

// submissions measures durable submissions through the API.
func submissions(ctx context.Context, out *paper) error {
	out.table("Durable submissions through the API, no nodes", "controllers", "clients", "jobs a request",
		"jobs/s", "median", "99 %", "CPU a job: controllers", "clients")
	for _, controllers := range []int{1, 3} {
		for _, load := range []struct{ clients, many int }{{1, 1}, {64, 1}, {8, 256}} {
			if err := out.submitRate(ctx, controllers, load.clients, load.many); err != nil {
				return err
			}
		}
	}
	return nil
}

func (out *paper) submitRate(ctx context.Context, controllers, clients, many int) error {
	c, err := bare(ctx, controllers)
	if err != nil {
		return err
	}
	theirs, own := controllersCPU(c), cpu(os.Getpid())
	jobs, took, err := flood(ctx, c, clients, many, window)
	if err == nil {
		theirs, own = controllersCPU(c)-theirs, cpu(os.Getpid())-own
		out.row(controllers, clients, many, fmt.Sprintf("%.0f", float64(jobs)/window.Seconds()), ms(quantile(took, 0.5)), ms(quantile(took, 0.99)),
			micros(theirs, jobs), micros(own, jobs))
	}
	if stopped := c.Stop(); err == nil {
		err = stopped
	}
	return err
}

// controllersCPU returns the processor time of all controllers so far.
func controllersCPU(c *cluster.Cluster) (sum time.Duration) {
	for i := range c.Controllers() {
		sum += cpu(c.Controller(i).PID())
	}
	return sum
}

// flood submits from many clients for a while, each with its own connection.
func flood(ctx context.Context, c *cluster.Cluster, clients, many int, length time.Duration) (jobs int, took []time.Duration, err error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	end := time.Now().Add(length)
	for range clients {
		caller, err := dialLeader(ctx, c)
		if err != nil {
			return 0, nil, err
		}
		all.Go(func() {
			defer caller.conn.Close()
			for time.Now().Before(end) && ctx.Err() == nil {
				request := &greylagv1.SubmitJobsRequest{RequestId: client.NewRequestID()}
				for range many {
					request.Jobs = append(request.Jobs, spec())
				}
				begun := time.Now()
				failed := caller.submit(request)
				mu.Lock()
				if failed != nil {
					err = failed
				} else {
					jobs, took = jobs+many, append(took, time.Since(begun))
				}
				mu.Unlock()
				if failed != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return jobs, took, err
}
