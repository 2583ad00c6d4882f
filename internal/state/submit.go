package state

import (
	"cmp"
	"slices"
	"strings"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state/admission"
	"github.com/greylag/greylag/internal/state/blobs"
	"github.com/greylag/greylag/pkg/cluster"
)

// maxCommandJobs bounds the jobs that one command may make, including array elements, and thus the
// time that a replica needs for it: about a second.
const maxCommandJobs = 1 << 20

// accepted is one submission that will be stored.
type accepted struct {
	spec   *cluster.JobSpec
	ranges []command.IndexRange // canonical; nil when it is no array
	all    []int32              // the indices
	held   bool
}

func (s *State) submit(c *command.SubmitJobs) command.Result {
	if again := s.repeated(c.Request); again != nil {
		return again
	}
	if len(c.Jobs) == 0 {
		return command.Refuse(command.InvalidArgument, "no job to submit", "")
	}
	check := s.admission()
	carried := blobs.ContentsOf(c.Blobs)
	jobs := make([]accepted, 0, len(c.Jobs))
	var total int64
	waiting := admission.Tally{}
	for i := range c.Jobs {
		a, refusal, kept := s.accept(c, &c.Jobs[i], carried, check)
		if refusal != nil {
			if len(c.Jobs) > 1 {
				refusal.Message = "job " + cluster.JobID(i+1).String() + " of the request: " + refusal.Message
			}
			if !kept && refusal.Code == command.Incomplete {
				return refusal // a repeated request, with what it needs
			}
			return s.remember(c.Request, refusal)
		}
		jobs = append(jobs, a)
		if refusal := waiting.Add(check, a.spec, int64(max(1, len(a.all)))); refusal != nil {
			return s.remember(c.Request, refusal)
		}
		if total += int64(max(1, len(a.all))); total > maxCommandJobs {
			return command.Refusef(command.InvalidArgument, "more than %d jobs in one request", maxCommandJobs)
		}
	}
	if most := s.policy.MaxJobs; int64(s.live())+total > most {
		return s.remember(c.Request, command.WithHint(command.Refusef(command.Exhausted, "the cluster has %d active jobs, the limit is %d (max_jobs)", s.live(), most), "resubmit when some have ended"))
	}
	answer := &command.Submitted{}
	if refusal := s.reserve(jobs, answer); refusal != nil {
		return s.remember(c.Request, refusal)
	}
	s.store(jobs, carried, answer)
	return s.remember(c.Request, answer)
}

// store assigns the job IDs and adds the jobs to the queue.
func (s *State) store(jobs []accepted, carried blobs.Contents, answer *command.Submitted) {
	answer.First, answer.Counts, answer.Index = make([]cluster.JobID, len(jobs)), make([]int32, len(jobs)), s.index
	if !s.unwatched {
		total := 0
		for _, a := range jobs {
			total += max(1, len(a.all))
		}
		s.effects.Changed = slices.Grow(s.effects.Changed, total)
	}
	for i, a := range jobs {
		first := s.jobTables.next
		answer.First[i], answer.Counts[i] = first, int32(len(a.all))
		s.blobs.Use(s.now, a.spec, int64(max(1, len(a.all))), carried)
		if a.ranges == nil {
			s.put(nil, s.fresh(a, 0, cluster.NoIndex))
			continue
		}
		kept := array{ranges: a.ranges, count: int32(len(a.all)), kept: int32(len(a.all))}
		s.arrays.Set(first, kept)
		for _, index := range a.all {
			s.put(nil, s.fresh(a, first, index))
		}
	}
}

// fresh returns a new job with the next ID.
func (s *State) fresh(a accepted, of cluster.JobID, index int32) *cluster.Job {
	j := &cluster.Job{
		ID: s.jobTables.next, Array: of, Index: index, Spec: a.spec, State: cluster.Pending,
		Submitted: s.now, Eligible: max(s.now, a.spec.Begin), Version: s.index,
	}
	s.jobTables.next++
	switch {
	case a.held:
		j.Hold, j.Reason = cluster.HeldByUser, cluster.ReasonHeldUser
	case j.Eligible > s.now:
		j.Reason = cluster.ReasonBeginTime
	case len(a.spec.Depends) > 0:
		j.Reason = cluster.ReasonDependency
	}
	return j
}

