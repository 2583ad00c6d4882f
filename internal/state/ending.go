package state

import (
	"fmt"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// Backoff between a failure of the cluster and the next attempt: 5 s, doubled by each such failure,
// at most 10 min.
const (
	firstBackOff = 5 * time.Second
	maxBackOff   = 10 * time.Minute
)

// ending is how an attempt ends.
type ending struct {
	outcome cluster.JobState
	reason  cluster.Reason
	detail  string
	exit    cluster.Exit
	returns bool // the job is requeued afterwards
}

// advance moves a job, a value that is not shared yet, as far as its tasks allow: to RUNNING, to
// COMPLETING, and to its end. Only the task of the rank has changed. O(1) until the job ends.
func (s *State) advance(j *cluster.Job, rank int) {
	if j.State == cluster.Configuring && j.Tasks.AllReached(cluster.TaskStarted) {
		s.step(j, cluster.Run)
	}
	if j.State == cluster.Configuring || j.State == cluster.Running {
		if e, over := attemptResult(j, rank); over {
			s.end(j, e)
		}
	}
	s.settle(j)
}

// attemptResult decides whether and how the attempt is over by the end of a task, if that has ended and
// no other was the end of the attempt. The script runs on the first node, or on every node. Another task
// ends the job only if it failed. O(1).
func attemptResult(j *cluster.Job, rank int) (e ending, over bool) {
	t := j.Tasks.At(rank)
	if t.Phase < cluster.TaskEnded {
		return ending{}, false
	}
	e = endingOf(j, t, rank == 0 || j.Spec.EveryNode)
	return e, e.outcome != cluster.Completed || rank == 0 && !j.Spec.EveryNode || j.Tasks.AllReached(cluster.TaskEnded)
}

// endingOf returns how a task that has ended ends its job.
func endingOf(j *cluster.Job, t *cluster.Task, script bool) ending {
	switch t.Cause {
	case cluster.MemoryKilled:
		return ending{outcome: cluster.OutOfMemory, reason: cluster.ReasonOutOfMemory, detail: t.Message, exit: t.Exit}
	case cluster.LaunchFailed:
		return ending{outcome: cluster.Failed, reason: cluster.ReasonLaunchFailed, detail: t.Message, exit: notOK(t.Exit)}
	case cluster.ImageFailed:
		return ending{outcome: cluster.Failed, reason: cluster.ReasonImageFailed, detail: t.Message, exit: notOK(t.Exit)}
	case cluster.Exited, cluster.NoCause:
		switch {
		case !script:
			return lostWith(j, t, "its task ended before the job")
		case t.Exit.OK():
			return ending{outcome: cluster.Completed}
		}
		return ending{outcome: cluster.Failed, reason: cluster.ReasonNonZeroExitCode, exit: t.Exit}
	}
	if t.Message == "" {
		return lostWith(j, t, t.Cause.String())
	}
	return lostWith(j, t, t.Message)
}

// notOK returns the exit status of a job that failed before its script ran: 1, as in Slurm,
// if none is known.
func notOK(e cluster.Exit) cluster.Exit {
	if e.OK() {
		e.Code = 1
	}
	return e
}

// lostWith returns the ending of a job that the cluster failed, on the node of a task.
func lostWith(j *cluster.Job, t *cluster.Task, why string) ending {
	return ending{
		outcome: cluster.NodeFailed, reason: cluster.ReasonNodeFail, exit: t.Exit,
		detail: "node " + t.Node + ": " + why, returns: j.Spec.Requeue,
	}
}

// end decides the outcome of a job that holds an allocation; its nodes stop the rest of it.
func (s *State) end(j *cluster.Job, e ending) {
	s.step(j, cluster.End)
	j.Outcome, j.Reason, j.Detail, j.Exit = e.outcome, e.reason, e.detail, e.exit
	j.Returns = e.returns
	j.Ended = s.now
}

// settle ends a COMPLETING job when all of its nodes are clean: it is requeued, or is over.
func (s *State) settle(j *cluster.Job) {
	if j.State != cluster.Completing || !j.Tasks.AllReached(cluster.TaskClean) {
		return
	}
	closeSteps(j, s.now)
	j.Charged += int64(s.credits.Bill(s.env(), j))
	switch by := j.Canceller; {
	case j.Returns && by != "":
		s.requeue(j)
		s.cancelPending(j, by)
		return
	case j.Returns:
		s.requeue(j)
		s.fund(j)
		return
	}
	event, known := cluster.Ending(j.Outcome)
	if !known {
		s.fault("job %s completes with outcome %s", j.ID, j.Outcome)
		event, j.Outcome = cluster.Fail, cluster.Failed
	}
	s.step(j, event)
	if j.Exit.OK() && j.Tasks.Len() > 0 {
		j.Exit = j.Tasks.At(0).Exit // of a script that was stopped
	}
	j.Planned = 0
}

// requeue makes a job pending again. A failure of the cluster adds a backoff, and too many failures
// hold the job. Preemptions and manual requeues do neither.
func (s *State) requeue(j *cluster.Job) {
	if j.Started > 0 {
		j.Attempts = cluster.AppendAttempt(j.Attempts, j.ThisAttempt())
	}
	failed := j.CountRestart()
	detail := fmt.Sprintf("attempt %d: %s", j.Attempt, j.Detail)
	s.step(j, cluster.Requeue)
	j.Eligible, j.Reason, j.Detail = max(s.now, j.Spec.Begin), cluster.ReasonNone, detail
	if failed {
		j.Eligible = max(j.Eligible, s.now.Add(backOff(j.Causes.Failures()-1)))
	}
	if j.Eligible > s.now {
		j.Reason = cluster.ReasonBeginTime
	}
	if most := s.policy.MaxRestarts; failed && j.Causes.Failures() > most {
		j.Hold, j.Reason = cluster.HeldByAdmin, cluster.ReasonRequeueLimit
		j.Detail = fmt.Sprintf("cluster failure %d exceeds max_restarts = %d; %s", j.Causes.Failures(), most, detail)
	}
	j.Alloc, j.TRES, j.Tasks, j.Steps, j.Outcome, j.Exit, j.Requester = nil, nil, nil, nil, 0, cluster.Exit{}, ""
	j.Started, j.Ended, j.Planned, j.Granted = 0, 0, 0, 0
	j.Returns, j.Warned, j.Partition, j.Canceller = false, false, "", ""
}

func backOff(restarts int32) time.Duration {
	d := firstBackOff
	for ; restarts > 0 && d < maxBackOff; restarts-- {
		d *= 2
	}
	return min(d, maxBackOff)
}
