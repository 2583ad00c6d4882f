package audit

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/test/cluster"
)

// Failover kills the leader with SIGKILL and returns the time until a submission that began after
// that was acknowledged. The killed controller is restarted and has caught up when Failover
// returns.
func Failover(ctx context.Context, c *cluster.Cluster, submit Submitter, answers *Answers) (time.Duration, error) {
	i, err := c.Leader(ctx)
	if err != nil {
		return 0, err
	}
	leader := c.Controller(i)
	begun := time.Now()
	if err := leader.Kill(); err != nil {
		return 0, err
	}
	if err := Probe(ctx, submit, answers); err != nil {
		return 0, fmt.Errorf("%s was killed: %w", leader.Name, err)
	}
	took := time.Since(begun)
	if err := leader.Start(); err != nil {
		return took, err
	}
	return took, AwaitFollower(ctx, c, leader)
}

// Probe submits one held job, and records its acknowledgement.
func Probe(ctx context.Context, submit Submitter, answers *Answers) error {
	name := "probe-" + hex.EncodeToString(random(8))
	answer, err := submit.SubmitJobs(ctx, &greylagv1.SubmitJobsRequest{RequestId: name, Jobs: []*greylagv1.JobSpec{Waiting(name)}})
	if err != nil {
		answers.Unknown(name)
		return fmt.Errorf("submit a probe: %w", err)
	}
	answers.Acknowledged(name, answer.Jobs[0].Id)
	return nil
}

// AwaitFollower waits, at most two minutes, until a controller has what the others had committed
// when it was called.
func AwaitFollower(ctx context.Context, c *cluster.Cluster, ctl *cluster.Controller) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	goal := uint64(0)
	return cluster.Until(ctx, ctl.Name+" catches up", func() (bool, error) {
		if goal == 0 {
			i, err := c.Leader(ctx)
			if err != nil {
				return false, err
			}
			status, err := c.Controller(i).Status(ctx)
			if err != nil {
				return false, err
			}
			goal = status.AppliedIndex
		}
		if !ctl.Running() {
			return false, fmt.Errorf("it ended with status %d", ctl.ExitCode())
		}
		status, err := ctl.Status(ctx)
		if err != nil {
			return false, err
		}
		if status.AppliedIndex < goal {
			return false, fmt.Errorf("it is at %d of %d", status.AppliedIndex, goal)
		}
		return true, nil
	})
}
