package state

import (
	"cmp"
	"fmt"

	"github.com/greylag/greylag/internal/cow"
	"github.com/greylag/greylag/pkg/cluster"
)

// victim orders jobs with a notice by the job for which they end.
type victim struct{ by, id cluster.JobID }

func newVictims() cow.Map[victim, none] {
	return cow.New[victim, none](func(a, b victim) int { return cmp.Or(cmp.Compare(a.by, b.by), cmp.Compare(a.id, b.id)) })
}

// evict ends a job so that another can start, if the policy still lets the one preempt the other: at once, or after
// the grace time of its signal. It returns why not.
func (s *State) evict(e *cluster.Preemption) string {
	old, runs := s.holding.Get(e.Job)
	by, waits := s.pending.Get(e.For)
	switch {
	case !runs || old.State == cluster.Completing:
		return "the job is no longer running"
	case old.Attempt != e.Attempt:
		return fmt.Sprintf("attempt %d is not the running one", e.Attempt)
	case old.Preempting != nil && old.Preempting.By == 0:
		return "the job is already ending: reclaim notice for its node"
	case old.Preempting != nil:
		return fmt.Sprintf("the job ends for job %d already", old.Preempting.By)
	case !waits:
		return fmt.Sprintf("job %s is no longer pending", e.For)
	case by.Hold != cluster.NotHeld || by.Eligible > s.now:
		return fmt.Sprintf("job %s may not start now", by.Ref())
	case by.PreemptsFrom > s.now:
		return fmt.Sprintf("job %s failed soon after others were preempted for it, and preempts none for another %s", by.Ref(), cluster.FormatElapsed(by.PreemptsFrom.Sub(s.now)))
	case !s.policy.MayPreempt(by.Spec.QOS, old.Spec.QOS):
		return fmt.Sprintf("qos %q does not preempt %q", by.Spec.QOS, old.Spec.QOS)
	case s.policy.ExemptUntil(old) > s.now:
		return fmt.Sprintf("the job is exempt from preemption until it has run for %s", s.policy.ExemptUntil(old).Sub(old.Started))
	case s.policy.Spared(old, s.now):
		return fmt.Sprintf("the job was preempted %d times in 24 hours", s.policy.MaxPreemptions)
	}
	j := *old
	grace := s.policy.GraceOf(old)
	notice := &cluster.Preempting{
		By: by.ID, At: s.now.Add(grace), Ref: by.Ref().String(), User: by.Spec.Owner.User, QOS: by.Spec.QOS, GPUs: by.Spec.Request.TotalGPUs(),
	}
	if grace > 0 {
		j.Preempting = notice
		j.Reason, j.Detail = cluster.ReasonPreempted, "gets SIGTERM "+cluster.FormatElapsed(grace)+" after its signal, for "+s.preemptorText(&j, notice)
		s.askToSave(&j)
	} else {
		s.end(&j, s.preempted(&j, notice))
	}
	s.settle(&j)
	s.put(old, &j)
	return ""
}

// markPreemptor records that others were preempted for a pending job.
func (s *State) markPreemptor(id cluster.JobID) {
	if old, waits := s.pending.Get(id); waits && !old.Preempts {
		j := *old
		j.Preempts = true
		s.put(old, &j)
	}
}

// askToSave sends a job, a value that is not shared yet, the signal on which it saves its work.
func (s *State) askToSave(j *cluster.Job) {
	signal := j.Spec.PreemptSignal()
	if signal == j.Spec.CheckpointSignal {
		j.Asked = s.now
	} else {
		j.Warned = true
	}
	s.send(s.index, j.ID, signal.Number, signal.BatchOnly)
}

// preempted returns the ending of a job for another one, or since the cloud takes its node back.
func (s *State) preempted(j *cluster.Job, by *cluster.Preempting) ending {
	if by.By == 0 {
		return s.reclaimed(j, by.Ref)
	}
	of, _ := s.policy.QOSNamed(j.Spec.QOS)
	j.Requester = by.User // a user who preempts their own job gets no refund
	e := ending{
		outcome: cluster.Preempted, reason: cluster.ReasonPreempted,
		returns: of.PreemptMode == cluster.PreemptRequeue && j.Spec.Requeue,
	}
	e.detail = fmt.Sprintf("preempted for %s: %s; preemption %d", s.preemptorText(j, by), s.lostText(j, e.returns), j.Preemptions(s.now)+1)
	if most := s.policy.MaxPreemptions; most > 0 {
		e.detail += fmt.Sprintf(" of at most %d", most)
	}
	e.detail += " in 24 hours"
	return e
}

// preemptorText describes the job for which another one ends, as far as the user of that one may know.
func (s *State) preemptorText(j *cluster.Job, by *cluster.Preempting) string {
	what := "qos " + by.QOS
	if by.GPUs > 0 {
		what += fmt.Sprintf(", %d GPU", by.GPUs)
		if by.GPUs > 1 {
			what += "s"
		}
	}
	if s.policy.Private && by.User != j.Spec.Owner.User {
		return "another job (" + what + ")"
	}
	return "job " + by.Ref + " (" + what + ")"
}

// lostText describes the work that a job loses now.
func (s *State) lostText(j *cluster.Job, repeats bool) string {
	gpus, cpus := 0, int32(0)
	for i := range j.Alloc.Nodes {
		gpus += len(j.Alloc.Nodes[i].GPUs)
		cpus += j.Alloc.Nodes[i].CPUs
	}
	count, unit := gpus, "GPU"
	if gpus == 0 {
		count, unit = int(cpus), "CPU"
	}
	if count != 1 {
		unit += "s"
	}
	outcome := "is lost"
	if repeats {
		outcome = "will be repeated"
	}
	since := ""
	if j.Saved() > j.Started {
		since = " since its last checkpoint"
	}
	return fmt.Sprintf("%s on %d %s%s %s", cluster.FormatElapsed(s.now.Sub(j.Saved())), count, unit, since, outcome)
}

// spare lets the jobs run on that have a notice for a job which gave up its start: it ended or is held. Once it has
// started, its plan and those of others rely on their end.
func (s *State) spare(by *cluster.Job) {
	var list []cluster.JobID
	for k := range s.victims.From(victim{by: by.ID}) {
		if k.by != by.ID {
			break
		}
		list = append(list, k.id)
	}
	for _, id := range list {
		old, _ := s.holding.Get(id)
		j := *old
		j.Preempting, j.Reason, j.Detail = nil, cluster.ReasonNone, ""
		s.put(old, &j)
	}
}
