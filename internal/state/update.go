package state

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state/admission"
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
		made := &remaking{check: s.admission(), specs: map[*cluster.JobSpec]*remade{}}
		do = func(j *cluster.Job) *command.Refusal { return s.setFields(j, c, made) }
	case command.HoldJobs:
		do = func(j *cluster.Job) *command.Refusal { return s.hold(j, c.Actor) }
	case command.ReleaseJobs:
		do = func(j *cluster.Job) *command.Refusal { return s.release(j, c.Actor) }
	case command.RequeueJobs:
		do = func(j *cluster.Job) *command.Refusal { return s.requeueJob(j, c.Actor, cluster.NotHeld) }
	case command.RequeueHeldJobs:
		do = func(j *cluster.Job) *command.Refusal { return s.requeueHeld(j, c.Actor) }
	case command.SetAdminComment:
		return s.setAdminComments(c)
	default:
		return command.Refusef(command.InvalidArgument, "unknown action %d on jobs", c.Action)
	}
	return s.eachJob(c.Request, c.Actor, c.Jobs, do)
}

// hold holds a job. Users may release their own hold; an operator's hold on another user's job is
// an administrator's.
func (s *State) hold(old *cluster.Job, a command.Actor) *command.Refusal {
	if old.State != cluster.Pending {
		return command.Refusef(command.Conflict, "job %s is %s: only a pending job can be held", old.Ref(), old.State)
	}
	by := holdBy(old, a)
	if old.Hold == cluster.HeldByAdmin || old.Hold == by {
		return nil
	}
	j := *old
	j.Hold, j.Reason = by, holdReason(by)
	j.Detail, j.Planned = "held by "+a.Identity.User, 0
	s.recordHold(&j)
	s.put(old, &j)
	return nil
}

// holdBy returns the hold of a job by an actor: an operator's hold on another user's job is an administrator's.
func holdBy(j *cluster.Job, a command.Actor) cluster.Hold {
	if a.Owns(j.Spec.Owner) {
		return cluster.HeldByUser
	}
	return cluster.HeldByAdmin
}

// holdReason returns the reason of a job with a hold of a user or an administrator.
func holdReason(h cluster.Hold) cluster.Reason {
	if h == cluster.HeldByAdmin {
		return cluster.ReasonHeldAdmin
	}
	return cluster.ReasonHeldUser
}

// requeueHeld requeues a job, and holds it from then on. A pending job is only held.
func (s *State) requeueHeld(old *cluster.Job, a command.Actor) *command.Refusal {
	switch {
	case old.State == cluster.Pending:
		return s.hold(old, a)
	case old.State != cluster.Completing || !old.Returns || old.Canceller != "":
		return s.requeueJob(old, a, holdBy(old, a))
	case old.Hold == cluster.HeldByAdmin:
		return nil
	}
	j := *old
	j.Hold = holdBy(old, a)
	s.put(old, &j)
	return nil
}

// release ends a hold.
func (s *State) release(old *cluster.Job, a command.Actor) *command.Refusal {
	switch {
	case old.State != cluster.Pending:
		return command.Refusef(command.Conflict, "job %s is %s: only a pending job can be released", old.Ref(), old.State)
	case old.Hold == cluster.NotHeld:
		return nil
	case old.Hold == cluster.HeldByAdmin && !a.Has(command.RoleOperator):
		return command.Refusef(command.Denied, "job %s is held by an administrator", old.Ref())
	}
	j := *old
	if old.Reason == cluster.ReasonRequeueLimit { // the operator has dealt with the cause
		j.Failures = 0
	}
	if old.ResumePoint() == nil { // all are damaged: the user lets it start from the beginning
		j.Checkpoints = nil
	}
	j.Hold, j.Reason, j.Detail = cluster.NotHeld, cluster.ReasonNone, ""
	if j.Eligible > s.now {
		j.Reason = cluster.ReasonBeginTime
	}
	if refusal, _ := s.fund(&j); refusal != nil && old.Hold == cluster.HeldForCredits {
		return refusal
	}
	s.put(old, &j)
	return nil
}

