package cluster

import (
	"slices"
	"time"
)

// PreemptMode is what happens to a job of a QOS when one of another QOS preempts it.
type PreemptMode uint8

// The modes, as the policy names them.
const (
	PreemptOff     PreemptMode = iota // it cannot be preempted
	PreemptRequeue                    // it is requeued if it may be; else it is cancelled
	PreemptCancel                     // it is cancelled
)

var preemptModeNames = [...]string{PreemptOff: "off", PreemptRequeue: "requeue", PreemptCancel: "cancel"}

// String returns the policy's word.
func (m PreemptMode) String() string {
	if int(m) >= len(preemptModeNames) {
		return "?"
	}
	return preemptModeNames[m]
}

// ParsePreemptMode reads the form of String.
func ParsePreemptMode(word string) (PreemptMode, bool) {
	i := slices.Index(preemptModeNames[:], word)
	return PreemptMode(max(i, 0)), i >= 0
}

// Preemption ends one job so that another can start.
type Preemption struct {
	Job     JobID
	Attempt Attempt // the attempt to end; a later one is left alone
	For     JobID
}

// ReclaimLead is how long before the cloud takes a node back the tasks there get SIGTERM.
const ReclaimLead = 20 * time.Second

// Preempting is the notice to a running job that it ends for another one, or since the cloud takes its node back.
type Preempting struct {
	By   JobID   // 0: for no job
	At   Instant // when its tasks get SIGTERM, unless they have ended before
	Ref  string  // the other job, its user, QOS and GPUs; without one, the node
	User string
	QOS  string
	GPUs int32
}

// MayPreempt reports whether jobs of one QOS may preempt those of another. O(QOS).
func (p *Policy) MayPreempt(qos, victim string) bool {
	by, known := p.QOSNamed(qos)
	if !known || !slices.Contains(by.Preempts, victim) {
		return false
	}
	of, known := p.QOSNamed(victim)
	return known && of.PreemptMode != PreemptOff && of.Tier < by.Tier
}

// A job that fails within preemptedFailure of a start for which others were preempted does not preempt others for
// preemptPause: else a job that crashes at once would end one job after another.
const (
	preemptedFailure = 10 * time.Minute
	preemptPause     = time.Hour
)

// PausePreemption keeps a job, whose attempt ended by a failure, from preempting others if it failed soon after others
// were preempted for it. A failure of hardware is not the job's.
func (j *Job) PausePreemption(failure Failure) {
	if j.Preempts && (failure == OwnFailure || failure == LaunchFailure) && j.Ended.Sub(j.Started) < preemptedFailure {
		j.PreemptsFrom = j.Ended.Add(preemptPause)
	}
	j.Preempts = false
}

// maxPreemptGrace bounds the grace time of preempted jobs.
const maxPreemptGrace = 10 * time.Minute

// preemptionWindow is how long a preemption of a job counts.
const preemptionWindow = 24 * time.Hour

// Preemptions returns how many attempts of a job were preempted in the 24 hours before an instant.
func (j *Job) Preemptions(at Instant) (n int32) {
	for i := range j.Attempts {
		if a := &j.Attempts[i]; a.Outcome == Preempted && a.Ended.Add(preemptionWindow) > at {
			n++
		}
	}
	return n
}

// ExemptUntil returns until when a running job is exempt from preemption since it started only recently. O(QOS).
func (p *Policy) ExemptUntil(j *Job) Instant {
	exempt := p.PreemptExempt
	if q, _ := p.QOSNamed(j.Spec.QOS); q.PreemptExempt > 0 {
		exempt = q.PreemptExempt
	}
	return j.Started.Add(exempt)
}

// GraceOf returns how long a job that is preempted runs on after its signal: not at all without one, and
// no longer than it requested to have before its time limit. O(QOS).
func (p *Policy) GraceOf(j *Job) time.Duration {
	signal := j.Spec.PreemptSignal()
	if signal.Number == 0 {
		return 0
	}
	grace := p.PreemptGrace
	if q, _ := p.QOSNamed(j.Spec.QOS); q.PreemptGrace > 0 {
		grace = q.PreemptGrace
	}
	return min(grace, signal.Before)
}

// PreemptSignal returns the signal that asks a job to save its work before it is preempted: its checkpoint signal, else
// that before its time limit.
func (s *JobSpec) PreemptSignal() WarnSignal {
	if s.CheckpointSignal.Number != 0 {
		return s.CheckpointSignal
	}
	return s.Signal
}

// Unsaved returns how much work of a running job a preemption at an instant destroys. A job that gets its checkpoint
// signal and is known to write a checkpoint within the grace time loses only the time of the writing. O(QOS +
// checkpoints).
func (p *Policy) Unsaved(j *Job, at Instant) time.Duration {
	unsaved := max(0, at.Sub(j.Saved()))
	if j.Spec.CheckpointSignal.Number != 0 && j.WriteTime > 0 && j.WriteTime <= p.GraceOf(j) {
		unsaved = min(unsaved, j.WriteTime)
	}
	return unsaved
}

// Spared reports whether a job was preempted as often as it may be in 24 hours.
func (p *Policy) Spared(j *Job, now Instant) bool {
	return p.MaxPreemptions > 0 && j.Preemptions(now) >= p.MaxPreemptions
}

// checkPreempt requires that QOS preempt only lower tiers, so that a preempted job is never ordered
// ahead of the job that preempted it.
func (p *Policy) checkPreempt(fault faultReporter) {
	for n, q := range p.QOS {
		at := element("qos", n)
		if int(q.PreemptMode) >= len(preemptModeNames) {
			fault(at+".preempt_mode", "qos %q: unknown preempt mode %d", q.Name, q.PreemptMode)
		}
		if q.PreemptExempt < 0 || q.PreemptExempt > maxLimit {
			fault(at+".preempt_exempt", "qos %q: preempt exempt time %s is out of range", q.Name, q.PreemptExempt)
		}
		if q.PreemptGrace < 0 || q.PreemptGrace > maxPreemptGrace {
			fault(at+".preempt_grace", "qos %q: preempt grace time %s, want 0s to %s", q.Name, q.PreemptGrace, maxPreemptGrace)
		}
		if len(q.Preempts) > maxPartitions {
			fault(at+".preempts", "qos %q preempts %d qos, at most %d", q.Name, len(q.Preempts), maxPartitions)
			continue
		}
		for k, name := range q.Preempts {
			key := element(at+".preempts", k)
			i := slices.IndexFunc(p.QOS, func(o QOS) bool { return o.Name == name })
			switch {
			case i < 0:
				fault(key, "qos %q preempts %q, which does not exist", q.Name, name)
			case p.QOS[i].Tier >= q.Tier:
				fault(key, "qos %q (tier %d) cannot preempt %q (tier %d): only a lower tier can be preempted", q.Name, q.Tier, name, p.QOS[i].Tier)
			case p.QOS[i].PreemptMode == PreemptOff:
				fault(key, "qos %q preempts %q, whose preempt mode is off", q.Name, name)
			}
		}
	}
}
