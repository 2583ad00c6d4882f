package plan

import (
	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/internal/schedule/order"
	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
)

// Entry is a pending job in the schedule.
type Entry struct {
	Job   *cluster.Job
	Class *Class // nil when the job was found ineligible before its class was needed
	Rank  order.Rank

	// The planned start: At is 0 when none is planned.
	At     cluster.Instant
	Choice int // the class's search that found it: see [Class.want]
	Kind   string
	Shares []backfill.HostShare

	Promised bool              // the planned start is a promise
	Starting bool              // this pass, or the last one, starts the job
	Obstacle eligible.Obstacle // why the job is not eligible; kept after that
	Broken   string            // why its promise was broken, until a verdict says so
	changed  string            // what the job requests since it was promised a start, and may lose that for; until a verdict says so
	promised cluster.Instant   // the promised start, where the job is planned a moment later; see [Entry.promisedStart]
	blocked  *block            // nil while the job is eligible
	turn     int               // jobs planned before it have a lower one
	place    int               // in the heap of planned starts
	pass     uint64            // the last pass that queued it for a verdict
	tried    uint64            // the last move that considered it
	queued   bool              // among the moves, for what became free on its own hosts
	removed  bool              // from the schedule
	shared   *sharedGPU        // on which it starts; nil if it starts on none
}

// Eligible reports whether the job may start as soon as there is a place for it.
func (e *Entry) Eligible() bool { return e.Class != nil && e.blocked == nil }

// MissesDeadline reports whether the planned start is too late for the job's deadline. The job keeps
// it, since it may move forward, but it becomes no promise.
func (e *Entry) MissesDeadline() bool {
	d := e.Job.Spec.Deadline
	return d > 0 && e.At > d.Add(-e.Job.Spec.TimeLimit)
}

// MarkReported records that a verdict said why the job's promise was broken.
func (e *Entry) MarkReported() { e.Broken, e.changed = "", "" }

// Option returns the option by which the job is planned.
func (e *Entry) Option() *Option { return &e.Class.Options[e.Choice/2] }

// Near reports whether the planned start has the locality that the job requests.
func (e *Entry) Near() bool { return e.Choice%2 == 1 }

// onLeased reports whether the planned start is on leased nodes.
func (e *Entry) onLeased() bool { return e.At > 0 && e.Option().leased }

// promisedStart returns the promised start: the planned start, or the earlier one that was promised
// if that is within the leeway.
func (e *Entry) promisedStart() cluster.Instant {
	if e.Promised && e.promised > 0 && e.promised < e.At && e.At.Sub(e.promised) <= Leeway {
		return e.promised
	}
	return e.At
}

// compareRanks compares entries by rank.
func compareRanks(a, b *Entry) int { return a.Rank.Compare(&b.Rank) }
