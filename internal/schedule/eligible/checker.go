package eligible

import (
	"fmt"

	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/schedule/words"
	"github.com/greylag/greylag/pkg/cluster"
)

// Obstacle is why a job is not eligible.
type Obstacle struct {
	Reason cluster.Reason
	Detail string
}

// String returns the reason with its detail.
func (o Obstacle) String() string {
	if o.Detail == "" {
		return o.Reason.String()
	}
	return o.Reason.String() + ": " + o.Detail
}

// Checker checks the jobs of one snapshot.
type Checker struct {
	Jobs   JobList
	Limits *Limits
	Names  *JobNames // nil before the first singleton is checked

	snap      *cluster.Snapshot
	rules     *Rules
	elements  *Elements
	arrays    map[cluster.Dependency]dependencyState // of dependencies on whole arrays
	lastStart map[cluster.JobRef]cluster.Instant     // when the last job of a reference first started
}

// NewChecker returns a checker of the jobs of a snapshot.
func NewChecker(snap *cluster.Snapshot, jobs JobList, rules *Rules, elements *Elements) *Checker {
	return &Checker{
		snap: snap, Jobs: jobs, Limits: NewLimits(snap), rules: rules, elements: elements,
		arrays: map[cluster.Dependency]dependencyState{}, lastStart: map[cluster.JobRef]cluster.Instant{},
	}
}

// First returns the first obstacle that keeps a job from starting whatever is free, if there is one.
func (c *Checker) First(job *cluster.Job) (Obstacle, bool) {
	if len(job.Unfenced) > 0 {
		return fencing(job), true
	}
	if max(job.Eligible, job.Spec.Begin) > c.snap.Now {
		return Obstacle{cluster.ReasonBeginTime, c.lastFailure(job, "")}, true
	}
	if o, late := c.deadline(job.Spec); late {
		return o, true
	}
	if len(job.Spec.Depends) > 0 {
		if o, unmet := c.Dependencies(job); unmet {
			return o, true
		}
	}
	if o, refused := c.QOS(job.Spec); refused {
		return o, true
	}
	if o, refused := c.rules.Partitions(job.Spec); refused {
		return o, true
	}
	if o, refused := c.reservation(job.Spec); refused {
		return o, true
	}
	if limit := job.Spec.ArrayLimit; job.Array != 0 && limit > 0 && c.elements.left(job, &c.Jobs) <= 0 {
		return arrayLimit(limit), true
	}
	return c.Limits.First(job)
}

// All returns every obstacle that keeps a job from starting whatever is free, its hold included.
func (c *Checker) All(job *cluster.Job) []Obstacle {
	all := hold(job)
	note := func(o Obstacle, found bool) {
		if found {
			all = append(all, o)
		}
	}
	spec := job.Spec
	note(fencing(job), len(job.Unfenced) > 0)
	if max(job.Eligible, spec.Begin) > c.snap.Now {
		note(Obstacle{cluster.ReasonBeginTime, "before its begin time" + c.lastFailure(job, "; ")}, true)
	}
	note(c.deadline(spec))
	if cluster.AnyOf(spec.Depends) {
		note(c.Dependencies(job))
	}
	for _, d := range spec.Depends {
		if d.Any {
			continue
		}
		one, only := *job, *spec
		only.Depends = []cluster.Dependency{d}
		one.Spec = &only
		note(c.Dependencies(&one))
	}
	note(c.QOS(spec))
	if _, everywhere := c.rules.Partitions(spec); everywhere {
		for _, name := range spec.AllPartitions() {
			o, refused := c.rules.partition(spec, name)
			if refused && o.Detail == "" {
				o.Detail = fmt.Sprintf("partition %q is down", name)
			}
			note(o, refused)
		}
	}
	note(c.reservation(spec))
	if limit := spec.ArrayLimit; job.Array != 0 && limit > 0 && c.elementsAhead(job) >= limit {
		note(arrayLimit(limit), true)
	}
	return append(all, c.Limits.All(spec)...)
}

// fencing is the obstacle of a job whose last attempt may still run on lost nodes.
func fencing(job *cluster.Job) Obstacle {
	return Obstacle{cluster.ReasonFencing, fmt.Sprintf("its last attempt may still run on %s: waits until that is proven to be off", hostlist.Compress(job.Unfenced))}
}

// hold returns the hold of a job, if it is held.
func hold(job *cluster.Job) []Obstacle {
	switch job.Hold {
	case cluster.HeldByUser:
		if job.Reason == cluster.ReasonCheckpoint {
			return []Obstacle{{job.Reason, job.Detail}}
		}
		return []Obstacle{{cluster.ReasonHeldUser, job.Detail}}
	case cluster.HeldByAdmin:
		if job.Reason == cluster.ReasonRequeueLimit {
			return []Obstacle{{job.Reason, job.Detail}}
		}
		return []Obstacle{{cluster.ReasonHeldAdmin, job.Detail}}
	case cluster.HeldForCredits:
		return []Obstacle{{cluster.ReasonCredits, job.Detail}}
	}
	return nil
}

