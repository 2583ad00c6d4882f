package schedule

import (
	"fmt"
	"slices"

	"github.com/greylag/greylag/pkg/cluster"
)

// dependencyState is how a dependency stands. The order counts: of several jobs that all
// have to fulfil one, the worst stands for all.
type dependencyState uint8

const (
	met dependencyState = iota
	open
	impossible
)

// unmet is why a job's dependencies keep it from starting, if they do.
func (r *pass) unmet(job *cluster.Job) (verdict, bool) {
	worst, which := met, cluster.Dependency{}
	for _, d := range job.Spec.Depends {
		if f := r.fulfilled(job, d); f > worst {
			worst, which = f, d
		}
	}
	switch worst {
	case met:
		return verdict{}, false
	case impossible:
		return verdict{cluster.ReasonDependencyNeverSatisfied,
			fmt.Sprintf("dependency %s can never be satisfied: cancel this job, or resubmit it without the dependency", which)}, true
	}
	if which.Kind == cluster.Singleton {
		return verdict{cluster.ReasonDependency, "another job of this name runs or is ahead"}, true
	}
	if which.Delay > 0 {
		if at := r.delayEnd(which); at < cluster.Never {
			return verdict{cluster.ReasonDependency, fmt.Sprintf("dependency %s holds from %s on", which, stamp(at))}, true
		}
	}
	return verdict{cluster.ReasonDependency, fmt.Sprintf("dependency %s does not hold yet", which)}, true
}

// fulfilled is how one dependency stands; of an array, all elements must fulfil it,
// but for afternotok, which an array that has ended fulfils by one that failed.
func (r *pass) fulfilled(job *cluster.Job, d cluster.Dependency) dependencyState {
	if d.Kind == cluster.Singleton {
		return r.singleton(job)
	}
	first, count, array := r.snap.Elements(d.Job.ID)
	switch {
	case d.Delay > 0:
		return r.later(d)
	case d.Kind == cluster.AfterCorr && array && d.Job.Index == cluster.NoIndex && job.Array != 0:
		return r.element(d.Job.ID, job.Index, cluster.AfterOK)
	case array && d.Job.Index != cluster.NoIndex:
		return r.element(d.Job.ID, d.Job.Index, d.Kind)
	case !array:
		return r.one(d.Job.ID, d.Kind)
	}
	stands, known := r.stood[d]
	if !known {
		stands = r.whole(d.Kind, first, count)
		r.stood[d] = stands
	}
	return stands
}

// whole is how a dependency on all elements of an array stands. O(elements).
func (r *pass) whole(kind cluster.DependencyKind, first cluster.JobID, count int32) dependencyState {
	worst := met
	active := r.jobs.between(first, count)
	for _, j := range active {
		worst = max(worst, stands(kind, j))
	}
	if kind == cluster.AfterNotOK {
		if len(active) > 0 {
			return open
		}
		return r.anyFailed(first, count)
	}
	for id := first; id < first+cluster.JobID(count) && len(active) < int(count); id++ {
		if _, alive := r.jobs.find(id); !alive {
			worst = max(worst, r.ended(id, kind))
		}
	}
	return worst
}

// anyFailed is how afternotok stands on an array of which every element has ended.
func (r *pass) anyFailed(first cluster.JobID, count int32) dependencyState {
	for id := first; id < first+cluster.JobID(count); id++ {
		if r.ended(id, cluster.AfterNotOK) == met {
			return met
		}
	}
	return impossible
}

// element is how the element of an array with an index stands.
func (r *pass) element(array cluster.JobID, index int32, kind cluster.DependencyKind) dependencyState {
	id, ok := r.snap.Element(array, index)
	if !ok { // no such element: nothing will ever fulfil this
		return impossible
	}
	return r.one(id, kind)
}

func (r *pass) one(id cluster.JobID, kind cluster.DependencyKind) dependencyState {
	if j, ok := r.jobs.find(id); ok {
		return stands(kind, j)
	}
	return r.ended(id, kind)
}

// stands is how a dependency on a job that has not ended stands.
func stands(kind cluster.DependencyKind, j *cluster.Job) dependencyState {
	if kind == cluster.After && j.Attempt > 0 {
		return met
	}
	return open
}

