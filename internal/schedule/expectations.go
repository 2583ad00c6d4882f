package schedule

import (
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// Expectations is when each waiting job would start if all jobs lasted as long as usual
// says, and those of which it says nothing as long as they may: beside the planned starts,
// which rest on time limits alone, and never in place of them. Of jobs behind more than so
// many others, of those that may not start and of those without a place nothing is said.
// [ExpectedAt] is what is told of one. It costs a pass.
func Expectations(snap *cluster.Snapshot, so int32, usual func(*cluster.JobSpec) (time.Duration, bool)) map[cluster.JobID]cluster.Instant {
	shot := *snap
	policy := *snap.Policy
	if d := policy.Scheduling.Depth; d < 0 || d > so {
		policy.Scheduling.Depth = so
	}
	shot.Policy = &policy
	shot.Pending, shot.Active = make([]*cluster.Job, len(snap.Pending)), make([]*cluster.Job, len(snap.Active))
	for i, j := range snap.Pending {
		j = lasting(j, snap.Now, usual)
		j.Promise, j.Planned, j.Reason = nil, 0, cluster.ReasonNone
		shot.Pending[i] = j
	}
	for i, j := range snap.Active {
		shot.Active[i] = lasting(j, snap.Now, usual)
	}
	plan := Decide(&shot).Plan
	at := make(map[cluster.JobID]cluster.Instant, len(plan.Verdicts))
	for i := range plan.Verdicts {
		if v := &plan.Verdicts[i]; v.Planned > 0 {
			at[v.Job] = v.Planned
		}
	}
	for i := range plan.Starts {
		at[plan.Starts[i].Job] = snap.Now
	}
	return at
}

// ExpectedAt is the expected start of a job as it is told at an instant: not before that, and
// not after the planned start, which holds whatever is guessed. 0 when there is nothing to
// tell: none is known, none is planned, or what is planned is due.
func ExpectedAt(guess cluster.Instant, job *cluster.Job, now cluster.Instant) cluster.Instant {
	if guess == 0 || job.State != cluster.Pending || job.Planned <= now {
		return 0
	}
	return min(shown(now, max(guess, now)), job.Planned)
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
