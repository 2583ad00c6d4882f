package schedule

import (
	"github.com/greylag/greylag/internal/schedule/explain"
	"github.com/greylag/greylag/internal/schedule/plan"
	"github.com/greylag/greylag/pkg/cluster"
)

// Decision is what a pass decides.
type Decision struct {
	Plan cluster.Plan
	// Preempt explains the preemptions of the plan: for which job, and where it could start.
	Preempt []PreemptRequest
	// Wake is the next instant at which time alone makes a job eligible or due; else [cluster.Never].
	Wake cluster.Instant
	// More says that the pass ended before it had tried everything.
	More  bool
	Stats plan.Stats
}

// Planner makes one pass after another. It finds out what changed between two snapshots, so that a pass after one
// event costs what the event changed. It is a function of its snapshots and their order; only its owner may use it.
type Planner struct {
	schedule   *plan.Schedule
	preemption preemption
	leasing    leasing
}

// NewPlanner returns a planner without a snapshot.
func NewPlanner() *Planner { return &Planner{schedule: plan.New(), leasing: newLeasing()} }

// Decide makes one pass over a snapshot with a new planner.
func Decide(snap *cluster.Snapshot) Decision { return NewPlanner().Pass(snap) }

// Pass makes one pass over a snapshot, in seven steps:
//
//  1. Eligible: find the jobs that may start at all.
//  2. Order: rank them.
//  3. Plan: plan a start of each, in order; start those whose time has come; promise starts inside the horizon;
//     reclaim extra nodes where a start needs them.
//  4. Preempt: have others end for the first job that may preempt, such that the least work is lost.
//  5. Grow: give idle nodes that are in no plan to elastic jobs.
//  6. Burst: lease cloud nodes for one job, where the time that this saves is worth the cost.
//  7. Explain: give each job that changed its verdict.
//
// O(jobs log jobs + searches) when all jobs are planned, else O(jobs + what changed).
func (p *Planner) Pass(snap *cluster.Snapshot) Decision {
	c := p.schedule.Begin(snap)
	for planned := false; !planned; { // a second time when a change requires that all jobs are planned again
		c.Eligible()       // 1
		c.Order()          // 2
		planned = c.Plan() // 3
	}
	reclaims := c.Reclaim()
	d := Decision{Preempt: p.preempt(c)} // 4
	d.Plan = cluster.Plan{Index: snap.Index, Policy: snap.Policy.Version, Starts: c.Starts}
	for i := range d.Preempt {
		for _, v := range d.Preempt[i].Victims {
			d.Plan.Evictions = append(d.Plan.Evictions, cluster.Preemption{Job: v.Job, Attempt: v.Attempt, For: d.Preempt[i].Job})
		}
	}
	if d.Plan.Reclaims = reclaims; len(d.Plan.Evictions) == 0 {
		d.Plan.Grants = c.Grow()
		d.Plan.Starts = c.Starts
	}
	launches, again := p.leasing.decide(c, len(d.Plan.Evictions) == 0) // 6
	d.Plan.Launches = launches
	d.Plan.Verdicts = explain.Verdicts(c) // 7
	d.Wake, d.More, d.Stats = min(c.End(), again), c.More || len(d.Plan.Evictions)+len(launches) > 0, c.Stats
	if at := p.preemption.again; at > 0 {
		d.Wake = min(d.Wake, max(at, snap.Now+1))
	}
	return d
}