// accept checks one submission. kept reports whether a refusal must be stored because it follows
// from the state and might be different later.
func (s *State) accept(c *command.SubmitJobs, sub *command.Submission, carried blobs.Contents, check *admission.Checker) (a accepted, refusal *command.Refusal, kept bool) {
	spec := &s.scratch // not sub.Spec, which belongs to the caller
	*spec = sub.Spec
	if spec.Owner == (cluster.Identity{}) {
		spec.Owner = c.Actor.Identity
	}
	switch {
	case spec.Owner.User == "":
		return a, command.Refuse(command.InvalidArgument, "a job needs a user", ""), false
	case spec.Owner != c.Actor.Identity:
		return a, command.Refusef(command.Denied, "%s may not submit for %s", c.Actor.Identity.User, spec.Owner.User), false
	case spec.Nice < 0 && !c.Actor.Has(command.RoleOperator):
		return a, command.Refuse(command.Denied, "a negative nice value requires role operator", "use a value of 0 or more"), false
	}
	a.held, spec.QOSByOperator = sub.Held, c.Actor.Has(command.RoleOperator)
	spec.ArraySize = 0
	if len(sub.Array) > 0 {
		if a.all, refusal = s.arrayIndices(sub.Array); refusal != nil {
			return a, refusal, true
		}
		a.ranges = canonical(a.all)
		spec.ArraySize = int32(len(a.all))
	}
	if a.spec, refusal, kept = s.check(spec, sub.DefaultTime, check); refusal != nil {
		return a, refusal, kept
	}
	switch {
	case !s.blobs.Has(spec.Script, carried):
		return a, incomplete("script"), false
	case !s.blobs.Has(spec.Environment, carried):
		return a, incomplete("environment"), false
	}
	if refusal = cmp.Or(s.checkDeadline(a.spec), s.secrets.CheckJob(a.spec), checkArrayText(a.spec)); refusal != nil {
		return a, refusal, true
	}
	return a, s.checkDependencies(a.spec), true
}

// maxArrayText is the size of the specifications of all elements of an array together, in bytes: when they
// end, the archive has one for each.
const maxArrayText = 1 << 30

// checkArrayText refuses an array whose elements together have too large a specification.
func checkArrayText(spec *cluster.JobSpec) *command.Refusal {
	if spec.ArraySize == 0 {
		return nil
	}
	w := codec.Writer(nil)
	command.SpecFields(&w, spec)
	size := len(w.Written())
	if int64(size)*int64(spec.ArraySize) <= maxArrayText {
		return nil
	}
	return command.WithHint(command.Refusef(command.Exhausted, "the specification of an element has %d bytes: an array can have at most %d of them", size, maxArrayText/size),
		"shorten the arguments and mounts, or split the array")
}

// checkDeadline refuses a job that could not end before its deadline even if it started
// as soon as it may.
func (s *State) checkDeadline(spec *cluster.JobSpec) *command.Refusal {
	if spec.Deadline == 0 || max(s.now, spec.Begin) <= lastStart(spec) {
		return nil
	}
	return command.WithHint(command.Refusef(command.InvalidArgument, "a job of %s cannot end before its deadline", cluster.FormatLimit(spec.TimeLimit)),
		"request less with --time, or a later --deadline")
}

// arrayIndices expands ranges within the bounds of the policy.
func (s *State) arrayIndices(ranges []command.IndexRange) ([]int32, *command.Refusal) {
	var sum int64
	most := int64(min(s.policy.MaxArray, maxCommandJobs))
	for _, r := range ranges {
		n := elements(r)
		if n == 0 {
			return nil, command.WithHint(command.Refusef(command.InvalidArgument, "the array range %d-%d:%d has no element", r.First, r.Last, r.Step), "write it like 0-15 or 0-15:4")
		}
		if sum += n; sum > most {
			return nil, command.WithHint(command.Refusef(command.Exhausted, "the array has more than %d elements", most), "split it into smaller arrays")
		}
	}
	return indices(ranges), nil
}

// check validates a specification, applies the defaults of the policy, and makes sure that the
// cluster could run it. The result may be shared.
func (s *State) check(spec *cluster.JobSpec, defaultTime bool, by *admission.Checker) (checked *cluster.JobSpec, refusal *command.Refusal, kept bool) {
	if refusal := checkTexts(spec, &cluster.JobSpec{}); refusal != nil { // first: an earlier check may be older than the rule
		return nil, refusal, false
	}
	known, slot, print := s.specs.find(spec, defaultTime)
	if known != nil {
		return known, nil, false
	}
	raw := *spec
	if err := spec.Validate(); err != nil {
		return nil, invalid(err), false
	}
	if spec.Request.Tasks > 0 {
		refusal = divideTasks(spec, defaultTime, by)
	} else if refusal = by.ApplyDefaults(spec, nil, defaultTime); refusal == nil {
		refusal = checkPlacement(spec, by)
	}
	if refusal != nil {
		return nil, refusal, true
	}
	checked = new(cluster.JobSpec)
	*checked = *spec
	s.words.shareWords(checked)
	if spec.Reservation == "" && !spec.Burst.On() { // whether one is over depends on the time, and whether one can be served on offers
		*slot = cachedSpec{print: print, raw: raw, defaultTime: defaultTime, spec: checked}
	}
	return checked, nil, false
}

// checkPlacement checks that the cluster could run a specification with its defaults.
func checkPlacement(spec *cluster.JobSpec, by *admission.Checker) *command.Refusal {
	if refusal := by.CheckReservation(spec); refusal != nil {
		return refusal
	}
	return by.CheckFeasible(spec)
}

// maxDivisions limits the numbers of nodes that a submission tries for a number of tasks.
const maxDivisions = 16

