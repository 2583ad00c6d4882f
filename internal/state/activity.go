package state

import (
	"fmt"
	"time"

	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// checkActivity warns the user of a running job, a value that is not shared yet, that is inactive or does not use its
// GPUs, as its nodes have measured, and removes the warning when that is over. It ends a job that has been inactive for
// the limit of the policy or of its QOS. O(nodes).
func (s *State) checkActivity(j *cluster.Job) {
	inactive, idle, gpus := activityOf(j)
	warn, limit := s.policy.InactiveTimes(j.Spec.QOS)
	if inactive == cluster.InactiveForLimit && limit > 0 {
		s.end(j, ending{
			outcome: cluster.TimedOut, reason: cluster.ReasonInactiveLimit,
			detail: fmt.Sprintf("inactive for %s (inactive_limit of %s): %s", cluster.FormatElapsed(limit), s.policy.InactiveLimitOwner(j.Spec.QOS), cluster.InactiveText(int(idle), gpus)),
		})
		return
	}
	a := j.Activity.Value()
	if idle != a.Idle.GPUs {
		a.Idle.Change(idle, warn, s.now)
		a.Idle.Ms = min(a.Idle.Ms, int64(gpus)*s.now.Sub(j.Started).Milliseconds())
		a.Idle.Price = s.priceOf(j)
	}
	kinds := cluster.Warnings(0)
	switch {
	case inactive > 0:
		kinds = cluster.WarnedInactive
	case idle > 0:
		kinds = cluster.WarnedIdle
	}
	since := s.now.Add(-warn)
	if level := outputLevel(j); level == 0 {
		a.Output = 0
	} else if size, _ := s.policy.OutputSizes(j.Spec.QOS); size > 0 {
		if a.Output = min(size, maxNodeMemory>>(level-1)) << (level - 1); kinds == 0 {
			since = s.now
		}
		kinds |= cluster.WarnedOutput
	}
	a.Warn(kinds, max(j.Started, since), s.now)
	j.SetActivity(a)
}

// activityOf returns for how long all tasks of a job have been inactive, as in Task.Inactive, and the numbers of its idle
// GPUs and of all its GPUs. Tasks that have ended do not count. O(nodes).
func activityOf(j *cluster.Job) (inactive uint8, idle int32, gpus int) {
	running := 0
	inactive = cluster.InactiveForLimit
	for rank, t := range j.Tasks.All() {
		gpus += len(j.Alloc.Nodes[rank].GPUs)
		if t.Phase == cluster.TaskStarted {
			running, inactive, idle = running+1, min(inactive, t.Inactive), idle+t.IdleGPUs
		}
	}
	if running == 0 {
		inactive = 0
	}
	return inactive, idle, gpus
}

// outputLevel returns the highest Task.Output of the running tasks of a job. O(nodes).
func outputLevel(j *cluster.Job) (level uint8) {
	for _, t := range j.Tasks.All() {
		if t.Phase == cluster.TaskStarted {
			level = max(level, t.Output)
		}
	}
	return level
}

// priceOf returns the micro-credits that a GPU of a running job costs per hour, on average; 0 if it is not charged.
func (s *State) priceOf(j *cluster.Job) int64 {
	n, held := s.credits.OpenLien(j.ID, j.Attempt)
	if !held || len(n.Segments) == 0 {
		return 0
	}
	g := &n.Segments[len(n.Segments)-1]
	return int64(g.Cost(accounting.Millis(g.GPUs, time.Hour))) / max(1, g.GPUs)
}