// deadline reports whether a job could not end before its deadline any more.
func (c *Checker) deadline(spec *cluster.JobSpec) (Obstacle, bool) {
	late := spec.Deadline > 0 && c.snap.Now > spec.Deadline.Add(-spec.TimeLimit)
	return Obstacle{cluster.ReasonDeadline, "it cannot finish before its deadline"}, late
}

// ArrayFull reports whether as many elements of a job's array run, are planned, or wait for leased nodes as may run at once,
// without the job itself. waiting is the number of those that wait and are not planned.
func (c *Checker) ArrayFull(job *cluster.Job, waiting int32) bool {
	if job.Array == 0 || job.Spec.ArrayLimit == 0 {
		return false
	}
	left := c.elements.left(job, &c.Jobs)
	if c.PlannedElement(job.ID) {
		left++
	}
	return left <= waiting
}

// PlannedElement reports whether a job counts as a planned element of an array with a limit.
func (c *Checker) PlannedElement(id cluster.JobID) bool {
	_, planned := c.elements.planned[id]
	return planned
}

// arrayLimit is the obstacle of elements of an array beyond its limit.
func arrayLimit(limit int32) Obstacle {
	return Obstacle{cluster.ReasonArrayTaskLimit, fmt.Sprintf("%s of its array may run at once; that many run or are planned ahead of it", words.Count(limit, "element"))}
}

// elementsAhead returns how many other elements of a job's array run, or have a planned start while the
// job has none. O(jobs).
func (c *Checker) elementsAhead(job *cluster.Job) (n int32) {
	for _, j := range c.Jobs.Active {
		if j.Array == job.Array {
			n++
		}
	}
	for _, j := range c.Jobs.Pending {
		if j.Array == job.Array && j.Planned > 0 && job.Planned == 0 {
			n++
		}
	}
	return n
}

// lastFailure returns why the last attempt of a requeued job failed, with a prefix, while the job waits
// for that; else "".
func (c *Checker) lastFailure(job *cluster.Job, prefix string) string {
	if job.Restarts == 0 || job.Eligible <= c.snap.Now || job.Reason != cluster.ReasonBeginTime || job.Detail == "" {
		return ""
	}
	return prefix + job.Detail
}

// QOS returns the obstacle of a job that may no longer use its QOS.
func (c *Checker) QOS(spec *cluster.JobSpec) (Obstacle, bool) {
	if c.snap.Policy.MayUseQOS(TreeOf(c.snap), spec) {
		return Obstacle{}, false
	}
	in := ""
	if spec.Account != "" {
		in = " in account " + spec.Account
	}
	return Obstacle{cluster.ReasonInvalidQOS, fmt.Sprintf("%s%s may no longer use qos %s", spec.Owner.User, in, spec.QOS)}, true
}

// TreeOf returns the accounts of a snapshot; nil for none.
func TreeOf(snap *cluster.Snapshot) *cluster.AccountTree {
	if snap.Accounts == nil {
		return nil
	}
	return snap.Accounts.Tree
}

// reservation returns the obstacle of a job whose reservation is gone, does not admit it, or is too
// short for it. The detail does not change from pass to pass.
func (c *Checker) reservation(spec *cluster.JobSpec) (Obstacle, bool) {
	if spec.Reservation == "" {
		return Obstacle{}, false
	}
	refuse := func(format string, args ...any) (Obstacle, bool) {
		return Obstacle{cluster.ReasonReservation, fmt.Sprintf(format, args...)}, true
	}
	x, known := c.snap.Policy.Scheduling.Reservation(spec.Reservation)
	if !known {
		return refuse("reservation %q no longer exists", spec.Reservation)
	}
	asks := func() string {
		return fmt.Sprintf("requests %s, and %s to clean up", cluster.FormatLimit(spec.TimeLimit), cluster.FormatElapsed(c.rules.Grace))
	}
	switch needs := c.rules.HoldTime(spec); {
	case x.End <= c.snap.Now:
		return refuse("reservation %q has ended", x.Name)
	case !x.Admits(spec.Owner.User, spec.Account):
		return refuse("reservation %q is not for user %s or account %q", x.Name, spec.Owner.User, spec.Account)
	case needs > x.End.Sub(x.Start):
		return refuse("%s; reservation %q has a length of %s", asks(), x.Name, cluster.FormatElapsed(x.End.Sub(x.Start)))
	case needs > x.End.Sub(c.snap.Now):
		return refuse("%s; reservation %q ends before that, at %s", asks(), x.Name, words.Instant(x.End))
	}
	return Obstacle{}, false
}

// Early returns the obstacle of a job whose reservation has not begun.
func (c *Checker) Early(spec *cluster.JobSpec) (Obstacle, bool) {
	x, known := c.snap.Policy.Scheduling.Reservation(spec.Reservation)
	if !known || x.Start <= c.snap.Now {
		return Obstacle{}, false
	}
	return Obstacle{cluster.ReasonReservation, fmt.Sprintf("within reservation %q, which begins at %s", x.Name, words.Instant(x.Start))}, true
}