// requeueJob ends the present attempt of a job and makes the job pending again, with this hold.
func (s *State) requeueJob(old *cluster.Job, a command.Actor, hold cluster.Hold) *command.Refusal {
	j := *old
	switch j.State {
	case cluster.Pending:
		return command.Refusef(command.Conflict, "job %s is pending already", old.Ref())
	case cluster.Completing:
		return command.Refusef(command.Conflict, "job %s is ending already", old.Ref())
	}
	s.end(&j, ending{
		outcome: cluster.Cancelled, reason: cluster.ReasonCancelled,
		detail: "requeued by " + a.Identity.User, returns: true,
	})
	j.Requester, j.Hold = a.Identity.User, hold
	s.settle(&j)
	s.put(old, &j)
	return nil
}

// remaking holds the specifications that one command has changed, so that it changes and checks
// each once and not for each of a hundred thousand elements of an array.
type remaking struct {
	check *admission.Checker
	specs map[*cluster.JobSpec]*remade // by the specification that it changes
	// awaits is the jobs that the changed jobs will depend on, where that is new. It is the same
	// for all: a job among them is not changed, since it would depend on itself.
	awaits  map[cluster.JobID]none
	refusal *command.Refusal // of awaits, for all as well
}

// remade is a changed specification, or why it may not change.
type remade struct {
	spec    *cluster.JobSpec
	refusal *command.Refusal
	depends bool // its dependencies were checked
}

// setFields changes what was submitted. Specifications that were shared remain shared: made holds
// the new one of each that this command has changed.
func (s *State) setFields(old *cluster.Job, c *command.UpdateJobs, made *remaking) *command.Refusal {
	c, refusal := withLimit(old, c)
	if refusal != nil {
		return refusal
	}
	if refusal := maySet(old, c); refusal != nil {
		return refusal
	}
	if refusal := s.withinLeases(old, c); refusal != nil {
		return refusal
	}
	again, known := made.specs[old.Spec]
	if !known {
		changed := changedSpec(old.Spec, c)
		again = &remade{spec: &changed, refusal: s.recheck(&changed, old.Spec, c, made.check)}
		if again.refusal == nil {
			s.words.shareWords(&changed)
		}
		made.specs[old.Spec] = again
	}
	if again.refusal != nil {
		return again.refusal
	}
	spec := again.spec
	if refusal := s.canBegin(old, again, c, made); refusal != nil {
		return refusal
	}
	if refusal := made.check.CheckJoin(spec, old.Spec); refusal != nil {
		return refusal
	}
	if refusal := s.credits.Reprice(s.env(), old, spec); refusal != nil {
		return refusal
	}
	j := *old
	j.Spec = spec
	if c.Begin != nil {
		s.postpone(&j, old)
	}
	if c.Depends != nil {
		s.depend(&j) // first, so that what both name is not dropped
		s.removeDependents(old, s.limits.tail)
	}
	if old.Hold == cluster.HeldForCredits {
		s.fund(&j) // it may be paid for now, or waits for other credits
	}
	s.put(old, &j)
	return nil
}

// withLimit returns the change with TimeLimitBy replaced by the resulting time limit. A job without
// a limit keeps none.
func withLimit(old *cluster.Job, c *command.UpdateJobs) (*command.UpdateJobs, *command.Refusal) {
	was := old.Spec.TimeLimit
	if c.TimeLimitBy == 0 || was == 0 {
		return c, nil
	}
	limit := was + c.TimeLimitBy
	if limit <= 0 || limit < was == (c.TimeLimitBy > 0) { // the sum may overflow
		return nil, command.Refusef(command.InvalidArgument, "job %s: a time limit of %s cannot be changed by %s", old.Ref(), cluster.FormatLimit(was), c.TimeLimitBy)
	}
	changed := *c
	changed.TimeLimit = &limit
	return &changed, nil
}

