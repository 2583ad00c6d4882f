package cli

import (
	"cmp"
	"context"
	"fmt"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/pkg/cluster"
)

// signalBase is what shells add to the number of the signal that ended a program.
const signalBase = 128

// wait lasts until a job, or every element of an array, has ended, and then ends
// the command as the job ended; as the worst element of an array did.
func (p submitCommand) wait(ctx context.Context, c Cluster, job *greylagv1.Submitted) error {
	ref := fmt.Sprint(job.Id)
	worst := OK
	ended, inVain := make(map[uint64]bool), false
	err := c.Watch(ctx, &greylagv1.WatchRequest{Filter: &greylagv1.Filter{Jobs: []string{ref}}, UntilEnded: true}, func(m *greylagv1.WatchResponse) error {
		for _, j := range m.Jobs {
			if status, final := endStatus(j); final && !ended[j.Id] {
				ended[j.Id] = true
				worst = max(worst, status)
				p.tellEnd(j)
			}
			if !inVain && j.State == cluster.Pending.String() && j.Reason == cluster.ReasonDependencyNeverSatisfied.String() {
				inVain = true
				p.Note("job %s will never start by itself: %s", j.Ref, cmp.Or(j.Detail, j.Reason))
			}
		}
		return nil
	})
	if interrupted(ctx) {
		p.Note("job %s goes on; end it with gcancel %s", ref, ref)
		return Exit(Interrupted)
	}
	if err != nil {
		return err
	}
	if len(ended) < max(int(job.ArraySize), 1) {
		return p.endLater(ctx, c, job, ended)
	}
	return Exit(worst)
}

// endLater asks how jobs ended whose end the watch did not show, because they
// ended while it was broken. told are those that it showed.
func (p submitCommand) endLater(ctx context.Context, c Cluster, job *greylagv1.Submitted, told map[uint64]bool) error {
	ref := fmt.Sprint(job.Id)
	answer, err := c.Jobs().Get(ctx, &greylagv1.GetRequest{Job: ref})
	if err != nil {
		return err
	}
	worst, ended := OK, 0
	for _, j := range answer.Jobs {
		if status, final := endStatus(j); final {
			ended++
			worst = max(worst, status)
			if !told[j.Id] {
				p.tellEnd(j)
			}
		}
	}
	if ended < max(int(job.ArraySize), 1) {
		return fmt.Errorf("the controller stopped telling about job %s before its end", ref)
	}
	return Exit(worst)
}

// endStatus is the exit status of a command that waited for the job, and whether
// the job has ended.
func endStatus(j *greylagv1.Job) (Status, bool) {
	state, err := cluster.ParseJobState(j.State)
	if err != nil || !state.Final() {
		return OK, false
	}
	switch {
	case j.ExitSignal != 0:
		return signalBase + Status(j.ExitSignal), true
	case j.ExitCode != 0:
		return Status(j.ExitCode), true
	case state != cluster.Completed:
		return Failed, true
	}
	return OK, true
}

// tellEnd says on standard error what the exit status alone does not.
func (p submitCommand) tellEnd(j *greylagv1.Job) {
	switch {
	case j.State == cluster.Completed.String():
	case j.Detail != "":
		p.Note("job %s %s (%s): %s", j.Ref, j.State, reasonOf(j), j.Detail)
	default:
		p.Note("job %s %s (%s)", j.Ref, j.State, reasonOf(j))
	}
}
