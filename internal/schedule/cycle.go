package schedule

import (
	"github.com/greylag/greylag/pkg/cluster"
)

// What bounds one pass.
const (
	// Depth is how many waiting jobs get a planned start, which nothing behind them
	// may delay. Jobs behind those start when they fit beside all planned ones.
	Depth = 128
	// maxStarts ends a pass early, so that its plan is agreed soon; another follows.
	maxStarts = 1024
	// maxSearches bounds how many different requests are looked at.
	maxSearches = 4096
	// maxEffort bounds the steps of the profile that are looked at: about 200 ms.
	maxEffort = 8_000_000
)

// Decision is what a pass decides.
type Decision struct {
	Plan cluster.Plan
	// Wake is the next instant at which time alone makes a job eligible;
	// [cluster.Never] when there is none.
	Wake cluster.Instant
	// Searched counts the different requests that were looked at.
	Searched int
	// More says that the pass ended before it had looked at every job.
	More bool
}

// Decide makes one pass over a snapshot. A pending job costs little more than a
// table look-up; all that costs more is bounded by the constants of this file.
func Decide(snap *cluster.Snapshot) Decision {
	r := newRound(snap)
	r.eligible()
	r.order()
	r.plan()
	r.explain()
	return r.decision
}

// round is a pass under way.
type round struct {
	snap     *cluster.Snapshot
	jobs     roster
	ground   *ground
	byKey    map[classKey]*class
	queue    classQueue
	served   []*class // classes that have been taken from the queue for good
	planned  []booking
	firstOf  map[bearer]cluster.JobID // made when a singleton asks
	decision Decision
}

func newRound(snap *cluster.Snapshot) *round {
	r := &round{snap: snap, jobs: newRoster(snap), ground: newGround(snap), byKey: map[classKey]*class{}}
	r.decision.Plan.Index = snap.Index
	r.decision.Wake = cluster.Never
	return r
}

// booking is a planned start with what is kept for it.
type booking struct {
	job   *cluster.Job
	at    cluster.Instant
	where cluster.Placement
}

// start decides that a job starts now.
func (r *round) start(job *cluster.Job, where cluster.Placement) {
	r.decision.Plan.Starts = append(r.decision.Plan.Starts, cluster.PlannedStart{
		Job: job.ID, Attempt: job.Attempt + 1, Placement: where,
	})
}

// verdict is why a job waits.
type verdict struct {
	reason cluster.Reason
	detail string
}

// wait says why a job waits and until when, unless it says so already.
func (r *round) wait(job *cluster.Job, v verdict, planned cluster.Instant) {
	if job.Reason == v.reason && job.Detail == v.detail && job.Planned == planned {
		return
	}
	r.decision.Plan.Verdicts = append(r.decision.Plan.Verdicts, cluster.Verdict{
		Job: job.ID, Reason: v.reason, Detail: v.detail, Planned: planned,
	})
}