// changedSpec returns a specification with the fields that a command sets.
func changedSpec(spec *cluster.JobSpec, c *command.UpdateJobs) cluster.JobSpec {
	changed := *spec
	assign(&changed.TimeLimit, c.TimeLimit)
	if c.Partition != nil { // one, or several joined by commas
		list := strings.Split(*c.Partition, ",")
		changed.Partition, changed.OtherPartitions = list[0], nil
		if len(list) > 1 {
			changed.OtherPartitions = list[1:]
		}
	}
	assign(&changed.QOS, c.QOS)
	assign(&changed.Account, c.Account)
	if changed.QOS != spec.QOS || changed.Account != spec.Account {
		changed.QOSByOperator = c.Actor.Has(command.RoleOperator)
	}
	assign(&changed.Name, c.Name)
	assign(&changed.Nice, c.Nice)
	assign(&changed.Comment, c.Comment)
	assign(&changed.ArrayLimit, c.ArrayLimit)
	assign(&changed.Begin, c.Begin)
	assign(&changed.Deadline, c.Deadline)
	assign(&changed.Depends, c.Depends)
	assign(&changed.Reservation, c.Reservation)
	assign(&changed.Request.Nodes, c.Nodes)
	if c.Nodes != nil {
		changed.Request.MaxNodes, changed.Elastic = 0, cluster.Elastic{}
	}
	assign(&changed.Request.GPUsPerNode, c.GPUsPerNode)
	assign(&changed.Request.GPUs, c.GPUs)
	assign(&changed.Request.NodeList, c.NodeList)
	assign(&changed.Request.Features, c.Features)
	if c.MemPerNode != nil || c.MemPerCPU != nil || c.MemPerGPU != nil {
		changed.Request.MemPerNode, changed.Request.MemPerCPU, changed.Request.MemPerGPU = 0, 0, 0
		assign(&changed.Request.MemPerNode, c.MemPerNode)
		assign(&changed.Request.MemPerCPU, c.MemPerCPU)
		assign(&changed.Request.MemPerGPU, c.MemPerGPU)
	}
	return changed
}

func assign[T any](field *T, value *T) {
	if value != nil {
		*field = *value
	}
}

// maySet refuses a change that the job's state or the actor's role does not allow.
func maySet(old *cluster.Job, c *command.UpdateJobs) *command.Refusal {
	waits := old.State == cluster.Pending
	begins := c.Begin != nil || c.Deadline != nil || c.Depends != nil || c.Reservation != nil
	operator := c.Actor.Has(command.RoleOperator)
	switch {
	case old.State == cluster.Completing:
		return command.Refusef(command.Conflict, "job %s is ending", old.Ref())
	case !waits && (c.Partition != nil || c.QOS != nil || c.Account != nil):
		return command.Refusef(command.Conflict, "job %s is %s: partition, qos and account can be changed only while it is pending", old.Ref(), old.State)
	case !waits && begins:
		return command.Refusef(command.Conflict, "job %s is %s: begin, deadline, dependency and reservation can be changed only while it is pending", old.Ref(), old.State)
	case !waits && resizes(c):
		return command.Refusef(command.Conflict, "job %s is %s: nodes, GPUs, memory and features can be changed only while it is pending", old.Ref(), old.State)
	case c.ArrayLimit != nil && old.Array == 0:
		return command.Refusef(command.InvalidArgument, "job %s is not an array", old.Ref())
	case c.Nice != nil && *c.Nice < 0 && !operator:
		return command.Refuse(command.Denied, "a negative nice value requires role operator", "use a value of 0 or more")
	case c.TimeLimit != nil && !waits && !operator && longer(*c.TimeLimit, old.Spec.TimeLimit):
		return command.Refuse(command.Denied, "a longer time limit for a running job requires role operator", "ask an operator")
	}
	return nil
}

// withinLeases refuses a time limit by which a running job could run longer than the lease of one of its nodes.
func (s *State) withinLeases(old *cluster.Job, c *command.UpdateJobs) *command.Refusal {
	if c.TimeLimit == nil || !old.State.HasAllocation() || old.Alloc == nil || !longer(*c.TimeLimit, old.Spec.TimeLimit) {
		return nil
	}
	end := cmp.Or(old.Started, s.now).Add(*c.TimeLimit)
	for i := range old.Alloc.Nodes {
		n, _ := s.nodes.Get(old.Alloc.Nodes[i].Node)
		if n != nil && n.Rental.Until > 0 && (*c.TimeLimit == 0 || end > n.Rental.Until) {
			until := n.Rental.Until.Time().UTC().Format("2006-01-02 15:04:05")
			return command.WithHint(command.Refusef(command.Conflict, "job %s runs on %s, whose lease ends at %s UTC", old.Ref(), n.Name, until), "choose a time limit that ends before that")
		}
	}
	return nil
}

// resizes reports whether a command changes the nodes, GPUs, memory or features that a job
// requests.
func resizes(c *command.UpdateJobs) bool {
	return c.Nodes != nil || c.GPUsPerNode != nil || c.GPUs != nil || c.MemPerNode != nil || c.MemPerCPU != nil || c.MemPerGPU != nil ||
		c.NodeList != nil || c.Features != nil
}

// longer compares time limits; 0 means none.
func longer(a, b time.Duration) bool { return b != 0 && (a == 0 || a > b) }

