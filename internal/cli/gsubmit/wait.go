package gsubmit

import (
	"cmp"
	"context"
	"fmt"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// signalBase is what shells add to the number of the signal that ended a program.
const signalBase = 128

// Wait waits until a job, or every element of an array, has ended, and returns the job's exit
// status, or that of the worst element. signalled is the status of a job that a signal ended; 0 is 128
// and the signal's number.
func Wait(ctx context.Context, p *ui.Process, c ui.Cluster, job *greylagv1.Submitted, signalled ui.Status) error {
	return waiter{command{p}, signalled}.wait(ctx, c, job)
}

// waiter waits for jobs.
type waiter struct {
	command
	signalled ui.Status
}

func (p waiter) wait(ctx context.Context, c ui.Cluster, job *greylagv1.Submitted) error {
	ref := fmt.Sprint(job.Id)
	worst := ui.OK
	ended, inVain := make(map[uint64]bool), false
	err := c.Watch(ctx, &greylagv1.WatchJobsRequest{Filter: &greylagv1.Filter{Jobs: []string{ref}}, UntilEnded: true}, func(m *greylagv1.WatchJobsResponse) error {
		for _, j := range m.Jobs {
			if status, final := p.endStatus(j); final && !ended[j.Id] {
				ended[j.Id] = true
				worst = max(worst, status)
				p.tellEnd(j)
			}
			if !inVain && wire.Word(j.State) == cluster.Pending.String() && wire.Word(j.Reason) == cluster.ReasonDependencyNeverSatisfied.String() {
				inVain = true
				p.Note("job %s will never start without a change: %s", j.Ref, cmp.Or(j.Detail, wire.Word(j.Reason)))
			}
		}
		return nil
	})
	if ui.IsInterrupted(ctx) {
		p.Note("job %s continues; end it with gcancel %s", ref, ref)
		return ui.Exit(ui.Interrupted)
	}
	if err != nil {
		return err
	}
	if len(ended) < max(int(job.ArraySize), 1) {
		return p.endLater(ctx, c, job, ended)
	}
	return ui.Exit(worst)
}

// endLater asks how jobs ended whose end the watch missed, because they ended while it was broken.
// shown are those that it showed.
func (p waiter) endLater(ctx context.Context, c ui.Cluster, job *greylagv1.Submitted, shown map[uint64]bool) error {
	ref := fmt.Sprint(job.Id)
	answer, err := c.Jobs().GetJob(ctx, &greylagv1.GetJobRequest{Job: ref})
	if err != nil {
		return err
	}
	worst, ended := ui.OK, 0
	for _, j := range answer.Jobs {
		if status, final := p.endStatus(j); final {
			ended++
			worst = max(worst, status)
			if !shown[j.Id] {
				p.tellEnd(j)
			}
		}
	}
	if ended < max(int(job.ArraySize), 1) {
		return fmt.Errorf("the controller stopped reporting job %s before its end", ref)
	}
	return ui.Exit(worst)
}

// endStatus returns the exit status of a command that waited for the job, and whether the job has
// ended.
func (p waiter) endStatus(j *greylagv1.Job) (ui.Status, bool) {
	state, err := cluster.ParseJobState(wire.Word(j.State))
	if err != nil || !state.Final() {
		return ui.OK, false
	}
	switch {
	case j.ExitSignal != 0 && p.signalled != 0:
		return p.signalled, true
	case j.ExitSignal != 0:
		return signalBase + ui.Status(j.ExitSignal), true
	case j.ExitCode != 0:
		return ui.Status(j.ExitCode), true
	case state != cluster.Completed:
		return ui.Failed, true
	}
	return ui.OK, true
}

// tellEnd prints on standard error what the exit status alone does not say.
func (p command) tellEnd(j *greylagv1.Job) {
	switch {
	case wire.Word(j.State) == cluster.Completed.String():
	case j.Detail != "":
		p.Note("job %s %s (%s): %s", j.Ref, wire.Word(j.State), ui.ReasonText(j), j.Detail)
	default:
		p.Note("job %s %s (%s)", j.Ref, wire.Word(j.State), ui.ReasonText(j))
	}
}
