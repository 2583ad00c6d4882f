package schedule

import (
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// Expected is when a waiting job would start if all jobs lasted as long as usual says,
// and those of which it says nothing as long as they may: beside the planned start,
// which rests on time limits alone, and never in place of it. 0 when nothing is known:
// the job may not start, has no place, or more than maxAhead jobs are ahead of it.
// It costs a pass over the jobs ahead.
func Expected(snap *cluster.Snapshot, id cluster.JobID, usual func(*cluster.JobSpec) (time.Duration, bool)) cluster.Instant {
	r := newRound(snap)
	job, found := r.jobs.find(id)
	if !found || job.State != cluster.Pending || job.Hold != cluster.NotHeld {
		return 0
	}
	p := &Planner{ground: newGround(snap)}
	before := p.before(r, job)
	if len(before) > maxAhead {
		return 0
	}
	first := map[cluster.JobID]bool{id: true}
	for _, j := range before {
		first[j.ID] = true
	}
	shot := *snap
	shot.Pending, shot.Active = make([]*cluster.Job, len(snap.Pending)), make([]*cluster.Job, len(snap.Active))
	for i, j := range snap.Pending {
		j = lasting(j, snap.Now, usual)
		j.Promise, j.Planned, j.Reason = nil, 0, cluster.ReasonNone
		if !first[j.ID] && j.Hold == cluster.NotHeld {
			j.Hold = cluster.HeldByUser // not left out: others may depend on it
		}
		shot.Pending[i] = j
	}
	for i, j := range snap.Active {
		shot.Active[i] = lasting(j, snap.Now, usual)
	}
	plan := Decide(&shot).Plan
	for i := range plan.Starts {
		if plan.Starts[i].Job == id {
			return snap.Now
		}
	}
	for i := range plan.Verdicts {
		if plan.Verdicts[i].Job == id {
			return notAfter(plan.Verdicts[i].Planned, job.Planned, snap.Now)
		}
	}
	return 0
}

// notAfter is an expected start, which is not later than the planned one: what is planned
// holds, even where a plan of nothing but guesses would not find the same place.
func notAfter(expected, planned, now cluster.Instant) cluster.Instant {
	if planned > 0 {
		return min(expected, max(planned, now))
	}
	return expected
}

// lasting is a copy of a job whose time limit is how long such jobs last, unless it
// has run for longer already, or may not.
func lasting(j *cluster.Job, now cluster.Instant, usual func(*cluster.JobSpec) (time.Duration, bool)) *cluster.Job {
	other := *j
	d, known := usual(j.Spec)
	d = (d + time.Second - 1).Truncate(time.Second)
	if !known || d <= 0 || j.Spec.TimeLimit > 0 && d >= j.Spec.TimeLimit || j.Started > 0 && j.Started.Add(d) <= now {
		return &other
	}
	spec := *j.Spec
	spec.TimeLimit = d
	other.Spec = &spec
	return &other
}
