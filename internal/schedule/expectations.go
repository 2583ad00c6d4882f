package schedule

import (
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// Expectations is when each waiting job would start if all jobs lasted as long as usual
// says, and those of which it says nothing as long as they may: beside the planned starts,
// which rest on time limits alone, and never in place of them. What is promised is kept as a
// pass keeps it. [cluster.Never] is said of a job that would start no sooner for it. Of jobs
// behind more than so many others, of those that may not start and of those without a place
// nothing is said. [ExpectedAt] is what is told of one. It costs two passes.
func Expectations(snap *cluster.Snapshot, so int32, usual func(*cluster.JobSpec) (time.Duration, bool)) map[cluster.JobID]cluster.Instant {
	// What is planned came about event by event; a pass that plans anew may find other
	// places for the same jobs. So a guess is compared with what the same pass finds by
	// time limits, else it would tell of differences that nobody's run time makes.
	limits := places(snap, so, func(*cluster.JobSpec) (time.Duration, bool) { return 0, false })
	at := places(snap, so, usual)
	all := len(snap.Pending) <= int(so)
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

// places is where a pass that plans anew puts the jobs that wait, if all jobs last as long as
// usual says.
func places(snap *cluster.Snapshot, so int32, usual func(*cluster.JobSpec) (time.Duration, bool)) map[cluster.JobID]cluster.Instant {
	shot := *snap
	policy := *snap.Policy
	if d := policy.Scheduling.Depth; d < 0 || d > so {
		policy.Scheduling.Depth = so
	}
	shot.Policy = &policy
	shot.Pending, shot.Active = make([]*cluster.Job, len(snap.Pending)), make([]*cluster.Job, len(snap.Active))
	for i, j := range snap.Pending {
		shot.Pending[i] = lasting(j, snap.Now, usual)
	}
	for i, j := range snap.Active {
		shot.Active[i] = lasting(j, snap.Now, usual)
	}
	p := NewPlanner()
	p.Pass(&shot)
	at := make(map[cluster.JobID]cluster.Instant, len(shot.Pending))
	for _, j := range shot.Pending {
		switch e := p.entries[j.ID]; {
		case e == nil || e.at == 0:
		case e.starts:
			at[j.ID] = snap.Now
		case shown(snap.Now, e.at) > 0:
			at[j.ID] = shown(snap.Now, e.at)
		}
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
	if guess >= job.Planned {
		return job.Planned
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
