package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

// failover kills the leader under load repeatedly, and measures the time until the next submission
// is acknowledged.
func failover(ctx context.Context, out *paper) error {
	const kills, clients = 20, 16
	c, err := bare(ctx, 3)
	if err != nil {
		return err
	}
	defer c.Stop() // the results stand even if stopping fails
	busy, stop := context.WithCancel(ctx)
	acks := make(chan struct{}, 1024)
	var load sync.WaitGroup
	defer load.Wait()
	defer stop()
	for range clients {
		client, err := c.Client()
		if err != nil {
			return err
		}
		load.Go(func() {
			for busy.Err() == nil {
				if _, err := client.Jobs().SubmitJobs(busy, &greylagv1.SubmitJobsRequest{Jobs: []*greylagv1.JobSpec{spec()}}); err != nil {
					continue
				}
				select {
				case acks <- struct{}{}:
				default:
				}
			}
		})
	}
	var outages []time.Duration
	for range kills {
		leader, err := c.Leader(ctx)
		if err != nil {
			return err
		}
		if err := c.Controller(leader).Kill(); err != nil {
			return err
		}
		outages = append(outages, outage(acks, time.Now()))
		if err := c.Controller(leader).Start(); err != nil {
			return err
		}
		if err := caughtUp(ctx, c.Controller(leader).Status); err != nil {
			return err
		}
	}
	out.table(fmt.Sprintf("Leader killed with SIGKILL, 3 controllers, %d clients, %d times: until the next acknowledged submission", clients, kills), "median", "worst")
	out.row(seconds(quantile(outages, 0.5)), seconds(quantile(outages, 1)))
	return nil
}

// outage waits for an answer that came after the kill; earlier ones are drained first.
func outage(acks <-chan struct{}, killed time.Time) time.Duration {
	for len(acks) > 0 {
		<-acks
	}
	<-acks
	return time.Since(killed)
}

// caughtUp waits until a restarted controller follows a leader.
func caughtUp(ctx context.Context, ask func(context.Context) (*greylagv1.GetStatusResponse, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		if status, err := ask(ctx); err == nil && status.GetLeader() != "" && status.GetAppliedIndex()+1000 > status.GetCommitIndex() {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("a restarted controller finds no leader: %w", ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
