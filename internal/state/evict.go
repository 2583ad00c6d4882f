package state

import (
	"fmt"

	"github.com/greylag/greylag/pkg/cluster"
)

// evict ends a job so that another can start, if the policy still lets the one preempt
// the other. It says why not.
func (s *State) evict(e *cluster.Eviction) string {
	old, runs := s.holding.Get(e.Job)
	by, waits := s.pending.Get(e.For)
	switch {
	case !runs || old.State == cluster.Completing:
		return "the job does not run any more"
	case old.Attempt != e.Attempt:
		return fmt.Sprintf("attempt %d is not the one that runs", e.Attempt)
	case !waits:
		return fmt.Sprintf("job %s does not wait any more", e.For)
	case by.Hold != cluster.NotHeld || by.Eligible > s.now:
		return fmt.Sprintf("job %s may not start now", by.Ref())
	case !s.policy.MayPreempt(by.Spec.QOS, old.Spec.QOS):
		return fmt.Sprintf("qos %q does not preempt %q", by.Spec.QOS, old.Spec.QOS)
	}
	of, _ := s.policy.QOSNamed(old.Spec.QOS)
	j := *old
	s.end(&j, ending{
		outcome: cluster.Preempted, reason: cluster.ReasonPreempted,
		detail:  fmt.Sprintf("preempted by job %s of qos %s", by.Ref(), by.Spec.QOS),
		returns: of.PreemptMode == cluster.PreemptRequeue && old.Spec.Requeue,
	})
	j.Requester = by.Spec.Owner.User // who makes room for himself gets nothing back
	s.settle(&j)
	s.put(old, &j)
	return ""
}
