package state

import (
	"fmt"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/pkg/cluster"
)

// Backoff between a failure and the next attempt: doubled by each failure without progress, and
// varied by at most a quarter, so that jobs that failed together do not start together. Other hardware can run
// the job at once; the short pause after its loss lets a node that has just restarted become ready.
const (
	hardwareBackOff = 5 * time.Second
	launchBackOff   = 15 * time.Second
	maxBackOff      = 5 * time.Minute
	retryBackOff    = time.Minute // after a failure of the job itself
	maxRetryBackOff = 30 * time.Minute
	continuePause   = time.Minute // from the start of an attempt that ended at its time limit until the next one
)

// sigterm is the number of SIGTERM, which a job gets at its time limit.
const sigterm = 15

// silentWindow is how long after the end of a job its failure may turn out to be that of a node. A node is
// UNKNOWN within two heartbeats.
const silentWindow = time.Minute

// ending is how an attempt ends.
type ending struct {
	outcome cluster.JobState
	reason  cluster.Reason
	detail  string
	exit    cluster.Exit
	returns bool // the job is requeued afterwards
}

// advance moves a job, a value that is not shared yet, as far as its tasks allow: to RUNNING, to
// COMPLETING, and to its end. Only the task of the rank has changed, or the members of an elastic job, with rank 0. O(1)
// until the job ends; O(members) for an elastic job.
func (s *State) advance(j *cluster.Job, rank int) {
	if j.Members != nil && (j.State == cluster.Configuring || j.State == cluster.Running) {
		rank = s.advanceMembers(j, rank)
	}
	if j.State == cluster.Configuring && j.AllNamedReached(cluster.TaskStarted) {
		s.step(j, cluster.Run)
	}
	if j.State == cluster.Configuring || j.State == cluster.Running {
		if e, over := attemptResult(j, rank); over {
			switch {
			case e.reason == cluster.ReasonNonZeroExitCode:
				e.detail = s.ownSignal(j, e.exit)
			case e.outcome == cluster.Completed && (j.Preempting != nil || s.savedForLimit(j, e.exit)):
				e.detail = "exit status 0 after its signal, so it is not requeued"
			}
			if j.Preempting != nil && e.reason == cluster.ReasonNonZeroExitCode {
				killed := e.detail
				e = s.preempted(j, j.Preempting) // it followed its signal
				if killed != "" {
					e.detail += "; " + killed
				}
			} else if s.savedForLimit(j, e.exit) && e.reason == cluster.ReasonNonZeroExitCode {
				e = ending{outcome: cluster.TimedOut, reason: cluster.ReasonTimeLimit, exit: e.exit, returns: true} // likewise
			}
			s.end(j, e)
			s.blameSilent(j)
			s.blameGPU(j.Tasks.At(rank))
		}
	}
	s.settle(j)
}

// savedForLimit reports whether an attempt that ended by itself follows the checkpoint signal before its time limit, and
// continues: it has committed a checkpoint of a later step since then, and did not crash. O(checkpoints).
func (s *State) savedForLimit(j *cluster.Job, exit cluster.Exit) bool {
	limit, signal := j.Limit(), j.Spec.CheckpointSignal
	crashed := exit.Signal != 0 && exit.Signal != sigterm && exit.Signal != signal.Number
	return j.Spec.RequeueAtLimit && limit > 0 && j.Asked > 0 && j.Asked.Add(signal.Lead(j.Spec.TimeLimit)) >= limit && !crashed &&
		j.Saved() >= j.Asked && j.MadeProgress()
}

// ownSignal describes the end of an attempt that a signal killed which the job requested and got in this attempt; ""
// for another end. O(checkpoints).
func (s *State) ownSignal(j *cluster.Job, exit cluster.Exit) string {
	option := ""
	switch {
	case exit.Signal == 0:
	case exit.Signal == j.Spec.CheckpointSignal.Number && (j.Asked > 0 || j.AskedBy(s.now) > 0):
		option = "--checkpoint-signal"
	case exit.Signal == j.Spec.Signal.Number && j.Warned:
		option = "--signal"
	}
	if option == "" {
		return ""
	}
	return fmt.Sprintf("ended by %s, its own %s: the script has no trap for it", cluster.SignalName(exit.Signal), option)
}

// blameSilent makes the failure of a job on several nodes one of the cluster if the node of an active task
// does not respond: a program whose peer is gone exits with an error long before node_timeout. The tasks of
// such nodes count as lost, and are killed when their node responds again. j is not shared yet. O(nodes).
func (s *State) blameSilent(j *cluster.Job) {
	if j.State != cluster.Completing || j.Reason != cluster.ReasonNonZeroExitCode || s.now.Sub(j.Ended) > silentWindow {
		return
	}
	var silent []string
	for rank, t := range j.Tasks.All() {
		n, _ := s.nodes.Get(t.Node)
		if t.Phase >= cluster.TaskEnded || n == nil || n.Liveness != cluster.Silent {
			continue
		}
		silent = append(silent, t.Node)
		j.Tasks = j.Tasks.With(rank, gone(*t, "not responding"))
		c := *n
		c.Orphans = max(1, c.Orphans) // it may still run: see orphansOnReturn
		s.putNode(&c)
		s.awaitProof(j, t.Node)
	}
	if len(silent) == 0 {
		return
	}
	j.Outcome, j.Reason, j.Returns = cluster.NodeFailed, cluster.ReasonNodeFail, j.Spec.Requeue
	j.Detail = fmt.Sprintf("node %s: not responding when another task ended with status %d", hostlist.Compress(silent), j.Exit.Status())
}

