package state

import (
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// maxRefs bounds the jobs that one command may name.
const maxRefs = 100_000

// cancel ends jobs, or sends them a signal.
func (s *State) cancel(c *command.CancelJobs) command.Result {
	if again := s.repeated(c.Request); again != nil {
		return again
	}
	if c.Signal < 0 || c.Signal > cluster.MaxSignal {
		return command.Refusef(command.InvalidArgument, "there is no signal %d", c.Signal)
	}
	return s.eachJob(c.Request, c.Actor, c.Jobs, func(old *cluster.Job) *command.Refusal {
		if c.Signal != 0 {
			return s.signalJob(old, c)
		}
		return s.cancelJob(old, c.Actor)
	})
}

// eachJob applies do to each active job that refs name, and returns the result for each. Empty refs
// stand for a filter without a match, and are stored as such.
func (s *State) eachJob(id command.RequestID, a command.Actor, refs []cluster.JobRef, do func(*cluster.Job) *command.Refusal) command.Result {
	if len(refs) > maxRefs {
		return command.Refusef(command.InvalidArgument, "%d jobs are named, at most %d", len(refs), maxRefs)
	}
	answer := &command.Outcomes{Index: s.index}
	done := make(map[cluster.JobID]none, len(refs))
	for _, ref := range refs {
		ids := s.resolve(ref)
		if len(ids) == 0 {
			answer.Jobs = append(answer.Jobs, command.Outcome{Job: ref.ID, Ref: ref, Refused: unknownJob(ref)})
		}
		for _, id := range s.activeOf(ids) {
			if _, duplicate := done[id]; !duplicate {
				done[id] = none{}
				answer.Jobs = append(answer.Jobs, s.oneJob(id, a, do))
			}
		}
	}
	return s.remember(id, answer)
}

// activeOf returns the elements of an array that are still active, or its last element if none is,
// so that there is an answer.
func (x *jobTables) activeOf(ids []cluster.JobID) []cluster.JobID {
	active := make([]cluster.JobID, 0, len(ids))
	for _, id := range ids {
		if !x.ended.Has(id) {
			active = append(active, id)
		}
	}
	if len(active) == 0 && len(ids) > 0 {
		return ids[len(ids)-1:]
	}
	return active
}

// oneJob applies do to a job if the actor may change it.
func (s *State) oneJob(id cluster.JobID, a command.Actor, do func(*cluster.Job) *command.Refusal) command.Outcome {
	j, _ := s.job(id)
	o := command.Outcome{Job: id, Ref: j.Ref(), State: j.State}
	mine := a.Owns(j.Spec.Owner) || a.Has(command.RoleOperator)
	switch {
	case !mine && s.policy.Private:
		o.State, o.Refused = 0, unknownJob(o.Ref)
	case !mine:
		o.Refused = command.Refusef(command.Denied, "job %s belongs to %s", o.Ref, j.Spec.Owner.User)
	case j.State.Final():
		o.Refused = command.Refusef(command.Conflict, "job %s has ended (%s)", o.Ref, j.State)
	default:
		if o.Refused = do(j); o.Refused == nil {
			j, _ = s.job(id)
			o.State = j.State
		}
	}
	return o
}

func unknownJob(ref cluster.JobRef) *command.Refusal {
	return command.WithHint(command.Refusef(command.NotFound, "there is no active job %s", ref), "gqueue lists the active jobs")
}

// cancelJob ends a job: at once if it is pending, else when its nodes are clean. A job that is
// already ending is not requeued: its lost attempt keeps its outcome and is billed by it.
func (s *State) cancelJob(old *cluster.Job, a command.Actor) *command.Refusal {
	j := *old
	switch by := a.Identity.User; {
	case j.State == cluster.Pending:
		s.cancelPending(&j, by)
	case j.CopiesOut():
		j.Outcome, j.Reason, j.Requester = cluster.Cancelled, cluster.ReasonCancelled, by
		j.Detail = cancelledBy(by) + " while its files were copied"
	case j.State == cluster.Completing && (!j.Returns || j.Canceller != ""):
		return nil
	case j.State == cluster.Completing:
		j.Canceller = by
	default:
		s.end(&j, ending{outcome: cluster.Cancelled, reason: cluster.ReasonCancelled, detail: cancelledBy(by)})
		j.Requester = by
	}
	s.settle(&j)
	s.put(old, &j)
	return nil
}

// cancelPending ends a pending job, a value that is not shared yet.
func (s *State) cancelPending(j *cluster.Job, by string) {
	s.step(j, cluster.Cancel)
	j.Ended, j.Reason, j.Detail, j.Planned, j.Requester = s.now, cluster.ReasonCancelled, cancelledBy(by), 0, by
}

func cancelledBy(user string) string { return "cancelled by " + user }

// signalJob sends a signal to a running job.
func (s *State) signalJob(old *cluster.Job, c *command.CancelJobs) *command.Refusal {
	if old.State != cluster.Configuring && old.State != cluster.Running {
		return command.Refusef(command.Conflict, "job %s is %s: only a running job can get a signal", old.Ref(), old.State)
	}
	s.send(s.index, old.ID, c.Signal, c.BatchOnly)
	j := *old
	s.put(old, &j) // so that its nodes deliver it
	return nil
}
