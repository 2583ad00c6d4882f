package eligible

import (
	"fmt"
	"slices"

	"github.com/greylag/greylag/internal/schedule/words"
	"github.com/greylag/greylag/pkg/cluster"
)

// dependencyState says whether a dependency holds. The order counts: when several jobs have to
// fulfil a dependency, the largest state of one of them is that of all.
type dependencyState uint8

const (
	met dependencyState = iota
	notYet
	never
)

// Dependencies returns why a job's dependencies keep it from starting, if they do.
func (c *Checker) Dependencies(job *cluster.Job) (Obstacle, bool) {
	if cluster.AnyOf(job.Spec.Depends) {
		return c.alternatives(job)
	}
	worst, which := met, cluster.Dependency{}
	for _, d := range job.Spec.Depends {
		if s := c.dependency(job, d); s > worst {
			worst, which = s, d
		}
	}
	switch worst {
	case met:
		return Obstacle{}, false
	case never:
		return Obstacle{cluster.ReasonDependencyNeverSatisfied,
			fmt.Sprintf("dependency %s can never be satisfied: cancel this job, or resubmit it without the dependency", which)}, true
	}
	if which.Kind == cluster.Singleton {
		return Obstacle{cluster.ReasonDependency, "another job of this name is active or ahead of it"}, true
	}
	if which.Delay > 0 {
		if at := c.delayEnd(which); at < cluster.Never {
			return Obstacle{cluster.ReasonDependency, fmt.Sprintf("dependency %s holds from %s on", which, words.Instant(at))}, true
		}
	}
	return Obstacle{cluster.ReasonDependency, fmt.Sprintf("dependency %s is not satisfied yet", which)}, true
}

// alternatives returns why none of a job's dependencies holds, if one would be enough.
func (c *Checker) alternatives(job *cluster.Job) (Obstacle, bool) {
	best, list := never, job.Spec.Depends
	for _, d := range list {
		best = min(best, c.dependency(job, d))
	}
	text := cluster.DependencyText(list[:min(len(list), maxAlternatives)])
	if more := len(list) - maxAlternatives; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	switch best {
	case met:
		return Obstacle{}, false
	case never:
		return Obstacle{cluster.ReasonDependencyNeverSatisfied,
			fmt.Sprintf("none of the dependencies %s can ever be satisfied: cancel this job, or resubmit it without them", text)}, true
	}
	return Obstacle{cluster.ReasonDependency, fmt.Sprintf("none of the dependencies %s is satisfied yet", text)}, true
}

// maxAlternatives is the number of alternative dependencies that are named.
const maxAlternatives = 5

// Unmet reports whether one dependency of a job does not hold.
func (c *Checker) Unmet(job *cluster.Job, d cluster.Dependency) bool {
	return c.dependency(job, d) != met
}

// dependency returns the state of one dependency. All elements of an array must fulfil it, except for
// afternotok: an array that has ended fulfils that when one element failed.
func (c *Checker) dependency(job *cluster.Job, d cluster.Dependency) dependencyState {
	if d.Kind == cluster.Singleton {
		if c.FirstOf(JobNameOf(job)) == job.ID {
			return met
		}
		return notYet
	}
	first, count, array := c.snap.Elements(d.Job.ID)
	switch {
	case d.Delay > 0:
		return c.delayed(d)
	case d.Kind == cluster.AfterCorr && array && d.Job.Index == cluster.NoIndex && job.Array != 0:
		return c.element(d.Job.ID, job.Index, cluster.AfterOK)
	case array && d.Job.Index != cluster.NoIndex:
		return c.element(d.Job.ID, d.Job.Index, d.Kind)
	case !array:
		return c.one(d.Job.ID, d.Kind)
	}
	state, known := c.arrays[d]
	if !known {
		state = c.array(d.Kind, first, count)
		c.arrays[d] = state
	}
	return state
}

// FirstOf returns the job of a name that may run as a singleton; 0 for none. A singleton waits while any
// job of its name and user is active, and while one with a lower ID is pending.
func (c *Checker) FirstOf(name JobName) cluster.JobID {
	if c.Names == nil {
		c.Names = newJobNames(&c.Jobs)
	}
	return c.Names.first(name)
}

// array returns the state of a dependency on all elements of an array. O(elements).
func (c *Checker) array(kind cluster.DependencyKind, first cluster.JobID, count int32) dependencyState {
	worst := met
	active := c.Jobs.Between(first, count)
	for _, j := range active {
		worst = max(worst, onActive(kind, j))
	}
	if kind == cluster.AfterNotOK {
		if len(active) > 0 {
			return notYet
		}
		return c.anyFailed(first, count)
	}
	for id := first; id < first+cluster.JobID(count) && len(active) < int(count); id++ {
		if _, alive := c.Jobs.Find(id); !alive {
			worst = max(worst, c.ended(id, kind))
		}
	}
	return worst
}

// anyFailed returns the state of afternotok on an array whose elements have all ended.
func (c *Checker) anyFailed(first cluster.JobID, count int32) dependencyState {
	for id := first; id < first+cluster.JobID(count); id++ {
		if c.ended(id, cluster.AfterNotOK) == met {
			return met
		}
	}
	return never
}