// ended is how a dependency on a job that has ended stands. Of one that ended so
// long ago that the state has forgotten how, only that it ended is known.
func (r *pass) ended(id cluster.JobID, kind cluster.DependencyKind) dependencyState {
	j := r.snap.Ended(id)
	ok := j != nil && j.State == cluster.Completed && j.Exit.OK()
	switch kind {
	case cluster.AfterOK, cluster.AfterCorr:
		if !ok {
			return impossible
		}
	case cluster.AfterNotOK:
		if ok || j == nil {
			return impossible
		}
	}
	return met
}

// later is how a dependency with a delay stands.
func (r *pass) later(d cluster.Dependency) dependencyState {
	if d.Job.Index != cluster.NoIndex {
		if _, ok := r.snap.Element(d.Job.ID, d.Job.Index); !ok {
			return impossible
		}
	}
	if r.delayEnd(d) > r.snap.Now {
		return open
	}
	return met
}

// delayEnd is when the delay of a dependency is over, for all elements of an array;
// [cluster.Never] while one has not started.
func (r *pass) delayEnd(d cluster.Dependency) cluster.Instant {
	last, known := r.lastBegan[d.Job] // whatever the delay: there may be thousands on one array
	if !known {
		last = r.allBegan(d.Job)
		r.lastBegan[d.Job] = last
	}
	if last == cluster.Never {
		return last
	}
	return max(r.snap.Now, last.Add(d.Delay))
}

// allBegan returns when the last of the jobs that ref names first started; [cluster.Never] while one
// has not. O(elements).
func (r *pass) allBegan(ref cluster.JobRef) (last cluster.Instant) {
	first, count, array := r.snap.Elements(ref.ID)
	switch {
	case !array:
		first, count = ref.ID, 1
	case ref.Index != cluster.NoIndex:
		first, _ = r.snap.Element(ref.ID, ref.Index)
		count = 1
	}
	for id := first; id < first+cluster.JobID(count) && last < cluster.Never; id++ {
		last = max(last, r.began(id))
	}
	return last
}

// began is when a job first started, or ended without; [cluster.Never] when it waits for
// its first start. Of one that is not known any more it is 0: long ago.
func (r *pass) began(id cluster.JobID) cluster.Instant {
	j, active := r.jobs.find(id)
	if !active {
		if j = r.snap.Ended(id); j == nil {
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

// awaited is the jobs that are known of those for which a dependency does not hold.
func (r *pass) awaited(job *cluster.Job, d cluster.Dependency) (list []*cluster.Job) {
	if d.Kind == cluster.Singleton {
		for _, j := range slices.Concat(r.jobs.active, r.jobs.pending) {
			if bearerOf(j) == bearerOf(job) && j.ID != job.ID && (j.State != cluster.Pending || j.ID < job.ID) {
				list = append(list, j)
			}
		}
		return list
	}
	first, count, array := r.snap.Elements(d.Job.ID)
	index := d.Job.Index
	if d.Kind == cluster.AfterCorr && index == cluster.NoIndex && job.Array != 0 {
		index = job.Index
	}
	switch {
	case !array:
		first, count = d.Job.ID, 1
	case index != cluster.NoIndex:
		first, _ = r.snap.Element(d.Job.ID, index)
		count = 1
	}
	for id := first; id < first+cluster.JobID(count); id++ {
		j, alive := r.jobs.find(id)
		if !alive {
			j = r.snap.Ended(id)
		}
		holds := r.one(id, d.Kind) == met
		if began := r.began(id); holds && d.Delay > 0 {
			holds = began < cluster.Never && began.Add(d.Delay) <= r.snap.Now
		}
		if !alive && d.Kind == cluster.AfterNotOK && count > 1 { // another that fails will do
			holds = true
		}
		if j != nil && !holds {
			list = append(list, j)
		}
	}
	return list
}

// ripens is when one of a job's dependencies may hold by itself; [cluster.Never] when none
// will.
func (r *pass) ripens(job *cluster.Job) cluster.Instant {
	at := cluster.Never
	for _, d := range job.Spec.Depends {
		if d.Delay == 0 {
			continue
		}
		if t := r.delayEnd(d); t > r.snap.Now {
			at = min(at, t)
		}
	}
	return at
}
