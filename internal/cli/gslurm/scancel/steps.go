package scancel

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gslurm/slurmcmd"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/pkg/cluster"
)

// kill is the signal of --batch alone.
const kill = 9

// stepRef is a step as it is given: 12.0.
type stepRef struct {
	job string
	id  uint32
}

// stepsOnly reports whether a signal is for the steps of jobs, and not for their scripts.
func (x *cancellation) stepsOnly() bool { return x.signal != 0 && !x.batch && !x.full }

// signalSteps ends or signals the named steps, and signals all steps of the selected jobs if the signal is
// for steps.
func (c command) signalSteps(ctx context.Context, cl ui.Cluster, x *cancellation) error {
	failed := false
	report := func(id, problem string) {
		failed = true
		fmt.Fprintf(c.Stderr, "scancel: error: Kill job error on job id %s: %s\n", id, problem)
	}
	for _, s := range x.steps {
		name := s.job + "." + cluster.FormatStep(s.id)
		answer, err := cl.Jobs().GetJob(ctx, &greylagv1.GetJobRequest{Job: s.job})
		if err == nil && len(answer.Jobs) == 1 {
			err = signalStep(ctx, cl, answer.Jobs[0].Id, s.id, x.signal)
		}
		switch problem := stepProblem(err); {
		case ui.NoAnswer(err):
			return err
		case err == nil, isGone(err) && x.signal == 0 && !x.verbose:
		case problem != "":
			report(name, problem)
		}
	}
	if x.stepsOnly() {
		refs, err := c.selected(ctx, cl, x)
		if err != nil {
			return err
		}
		for _, ref := range refs {
			problem, err := c.signalAll(ctx, cl, ref, x.signal)
			if err != nil {
				return err
			}
			if problem != "" && !x.quiet {
				report(ref, problem)
			}
		}
	}
	if failed {
		return ui.Exit(ui.Failed)
	}
	return nil
}

// selected returns the jobs that the command line names, or those that match its conditions.
func (c command) selected(ctx context.Context, cl ui.Cluster, x *cancellation) ([]string, error) {
	f := x.filter
	if len(f.Users)+len(f.Names)+len(f.Partitions)+len(f.Accounts)+len(f.Nodes)+len(f.Qos)+len(f.States) == 0 && !f.Mine {
		return f.Jobs, nil
	}
	jobs, err := slurmcmd.FetchJobs(ctx, cl, f, c.Now(), slurmcmd.Brief)
	var refs []string
	for _, j := range jobs {
		if j.State != greylagv1.JobState_JOB_STATE_PENDING {
			refs = append(refs, j.Ref)
		}
	}
	return refs, err
}

// signalAll signals the active steps of a job, or of the running elements of an array. The problem is why
// no job could be signalled.
func (c command) signalAll(ctx context.Context, cl ui.Cluster, ref string, signal int32) (problem string, err error) {
	answer, err := cl.Jobs().GetJob(ctx, &greylagv1.GetJobRequest{Job: ref})
	if err != nil {
		if ui.NoAnswer(err) {
			return "", err
		}
		return stepProblem(err), nil
	}
	problem = "Job/step already completing or completed"
	for _, j := range answer.Jobs {
		switch {
		case j.State == greylagv1.JobState_JOB_STATE_PENDING:
			problem = "Job is pending execution"
			continue
		case j.State >= greylagv1.JobState_JOB_STATE_COMPLETED:
			continue
		}
		for _, s := range j.Steps {
			if s.State >= greylagv1.JobState_JOB_STATE_COMPLETED {
				continue
			}
			if err := signalStep(ctx, cl, j.Id, s.Id, signal); err != nil && !isGone(err) {
				return stepProblem(err), nil
			}
		}
		return "", nil
	}
	return problem, nil
}

func signalStep(ctx context.Context, cl ui.Cluster, job uint64, step uint32, signal int32) error {
	_, err := cl.Jobs().SignalStep(ctx, &greylagv1.SignalStepRequest{RequestId: client.NewRequestID(), Job: job, Step: step, Signal: signal})
	return err
}

// isGone reports whether a call failed because the job or the step has ended, or never existed.
func isGone(err error) bool {
	code := connect.CodeOf(err)
	return code == connect.CodeNotFound || code == connect.CodeFailedPrecondition
}

// stepProblem returns Slurm's phrase for an error.
func stepProblem(err error) string {
	switch connect.CodeOf(err) {
	case connect.CodeNotFound:
		return "Invalid job id specified"
	case connect.CodeFailedPrecondition:
		return "Job/step already completing or completed"
	case connect.CodePermissionDenied:
		return "Access/permission denied"
	}
	if err == nil {
		return ""
	}
	return ui.Printable(slurmcmd.Sentences(err)[0])
}