// blameGPU records the failure of a node whose GPU ended a task.
func (s *State) blameGPU(t *cluster.Task) {
	if n, _ := s.nodes.Get(t.Node); n != nil && t.Cause == cluster.GPUFault {
		c := *n
		s.recordFailure(&c, t.Message)
		s.putNode(&c)
	}
}

// recordFailure adds a failure of a node to n, which is not shared yet. What happens to a drained node is no further
// failure: it is being repaired.
func (s *State) recordFailure(n *cluster.Node, cause string) {
	if n.Drain {
		return
	}
	n.Failures = cluster.AppendFailure(n.Failures, cluster.NodeFailure{At: s.now, Cause: command.Sanitize(cause)})
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
	if e.outcome == cluster.OutOfMemory || e.reason == cluster.ReasonNonZeroExitCode {
		e.returns = j.Spec.Requeue && j.Retries < j.Spec.Retry.Limit && j.Spec.Retry.Covers(e.outcome, e.exit)
	}
	return e, e.outcome != cluster.Completed || rank == 0 && !j.Spec.EveryNode || j.AllNamedReached(cluster.TaskEnded)
}

// endingOf returns how a task that has ended ends its job.
func endingOf(j *cluster.Job, t *cluster.Task, script bool) ending {
	switch t.Cause {
	case cluster.MemoryKilled:
		return ending{outcome: cluster.OutOfMemory, reason: cluster.ReasonOutOfMemory, detail: t.Message, exit: t.Exit}
	case cluster.LaunchFailed:
		return ending{outcome: cluster.Failed, reason: cluster.ReasonLaunchFailed, detail: t.Message, exit: notOK(t.Exit)}
	case cluster.CheckpointFailed:
		return ending{outcome: cluster.Failed, reason: cluster.ReasonCheckpoint, detail: t.Message, exit: notOK(t.Exit), returns: true}
	case cluster.CredentialsRefused:
		return ending{outcome: cluster.Failed, reason: cluster.ReasonCredentialsRefused, detail: t.Message, exit: notOK(t.Exit), returns: true}
	case cluster.OutputExceeded:
		return ending{outcome: cluster.Failed, reason: cluster.ReasonOutputLimit, detail: t.Message, exit: t.Exit}
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
	j.Ended, j.Preempting = s.now, nil
	if a := j.Activity.Value(); j.Activity != nil {
		a.End(s.now)
		j.SetActivity(a)
	}
}

// settle ends a COMPLETING job when all of its nodes are clean: it is requeued, or is over.
func (s *State) settle(j *cluster.Job) {
	if j.State != cluster.Completing || !j.Tasks.AllReached(cluster.TaskClean) {
		return
	}
	closeSteps(j, s.now)
	j.Charged += int64(s.credits.Bill(s.env(), j))
	s.checkContinues(j)
	checkCopied(j)
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
	j.Exit = j.ScriptExit()
	j.Planned, j.Avoided = 0, nil
}

// checkContinues ends a job, a value that is not shared yet, that reached its time limit without progress in this
// attempt: the next attempt would do the same again. Checkpoints until the end of its tasks count.
func (s *State) checkContinues(j *cluster.Job) {
	if j.Outcome != cluster.TimedOut || !j.Returns {
		return
	}
	ran := cluster.FormatElapsed(j.Ended.Sub(j.Started))
	if !j.MadeProgress() {
		j.Returns, j.Canceller = false, ""
		j.Detail = fmt.Sprintf("not requeued at its time limit: no checkpoint of a later step in %s", ran)
		if k := j.ResumePoint(); k != nil && k.Attempt == j.Attempt && k.Step == cluster.NoStep {
			j.Detail = fmt.Sprintf("not requeued at its time limit: checkpoint %d has no --step", k.Number)
		}
		return
	}
	if j.Ended < j.Limit() {
		j.Detail = fmt.Sprintf("ended after its checkpoint signal, %s after its start; continues from its last checkpoint", ran)
		return
	}
	j.Detail = fmt.Sprintf("reached its time limit after %s, and continues from its last checkpoint", ran)
}

// checkCopied fails a job, a value that is not shared yet, whose files of StageOut could not be copied. If its first node
// was lost before they were, its results are lost, as those of a running job would be.
func checkCopied(j *cluster.Job) {
	if !j.CopiesOut() {
		return
	}
	t := j.Tasks.At(0)
	switch {
	case t.Copied == cluster.Copied:
	case t.Copied == cluster.CopyFailed && j.Outcome != cluster.Completed:
		j.Detail = strings.TrimPrefix(j.Detail+"; "+t.Message, "; ")
	case j.Outcome != cluster.Completed:
	case t.Copied == cluster.CopyFailed:
		j.Outcome, j.Reason, j.Detail = cluster.Failed, cluster.ReasonStageOut, t.Message
	default:
		e := lostWith(j, t, "lost before the files of --stage-out were copied")
		j.Outcome, j.Reason, j.Detail, j.Returns = e.outcome, e.reason, e.detail, e.returns
	}
}

// requeue makes a job pending again. A failure adds a backoff. Too many failures of the cluster without progress
// hold the job, and so does the loss of its last checkpoint. Preemptions and manual requeues do neither.
func (s *State) requeue(j *cluster.Job) {
	if j.Started > 0 {
		j.Attempts = cluster.AppendAttempt(j.Attempts, j.EndedAttempt(hostsOf(j.Alloc.Nodes)))
	}
	failure := j.CountRestart()
	j.PausePreemption(failure)
	if failure != cluster.NoFailure {
		j.Avoided = cluster.AvoidNodes(j.Avoided, j.Suspects(failure), j.Attempt, s.now)
	}
	if damaged := damagedShares(j); damaged != "" && j.Resume != 0 {
		damageResumed(j, damaged)
	}
	refused := j.Reason == cluster.ReasonCredentialsRefused
	detail := fmt.Sprintf("attempt %d: %s", j.Attempt, j.Detail)
	if failure == cluster.OwnFailure {
		detail = fmt.Sprintf("attempt %d: %s, exit status %d; retry %d of %d", j.Attempt, j.Outcome, j.Exit.Status(), j.Retries, j.Spec.Retry.Limit)
		if j.Detail != "" {
			detail += "; " + j.Detail
		}
	}
	s.step(j, cluster.Requeue)
	j.Eligible, j.Reason, j.Detail = max(s.now, j.Spec.Begin), cluster.ReasonNone, detail
	if failure != cluster.NoFailure {
		j.Eligible = max(j.Eligible, s.now.Add(backOff(j, failure)))
	}
	if j.Outcome == cluster.TimedOut { // an attempt of seconds that saves its work must not return at once again and again
		j.Eligible = max(j.Eligible, j.Started.Add(continuePause))
	}
	if j.Eligible > s.now {
		j.Reason = cluster.ReasonBeginTime
	}
	if len(j.Unfenced) > 0 {
		j.Reason = cluster.ReasonFencing
	}
	if j.Hold != cluster.NotHeld {
		j.Reason = holdReason(j.Hold)
		s.recordHold(j)
	}
	if most := s.policy.MaxRestarts; failure != cluster.NoFailure && failure != cluster.OwnFailure && j.Failures > most {
		j.Hold, j.Reason = cluster.HeldByAdmin, cluster.ReasonRequeueLimit
		j.Detail = fmt.Sprintf("cluster failure %d without progress exceeds max_restarts = %d; %s", j.Failures, most, detail)
	}
	if drained := s.drainedBy(j.ID); failure != cluster.NoFailure && len(drained) >= cluster.MostDrainsOfJob {
		j.Hold, j.Reason = cluster.HeldByAdmin, cluster.ReasonRequeueLimit
		resumed := ""
		if s.excuseNodes(j.ID); len(s.drainedBy(j.ID)) == 0 {
			resumed = " (now resumed)"
		}
		j.Detail = fmt.Sprintf("its attempts drained nodes %s%s; check its request and the prolog, then gctl release %s; %s",
			hostlist.Compress(drained), resumed, j.Ref(), detail)
	}
	j.Alloc, j.Members, j.TRES, j.Tasks, j.Steps, j.Outcome, j.Exit, j.Requester = nil, nil, nil, nil, nil, 0, cluster.Exit{}, ""
	j.Started, j.Ended, j.Planned, j.Granted = 0, 0, 0, 0
	j.Returns, j.Warned, j.Asked, j.Partition, j.Canceller, j.Resume = false, false, 0, "", "", 0
	j.Activity = nil
	holdWithoutCheckpoint(j, detail)
	if refused && j.Hold == cluster.NotHeld {
		j.Hold, j.Reason = cluster.HeldByUser, cluster.ReasonCredentialsRefused
		j.Detail += fmt.Sprintf("; renew the credentials (gctl secret set aws-credentials <FILE), then gctl release %s", j.Ref())
	}
}

// backOff returns the pause before the next attempt of a job. It depends on the job and the attempt alone.
func backOff(j *cluster.Job, failure cluster.Failure) time.Duration {
	d, most, n := launchBackOff, maxBackOff, j.Failures
	switch failure {
	case cluster.HardwareFailure:
		d = hardwareBackOff
	case cluster.OwnFailure:
		d, most, n = retryBackOff, maxRetryBackOff, j.Retries
	}
	for ; n > 1 && d < most; n-- {
		d *= 2
	}
	d = min(d, most)
	hash := (uint64(j.ID)<<32 | uint64(j.Attempt)) * 0x9e3779b97f4a7c15 >> 54 // of 1024 steps
	return (d - d/4 + d/2*time.Duration(hash)/1024).Truncate(time.Millisecond)
}
