package state

import (
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// Bounds of one tick, so that no command takes long; the next tick does the rest.
const (
	tickJobs   = 10_000
	tickForget = 10_000
)

// tick runs all work that is due: limits, deadlines, signals before the end, begin times, retention, decayed
// usage. O((what is due) log n).
func (s *State) tick(c *command.Tick) command.Result {
	s.credits.Ledger().SetFormat(c.Form)
	s.forget(tickForget)
	s.hosts.DropTokens(s.now)
	s.blobs.DropUploads(s.now)
	s.accounts.Forget(s.now, tickForget)
	s.credits.Advance(s.now)
	var due []cluster.JobID
	for k := range s.due.All() {
		if k.at > s.now || len(due) == tickJobs {
			break
		}
		due = append(due, k.id)
	}
	for _, id := range due {
		if old, found := s.active(id); found {
			j := *old
			s.fallDue(&j)
			s.put(old, &j)
		}
	}
	s.tickLeases()
	return &command.Done{Version: s.index}
}

// fallDue applies the due change to a job, a value that is not shared yet. The instant is not due
// afterwards.
func (s *State) fallDue(j *cluster.Job) {
	if j.State == cluster.Pending {
		if j.Spec.Deadline > 0 && s.now > lastStart(j.Spec) {
			s.step(j, cluster.MissDeadline)
			j.Reason, j.Detail, j.Ended, j.Planned = cluster.ReasonDeadline, "it can no longer finish before its deadline", s.now, 0
			return
		}
		if j.Reason == cluster.ReasonBeginTime && j.Eligible <= s.now {
			j.Reason, j.Detail = cluster.ReasonNone, ""
		}
		return
	}
	limit := j.Limit()
	switch {
	case j.Spec.Deadline > 0 && j.Spec.Deadline <= s.now:
		s.end(j, ending{outcome: cluster.DeadlineMissed, reason: cluster.ReasonDeadline})
	case limit > 0 && limit <= s.now:
		s.end(j, ending{outcome: cluster.TimedOut, reason: cluster.ReasonTimeLimit, returns: j.Spec.RequeueAtLimit})
	case j.Preempting != nil && j.Preempting.At <= s.now:
		s.end(j, s.preempted(j, j.Preempting))
	case j.Members.Due() <= s.now:
		s.stopLeaving(j)
		return
	case askAt(j) <= s.now:
		s.askToSave(j)
		return
	default:
		j.Warned = true
		s.send(s.index, j.ID, j.Spec.Signal.Number, j.Spec.Signal.BatchOnly)
		return
	}
	s.settle(j)
}
