package plan

import (
	"github.com/greylag/greylag/internal/heap"
	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/internal/schedule/order"
	"github.com/greylag/greylag/pkg/cluster"
)

// Schedule keeps the planned starts of all pending jobs from one pass to the next, so that a pass after
// one event costs what the event changed. It is a function of its snapshots and their order.
type Schedule struct {
	// Of the last pass:
	passes     uint64
	last       *cluster.Snapshot // nil before the first pass
	jobs       eligible.JobList
	names      *eligible.JobNames
	priorities *order.Priorities
	rules      *eligible.Rules
	started    []*Entry     // that it decided to start
	freed      map[int]bool // hosts on which it freed something for the next pass

	// Tables, which a full plan makes again:
	res        *Resources
	entries    map[cluster.JobID]*Entry
	classes    classes
	bookings   Bookings
	running    Running
	promises   promises
	ineligible ineligible
	singletons singletons
	sharing    []*Entry // jobs that may share a GPU; those that do not any more too, until a pass starts jobs
	opted      []*Entry // jobs that may run on leased nodes, and were checked since the last pass
	elements   *eligible.Elements
	moves      heap.Heap[move] // that may start jobs earlier, and were not tried yet
	moveCount  uint64          // of all moves
	sequence   sequence

	nextJoin  order.Rank // of the job with which the next pass goes on to look for places on shared GPUs
	joinsLeft bool       // nextJoin is one: the last pass ended its searches there

	preemptor     cluster.JobID // for which others were preempted last; 0 for none
	preempting    bool          // the last pass did that
	reservesFreed bool          // what its victims leave is not for other jobs
}

// New returns an empty schedule.
func New() *Schedule { return &Schedule{elements: eligible.NewElements(), promises: newPromises()} }

// Resources returns what jobs are placed on.
func (s *Schedule) Resources() *Resources { return s.res }

// Bookings returns the planned starts.
func (s *Schedule) Bookings() *Bookings { return &s.bookings }

// Running returns the jobs with an allocation.
func (s *Schedule) Running() *Running { return &s.running }

// Entry returns a pending job; nil when it is unknown or held.
func (s *Schedule) Entry(id cluster.JobID) *Entry { return s.entries[id] }

// Entries returns all pending jobs that are not held, by ID.
func (s *Schedule) Entries() map[cluster.JobID]*Entry { return s.entries }

// ClassOf returns the class of a job that is not in the schedule, with a specification that may be another one.
func (s *Schedule) ClassOf(id cluster.JobID, spec *cluster.JobSpec) *Class {
	return s.classes.create(spec, nil, id)
}

// PromisedToOthers returns the limit whose remainder is promised to other jobs, if there is one.
func (s *Schedule) PromisedToOthers(job *cluster.Job) (eligible.Obstacle, bool) {
	return s.promises.exceeded(job)
}

// PromiseOf returns the promise that the planned start of an entry is, or would be.
func (s *Schedule) PromiseOf(e *Entry) *cluster.Promise {
	promise := &cluster.Promise{At: e.promisedStart(), Partition: e.Option().Partition, Kind: e.Kind}
	for _, share := range e.Shares {
		promise.Hosts = append(promise.Hosts, cluster.NodeShare{Node: s.res.Hosts[share.Host].Name, GPUs: share.GPUs})
	}
	return promise
}

// Preempt records that others are preempted for a job.
func (s *Schedule) Preempt(id cluster.JobID) { s.preemptor, s.preempting = id, true }

// Preemptor returns the job for which others were preempted last; 0 for none.
func (s *Schedule) Preemptor() cluster.JobID { return s.preemptor }

// withdraw removes a job from the plan until an obstacle is gone.
func (p *Pass) withdraw(e *Entry, o eligible.Obstacle) {
	p.bookings.Unbook(e)
	p.promises.release(e)
	e.Class.remove(e)
	p.elements.Remove(e.Job)
	p.singletons.remove(e)
	e.Promised, e.Starting = false, false
	p.ineligible.add(p, e, o)
	p.markChanged(e)
}

// remove removes a job from the schedule. Its place is free, unless the job runs there now.
func (p *Pass) remove(e *Entry) {
	if job, found := p.Check.Jobs.Find(e.Job.ID); e.At > 0 && !(e.Starting && found && job.State.HasAllocation()) {
		p.free(e)
	}
	p.bookings.Unbook(e)
	p.promises.release(e)
	if e.Eligible() {
		p.classes.retire(e)
	}
	e.removed = true
	p.ineligible.remove(e)
	p.elements.Remove(e.Job)
	p.singletons.remove(e)
	delete(p.entries, e.Job.ID)
}