// element returns the state of a dependency on the element of an array with an index.
func (c *Checker) element(array cluster.JobID, index int32, kind cluster.DependencyKind) dependencyState {
	id, ok := c.snap.Element(array, index)
	if !ok { // no such element
		return never
	}
	return c.one(id, kind)
}

func (c *Checker) one(id cluster.JobID, kind cluster.DependencyKind) dependencyState {
	if j, ok := c.Jobs.Find(id); ok {
		return onActive(kind, j)
	}
	return c.ended(id, kind)
}

// onActive returns the state of a dependency on a job that has not ended.
func onActive(kind cluster.DependencyKind, j *cluster.Job) dependencyState {
	if kind == cluster.After && j.Attempt > 0 {
		return met
	}
	return notYet
}

// ended returns the state of a dependency on a job that has ended. The state keeps only the newest
// finished jobs: of an older one only that it ended is known.
func (c *Checker) ended(id cluster.JobID, kind cluster.DependencyKind) dependencyState {
	j := c.snap.Ended(id)
	ok := j != nil && j.State == cluster.Completed && j.Exit.OK()
	switch kind {
	case cluster.AfterOK, cluster.AfterCorr:
		if !ok {
			return never
		}
	case cluster.AfterNotOK:
		if ok || j == nil {
			return never
		}
	}
	return met
}

// delayed returns the state of a dependency with a delay.
func (c *Checker) delayed(d cluster.Dependency) dependencyState {
	if d.Job.Index != cluster.NoIndex {
		if _, ok := c.snap.Element(d.Job.ID, d.Job.Index); !ok {
			return never
		}
	}
	if c.delayEnd(d) > c.snap.Now {
		return notYet
	}
	return met
}

// delayEnd returns when the delay of a dependency ends, for all elements of an array;
// [cluster.Never] while one has not started.
func (c *Checker) delayEnd(d cluster.Dependency) cluster.Instant {
	last, known := c.lastStart[d.Job] // thousands of jobs may depend on one array, with different delays
	if !known {
		last = c.allStarted(d.Job)
		c.lastStart[d.Job] = last
	}
	if last == cluster.Never {
		return last
	}
	return max(c.snap.Now, last.Add(d.Delay))
}

// allStarted returns when the last of the jobs that ref names first started; [cluster.Never] while one
// has not. O(elements).
func (c *Checker) allStarted(ref cluster.JobRef) (last cluster.Instant) {
	first, count, array := c.snap.Elements(ref.ID)
	switch {
	case !array:
		first, count = ref.ID, 1
	case ref.Index != cluster.NoIndex:
		first, _ = c.snap.Element(ref.ID, ref.Index)
		count = 1
	}
	for id := first; id < first+cluster.JobID(count) && last < cluster.Never; id++ {
		last = max(last, c.started(id))
	}
	return last
}

// started returns when a job first started, or ended without a start; [cluster.Never] before its first
// start; 0 for a job that the state has removed.
func (c *Checker) started(id cluster.JobID) cluster.Instant {
	j, active := c.Jobs.Find(id)
	if !active {
		if j = c.snap.Ended(id); j == nil {
			return 0
		}
	}
	switch {
	case len(j.Attempts) > 0:
		return j.Attempts[0].Started
	case j.Started > 0:
		return j.Started
	case active && j.Attempt == 0:
		return cluster.Never
	}
	return j.Ended
}

// Awaited returns the known jobs that a dependency of a job waits for.
func (c *Checker) Awaited(job *cluster.Job, d cluster.Dependency) (list []*cluster.Job) {
	if d.Kind == cluster.Singleton {
		for _, j := range slices.Concat(c.Jobs.Active, c.Jobs.Pending) {
			if JobNameOf(j) == JobNameOf(job) && j.ID != job.ID && (j.State != cluster.Pending || j.ID < job.ID) {
				list = append(list, j)
			}
		}
		return list
	}
	first, count, array := c.snap.Elements(d.Job.ID)
	index := d.Job.Index
	if d.Kind == cluster.AfterCorr && index == cluster.NoIndex && job.Array != 0 {
		index = job.Index
	}
	switch {
	case !array:
		first, count = d.Job.ID, 1
	case index != cluster.NoIndex:
		first, _ = c.snap.Element(d.Job.ID, index)
		count = 1
	}
	for id := first; id < first+cluster.JobID(count); id++ {
		j, alive := c.Jobs.Find(id)
		if !alive {
			j = c.snap.Ended(id)
		}
		holds := c.one(id, d.Kind) == met
		if start := c.started(id); holds && d.Delay > 0 {
			holds = start < cluster.Never && start.Add(d.Delay) <= c.snap.Now
		}
		if !alive && d.Kind == cluster.AfterNotOK && count > 1 { // another element that fails is enough
			holds = true
		}
		if j != nil && !holds {
			list = append(list, j)
		}
	}
	return list
}

// DelaysEnd returns when the next delay of a job's dependencies ends; [cluster.Never] when none will.
func (c *Checker) DelaysEnd(job *cluster.Job) cluster.Instant {
	at := cluster.Never
	for _, d := range job.Spec.Depends {
		if d.Delay == 0 {
			continue
		}
		if t := c.delayEnd(d); t > c.snap.Now {
			at = min(at, t)
		}
	}
	return at
}
