package explain

import (
	"time"

	"github.com/greylag/greylag/internal/schedule/plan"
	"github.com/greylag/greylag/pkg/cluster"
)

// Expectations returns when each pending job would start if each job ran as long as usual returns, and without
// an answer as long as its limit: in addition to the planned starts, which use time limits alone. Promises are
// kept as in a pass. [cluster.Never] stands for a job that would start no earlier. Jobs behind more than depth
// others, ineligible jobs, and jobs without a planned start are left out. [ExpectedAt] is what users see. It
// costs two passes.
func Expectations(snap *cluster.Snapshot, depth int32, usual func(*cluster.JobSpec) (time.Duration, bool)) map[cluster.JobID]cluster.Instant {
	// The present plan was made event by event; a full pass may find other places. So a guess is compared
	// with what a full pass finds by time limits, else the differences would not be those of run times.
	limits := fullPlan(snap, depth, func(*cluster.JobSpec) (time.Duration, bool) { return 0, false })
	at := fullPlan(snap, depth, usual)
	all := len(snap.Pending) <= int(depth)
	for _, j := range snap.Pending {
		guess, found := at[j.ID]
		planned, known := limits[j.ID]
		switch {
		case found && known && guess >= planned, !found && known, !found && all && j.Planned > 0:
			at[j.ID] = cluster.Never
		}
	}
	return at
}

// fullPlan returns when a full pass plans the pending jobs, if each job runs as long as usual returns.
func fullPlan(snap *cluster.Snapshot, depth int32, usual func(*cluster.JobSpec) (time.Duration, bool)) map[cluster.JobID]cluster.Instant {
	shot := *snap
	policy := *snap.Policy
	if d := policy.Scheduling.Depth; d < 0 || d > depth {
		policy.Scheduling.Depth = depth
	}
	shot.Policy = &policy
	shot.Pending, shot.Active = make([]*cluster.Job, len(snap.Pending)), make([]*cluster.Job, len(snap.Active))
	for i, j := range snap.Pending {
		shot.Pending[i] = withUsual(j, snap.Now, usual)
	}
	for i, j := range snap.Active {
		shot.Active[i] = withUsual(j, snap.Now, usual)
	}
	p := plan.FromScratch(&shot)
	at := make(map[cluster.JobID]cluster.Instant, len(shot.Pending))
	for _, j := range shot.Pending {
		switch e := p.Entry(j.ID); {
		case e == nil || e.At == 0:
		case e.Starting:
			at[j.ID] = snap.Now
		case plan.Shown(snap.Now, e.At) > 0:
			at[j.ID] = plan.Shown(snap.Now, e.At)
		}
	}
	return at
}

// ExpectedAt returns the expected start of a job as users see it at an instant: not before that, and not after
// the planned start. 0 when none is known or planned, or the planned start is due.
func ExpectedAt(guess cluster.Instant, job *cluster.Job, now cluster.Instant) cluster.Instant {
	if guess == 0 || job.State != cluster.Pending || job.Planned <= now {
		return 0
	}
	if guess >= job.Planned {
		return job.Planned
	}
	return min(plan.Shown(now, max(guess, now)), job.Planned)
}

// withUsual returns a copy of a job whose time limit is the usual run time, unless it has run for longer, or
// its limit is shorter.
func withUsual(j *cluster.Job, now cluster.Instant, usual func(*cluster.JobSpec) (time.Duration, bool)) *cluster.Job {
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