// recheck applies to a changed specification the rules of submission, as far as the
// change touches them. An operator may exceed time limits.
func (s *State) recheck(spec, old *cluster.JobSpec, c *command.UpdateJobs, check *admission.Checker) *command.Refusal {
	if err := spec.Validate(); err != nil {
		return invalid(err)
	}
	if refusal := checkTexts(spec, old); refusal != nil {
		return refusal
	}
	moves := c.Partition != nil || c.Reservation != nil || resizes(c)
	if c.TimeLimit == nil && c.QOS == nil && c.Account == nil && !moves {
		return nil
	}
	if limit := spec.TimeLimit; c.Actor.Has(command.RoleOperator) {
		spec.TimeLimit = 1 // within every limit
		defer func() { spec.TimeLimit = limit }()
	}
	if refusal := check.ApplyDefaults(spec, old, false); refusal != nil {
		return refusal
	}
	if !moves || c.Reservation == nil && !resizes(c) && slices.Equal(spec.AllPartitions(), old.AllPartitions()) {
		return nil
	}
	return check.CheckFeasible(spec)
}

// canBegin refuses changes after which a pending job could never start: it would not fit its
// reservation or end before its deadline, or would depend on a job that depends on it.
func (s *State) canBegin(old *cluster.Job, now *remade, c *command.UpdateJobs, made *remaking) *command.Refusal {
	spec := now.spec
	if old.State != cluster.Pending {
		return nil
	}
	if c.TimeLimit != nil || c.Reservation != nil || c.Begin != nil {
		if refusal := made.check.CheckReservation(spec); refusal != nil {
			return refusal
		}
	}
	if c.TimeLimit != nil || c.Deadline != nil || c.Begin != nil {
		if refusal := s.checkDeadline(spec); refusal != nil {
			return refusal
		}
	}
	if c.Depends == nil {
		return nil
	}
	if !now.depends {
		if now.refusal = s.checkDependencies(spec); now.refusal != nil {
			return now.refusal
		}
		now.depends = true
	}
	if made.awaits == nil && made.refusal == nil {
		made.awaits, made.refusal = s.awaits(spec)
	}
	if made.refusal != nil {
		return made.refusal
	}
	if _, cycle := made.awaits[old.ID]; cycle {
		return command.Refusef(command.Conflict, "job %s would depend on itself through its dependencies", old.Ref())
	}
	return nil
}

// Bounds of the search for a cycle of dependencies: the jobs in it, and all.
const (
	maxChain  = 10_000
	maxAwaits = 500_000
)

// awaits returns the jobs that a job depends on, and their dependencies. At submission there can be
// no cycle: a job names only older ones. O(those jobs).
func (x *jobTables) awaits(spec *cluster.JobSpec) (map[cluster.JobID]none, *command.Refusal) {
	all := map[cluster.JobID]none{}
	chain, looked := 0, 0
	next := []*cluster.JobSpec{spec}
	for len(next) > 0 {
		deps := next[0].Depends
		next = next[1:]
		for _, d := range deps {
			if d.Kind == cluster.Singleton {
				continue
			}
			ids := x.resolve(d.Job)
			if looked += len(ids); looked > maxAwaits {
				return nil, command.Refusef(command.Exhausted, "it would depend on more than %d jobs, counting their dependencies", maxAwaits)
			}
			for _, id := range ids {
				_, known := all[id]
				all[id] = none{}
				o, waits := x.pending.Get(id)
				if known || !waits || len(o.Spec.Depends) == 0 {
					continue
				}
				if chain++; chain > maxChain {
					return nil, command.Refusef(command.Exhausted, "it would depend on more than %d jobs that have dependencies", maxChain)
				}
				next = append(next, o.Spec)
			}
		}
	}
	return all, nil
}

// postpone sets the earliest start of a job whose begin time changed. The backoff after a failed
// attempt is kept, unless the begin time was later than that.
func (s *State) postpone(j, old *cluster.Job) {
	begin := max(s.now, j.Spec.Begin)
	if old.Eligible > max(s.now, old.Spec.Begin) {
		begin = max(begin, old.Eligible)
	}
	if begin > s.now || old.Eligible > s.now {
		j.Eligible = begin
	}
	switch {
	case j.Hold != cluster.NotHeld:
	case j.Eligible > s.now:
		j.Reason, j.Planned = cluster.ReasonBeginTime, 0
	case j.Reason == cluster.ReasonBeginTime:
		j.Reason, j.Detail = cluster.ReasonNone, ""
	}
}
