package schedule

import (
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// Expectations is when each waiting job would start if all jobs lasted as long as usual
// says, as [Expected] tells of one. Of jobs behind more than so many others, of those
// that may not start and of those without a place nothing is said. It costs a pass.
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
	for _, j := range snap.Pending {
		if at[j.ID] > 0 {
			at[j.ID] = notAfter(at[j.ID], j.Planned, snap.Now)
		}
	}
	for i := range plan.Starts {
		at[plan.Starts[i].Job] = snap.Now
	}
	return at
}
