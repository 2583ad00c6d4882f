package state

import (
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// update changes, holds, releases or requeues jobs.
func (s *State) update(c *command.UpdateJobs) command.Result {
	if again := s.repeated(c.Request); again != nil {
		return again
	}
	var do func(*cluster.Job) *command.Refusal
	switch c.Action {
	case command.SetFields:
		s.sortRooms()
		made := map[*cluster.JobSpec]*cluster.JobSpec{}
		do = func(j *cluster.Job) *command.Refusal { return s.setFields(j, c, made) }
	case command.HoldJobs:
		do = func(j *cluster.Job) *command.Refusal { return s.hold(j, c.Actor) }
	case command.ReleaseJobs:
		do = func(j *cluster.Job) *command.Refusal { return s.release(j, c.Actor) }
	case command.RequeueJobs:
		do = func(j *cluster.Job) *command.Refusal { return s.requeueJob(j, c.Actor) }
	default:
		return refusef(command.InvalidArgument, "unknown action %d on jobs", c.Action)
	}
	return s.eachJob(c.Request, c.Actor, c.Jobs, do)
}

// hold keeps a job back. A user's own hold they may release themselves; one that an
// operator puts on another's job is an administrator's.
func (s *State) hold(old *cluster.Job, a command.Actor) *command.Refusal {
	if old.State != cluster.Pending {
		return refusef(command.Conflict, "job %s is %s: only a pending job can be held", old.Ref(), old.State)
	}
	j := *old
	switch {
	case old.Hold == cluster.HeldByAdmin:
		return nil
	case !owns(a, old.Spec.Owner):
		j.Hold, j.Reason = cluster.HeldByAdmin, cluster.ReasonHeldAdmin
	case old.Hold == cluster.HeldByUser:
		return nil
	default:
		j.Hold, j.Reason = cluster.HeldByUser, cluster.ReasonHeldUser
	}
	j.Detail, j.Planned = "held by "+a.Identity.User, 0
	s.put(old, &j)
	return nil
}

// release ends a hold.
func (s *State) release(old *cluster.Job, a command.Actor) *command.Refusal {
	switch {
	case old.State != cluster.Pending:
		return refusef(command.Conflict, "job %s is %s: only a pending job can be released", old.Ref(), old.State)
	case old.Hold == cluster.NotHeld:
		return nil
	case old.Hold == cluster.HeldByAdmin && !allowed(a, command.RoleOperator):
		return refusef(command.Denied, "job %s is held by an administrator", old.Ref())
	}
	j := *old
	j.Hold, j.Reason, j.Detail = cluster.NotHeld, cluster.ReasonNone, ""
	if j.Eligible > s.now {
		j.Reason = cluster.ReasonBeginTime
	}
	if refusal := s.fund(&j); refusal != nil && old.Hold == cluster.HeldForCredits {
		return refusal
	}
	s.put(old, &j)
	return nil
}

// requeueJob ends the present attempt of a job and makes it wait for another.
func (s *State) requeueJob(old *cluster.Job, a command.Actor) *command.Refusal {
	j := *old
	switch j.State {
	case cluster.Pending:
		return refusef(command.Conflict, "job %s is pending already", old.Ref())
	case cluster.Completing:
		return refusef(command.Conflict, "job %s is ending already", old.Ref())
	}
	s.end(&j, ending{
		outcome: cluster.Cancelled, reason: cluster.ReasonCancelled,
		detail: "requeued by " + a.Identity.User, returns: true,
	})
	j.Requester = a.Identity.User
	s.settle(&j)
	s.put(old, &j)
	return nil
}

// setFields changes what was submitted. Specifications that were shared stay so:
// made holds the new one of each that this command has changed.
func (s *State) setFields(old *cluster.Job, c *command.UpdateJobs, made map[*cluster.JobSpec]*cluster.JobSpec) *command.Refusal {
	if refusal := maySet(old, c); refusal != nil {
		return refusal
	}
	spec, known := made[old.Spec]
	if !known {
		changed := *old.Spec
		assign(&changed.TimeLimit, c.TimeLimit)
		if c.Partition != nil { // one, or several joined by commas
			list := strings.Split(*c.Partition, ",")
			changed.Partition, changed.Others = list[0], nil
			if len(list) > 1 {
				changed.Others = list[1:]
			}
		}
		assign(&changed.QOS, c.QOS)
		assign(&changed.Account, c.Account)
		assign(&changed.Name, c.Name)
		assign(&changed.Nice, c.Nice)
		assign(&changed.Comment, c.Comment)
		assign(&changed.ArrayLimit, c.ArrayLimit)
		if refusal := s.recheck(&changed, old.Spec, c); refusal != nil {
			return refusal
		}
		spec = &changed
		s.words.shareWords(spec)
		made[old.Spec] = spec
	}
	if c.TimeLimit != nil && old.State == cluster.Pending {
		if refusal := s.withinReservation(spec); refusal != nil {
			return refusal
		}
	}
	if refusal := s.mayJoin(spec, old.Spec); refusal != nil {
		return refusal
	}
	if refusal := s.reprice(old, spec); refusal != nil {
		return refusal
	}
	j := *old
	j.Spec = spec
	if old.Hold == cluster.HeldForCredits {
		s.fund(&j) // it may be paid for now, or waits for other credits
	}
	s.put(old, &j)
	return nil
}

func assign[T any](field *T, value *T) {
	if value != nil {
		*field = *value
	}
}

// maySet refuses what the job's state or the actor's role does not allow.
func maySet(old *cluster.Job, c *command.UpdateJobs) *command.Refusal {
	waits := old.State == cluster.Pending
	operator := allowed(c.Actor, command.RoleOperator)
	switch {
	case old.State == cluster.Completing:
		return refusef(command.Conflict, "job %s is ending", old.Ref())
	case !waits && (c.Partition != nil || c.QOS != nil || c.Account != nil):
		return refusef(command.Conflict, "job %s is %s: partition, qos and account can be changed only while it is pending", old.Ref(), old.State)
	case c.ArrayLimit != nil && old.Array == 0:
		return refusef(command.InvalidArgument, "job %s is no array", old.Ref())
	case c.Nice != nil && *c.Nice < 0 && !operator:
		return refuse(command.Denied, "a negative nice value needs the role operator", "use a value of 0 or more")
	case c.TimeLimit != nil && !waits && !operator && longer(*c.TimeLimit, old.Spec.TimeLimit):
		return refuse(command.Denied, "a longer time limit for a running job needs the role operator", "ask an operator")
	}
	return nil
}

// longer compares time limits; 0 is none.
func longer(a, b time.Duration) bool { return b != 0 && (a == 0 || a > b) }

// recheck applies to a changed specification the rules of submission, as far as the
// change touches them. An operator may exceed time limits.
func (s *State) recheck(spec, old *cluster.JobSpec, c *command.UpdateJobs) *command.Refusal {
	if err := spec.Validate(); err != nil {
		return invalid(err)
	}
	if c.TimeLimit == nil && c.Partition == nil && c.QOS == nil && c.Account == nil {
		return nil
	}
	limit := spec.TimeLimit
	if allowed(c.Actor, command.RoleOperator) {
		spec.TimeLimit = 1 // within every limit
	}
	refusal := s.fill(spec, false)
	spec.TimeLimit = limit
	if refusal != nil {
		return refusal
	}
	if slices.Equal(partitionsOf(spec), partitionsOf(old)) {
		return nil
	}
	return s.fits(spec)
}