// divideTasks sets the nodes of a job that requests a number of tasks without nodes, and applies the
// defaults: the fewest nodes that can have the same number of tasks each, of those that the cluster could
// provide. O(nodes + maxDivisions × shapes), or O(maxDivisions × nodes) if the job names nodes or a
// reservation.
func divideTasks(spec *cluster.JobSpec, defaultTime bool, by *admission.Checker) *command.Refusal {
	tasks := spec.Request.Tasks
	var first *command.Refusal
	least, most := by.NodesFor(spec)
	for n, tried := int32(1), 0; n <= min(tasks, most) && tried < maxDivisions; n = max(n+1, least) { // 1 for its refusal
		if tasks%n != 0 {
			continue
		}
		on := *spec
		var divides bool
		if on.Request, divides = spec.Request.DivideTasks(n); !divides || on.Validate() != nil {
			continue
		}
		tried++
		if refusal := by.ApplyDefaults(&on, nil, defaultTime); refusal != nil { // as for more nodes
			if first == nil {
				return refusal
			}
			break
		}
		refusal := checkPlacement(&on, by)
		if refusal == nil {
			*spec = on
			return nil
		}
		first = cmp.Or(first, refusal)
	}
	if first == nil {
		first = command.Refusef(command.InvalidArgument, "%d tasks and %d GPUs cannot be split evenly over any number of nodes", tasks, spec.Request.GPUs)
	}
	return command.WithHint(command.Refusef(first.Code, "%s; %d tasks cannot be split evenly over more nodes", first.Message, tasks),
		"choose another --ntasks, or set --nodes and --ntasks-per-node")
}

// invalid returns the refusal of an invalid specification.
func invalid(err error) *command.Refusal {
	return command.Refuse(command.InvalidArgument, strings.ReplaceAll(command.OneLine(err), cluster.ErrInvalidJob.Error()+": ", ""), "")
}

// checkDependencies refuses conditions that can never be satisfied: on unknown jobs, and on jobs
// that ended otherwise. Of alternatives one that can be satisfied is enough. The pass checks the
// outcome of whole arrays, which may have a million elements.
func (s *State) checkDependencies(spec *cluster.JobSpec) *command.Refusal {
	var first *command.Refusal
	refused := 0
	for _, d := range spec.Depends {
		refusal := s.checkDependency(spec.Owner, d)
		switch {
		case refusal == nil:
			continue
		case !d.Any || refusal.Code == command.NotFound:
			return refusal
		}
		refused++
		first = cmp.Or(first, refusal)
	}
	if refused == len(spec.Depends) {
		return first
	}
	return nil
}

// checkDependency refuses a condition on an unknown job, or on a job that ended otherwise.
func (s *State) checkDependency(owner cluster.Identity, d cluster.Dependency) *command.Refusal {
	if d.Kind == cluster.Singleton {
		return nil
	}
	a, isArray := s.arrays.Get(d.Job.ID)
	known := a.kept == a.count && (!isArray || s.mayKnowOf(owner, d.Job.ID)) // all of its elements
	if !isArray || d.Job.Index != cluster.NoIndex {
		one := s.resolve(d.Job)
		if known = len(one) > 0 && s.mayKnowOf(owner, one[0]); known {
			return s.neverHolds(d, one[0])
		}
	}
	if !known {
		return command.WithHint(command.Refusef(command.NotFound, "dependency %s: no pending, running or recently ended job %s", d, d.Job), "gqueue --me lists your jobs, gctl acct those that ended")
	}
	return nil
}

// mayKnowOf reports whether a user may learn that a job exists. Where the policy is private, these
// are the user's own jobs, and all jobs for operators and administrators.
func (s *State) mayKnowOf(user cluster.Identity, id cluster.JobID) bool {
	j, known := s.job(id)
	p := s.policy
	return !p.Private || !known || j.Spec.Owner.User == user.User && j.Spec.Owner.UID == user.UID ||
		user.UID == 0 || slices.Contains(p.Operators, user.User) || slices.Contains(p.Admins, user.User)
}

// neverHolds refuses a condition on a job whose outcome can never satisfy it.
func (x *jobTables) neverHolds(d cluster.Dependency, id cluster.JobID) *command.Refusal {
	j, _ := x.job(id)
	if !j.State.Final() {
		return nil
	}
	bad := 1
	if j.State == cluster.Completed && j.Exit.OK() {
		bad = 0
	}
	if d.Kind.Satisfied(bad) {
		return nil
	}
	return command.WithHint(command.Refusef(command.Conflict, "dependency %s can never be satisfied: job %s ended %s", d, d.Job, j.State), "resubmit that job and depend on the new one, or remove the dependency")
}

// incomplete refuses a submission that names a blob which does not exist.
func incomplete(what string) *command.Refusal {
	return command.Refuse(command.Incomplete, "the job's "+what+" must be sent again", "submit again")
}

// checkTexts refuses texts that are unsafe to display, except those that before has.
func checkTexts(spec, before *cluster.JobSpec) *command.Refusal {
	old := before.Texts()
	for i, t := range spec.Texts() {
		if *t.Text != *old[i].Text {
			if refusal := command.CheckText("the job's", *t.Text); refusal != nil {
				return refusal
			}
		}
	}
	return nil
}
