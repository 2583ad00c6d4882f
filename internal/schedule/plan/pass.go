package plan

import (
	"cmp"
	"slices"

	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// Stats counts what a pass did.
type Stats struct {
	Full    bool // all jobs were planned again
	Planned int  // jobs with a planned start
	Moved   int  // planned starts that moved forward
	Rows    int  // rows of the profile that were searched
}

// Pass is one pass under way: its methods Eligible, Order and Plan are its steps 1 to 3.
type Pass struct {
	*Schedule
	Snap   *cluster.Snapshot
	Check  *eligible.Checker
	Starts []cluster.PlannedStart
	More   bool // the pass ended before it had tried everything
	Stats  Stats

	used        map[int]topology.GPUSet // allocated GPUs by host, with those of this pass's starts and grants
	number      uint64
	joins       int                       // searches for places on shared GPUs
	full        bool                      // all jobs are checked and planned again
	fullPlan    fullPlan                  // while they are
	slips       bool                      // that is since a job or a pass is late: promises may slip
	keepPlaces  bool                      // promises do not move forward
	outOfTurn   bool                      // a job that may preempt was planned behind starts that are not promises
	freedHosts  map[int]bool              // on which something became free
	changed     []*Entry                  // whose verdict may have changed
	verdicts    []*Entry                  // those of them that get one
	startNames  map[eligible.JobName]bool // of jobs that this pass starts, while singletons are eligible
	unallocated []backfill.Amount         // what no job has of each host, with the starts of this pass; nil before the first use
	withGPU     backfill.HostSet          // the hosts of unallocated with a GPU
}

// Begin begins a pass: the snapshot is later than the last one.
func (s *Schedule) Begin(snap *cluster.Snapshot) *Pass {
	s.priorities = s.priorities.At(snap)
	s.rules = eligible.RulesOf(snap.Policy, s.rules)
	s.elements.Begin()
	s.passes++
	p := &Pass{
		Schedule: s, Snap: snap, number: s.passes, used: map[int]topology.GPUSet{}, freedHosts: s.freed,
		Check: eligible.NewChecker(snap, eligible.NewJobList(snap, &s.jobs), s.rules, s.elements),
	}
	s.promises.begin(p.Check.Limits)
	if s.last == nil { // a new leader goes on with the preemption of the last one
		for _, j := range p.Check.Jobs.Active {
			if j.Preempting != nil && j.Preempting.By != 0 {
				s.preemptor, s.preempting = j.Preempting.By, true
			}
		}
	}
	s.freed, s.opted = map[int]bool{}, nil
	p.slips = p.isLate()
	p.full = p.slips || p.mustPlanAll()
	return p
}

// FromScratch plans and starts the jobs of a snapshot in an empty schedule.
func FromScratch(snap *cluster.Snapshot) *Pass { return New().Begin(snap).run() }

// Read begins a pass over a snapshot without planning, to check and rank its jobs.
func Read(snap *cluster.Snapshot) *Pass {
	p := New().Begin(snap)
	p.res = NewResources(snap, p.rules)
	return p
}

// run performs the steps 1 to 3.
func (p *Pass) run() *Pass {
	for planned := false; !planned; {
		p.Eligible()
		p.Order()
		planned = p.Plan()
	}
	return p
}

// Eligible finds the jobs that may start: it checks those that changed since the last pass, or all of
// them where the plan cannot be kept.
func (p *Pass) Eligible() {
	if !p.full && !p.applyDelta() {
		p.full, p.slips = true, true
	}
	if p.full {
		p.checkAll()
	}
}

// Order ranks the eligible jobs. Jobs that were checked alone have their rank.
func (p *Pass) Order() {
	if p.full {
		p.rankAll()
	}
}

// Plan plans a start of each eligible job, in order, and starts the jobs whose planned start has come. It
// returns false when all jobs have to be planned again.
func (p *Pass) Plan() bool {
	switch {
	case p.full:
		p.planAll()
	case !p.planChanges():
		p.full, p.slips = true, false
		return false
	}
	p.startDue()
	p.More = p.More || p.moves.Len() > 0 || p.outdated()
	p.promise()
	return true
}

// Full reports whether the pass planned all jobs again.
func (p *Pass) Full() bool { return p.full }

// Changed returns the entries whose verdict may have changed.
func (p *Pass) Changed() []*Entry { return p.changed }

// Verdicts returns the entries that need a verdict.
func (p *Pass) Verdicts() []*Entry { return p.verdicts }

// Settled reports whether the next pass has only events to handle.
func (p *Pass) Settled() bool { return !p.More && len(p.freed) == 0 }

// End ends the pass. It returns the next instant at which time alone makes a job eligible or due, or
// changes a price; else [cluster.Never].
func (p *Pass) End() (wake cluster.Instant) {
	p.last, p.jobs, p.names = p.Snap, p.Check.Jobs, p.Check.Names
	p.Stats.Full, p.Stats.Planned = p.full, p.bookings.due.Len()
	p.Stats.Rows, p.bookings.Profile.Rows = p.bookings.Profile.Rows, 0
	wake = min(nextPriceChange(p.Snap), p.elasticWake())
	if w := &p.ineligible.wakeups; w.Len() > 0 {
		wake = min(wake, w.Items()[0].at)
	}
	if at, ok := p.bookings.next(); ok {
		wake = min(wake, max(at, p.Snap.Now+1), nextEdge(p.Snap.Policy.Scheduling.Reservations, p.Snap.Now))
	}
	return wake
}

// markChanged queues an entry for a new verdict.
func (p *Pass) markChanged(e *Entry) {
	if e.pass != p.number {
		e.pass = p.number
		p.changed = append(p.changed, e)
	}
}

// free records that the hosts of a planned start become free.
func (p *Pass) free(e *Entry) {
	for _, share := range e.Shares {
		p.freedHosts[share.Host] = true
	}
}

// promise makes promises of planned starts inside the horizon, among the entries that need a verdict. A
// start that is due now is left to the next pass. One on leased nodes is no promise: the cloud may take them back.
func (p *Pass) promise() {
	if p.Check.Limits.Limited() { // a limit may allow only the first ones
		slices.SortStableFunc(p.changed, func(a, b *Entry) int { return cmp.Or(cmp.Compare(a.At, b.At), compareRanks(a, b)) })
	}
	horizon := p.horizon()
	for _, e := range p.changed {
		if e.removed || e.Starting || p.entries[e.Job.ID] != e || e.At > 0 && e.At <= p.Snap.Now {
			continue
		}
		p.verdicts = append(p.verdicts, e)
		if !e.Eligible() || Shown(p.Snap.Now, e.At) == 0 || e.At > horizon || e.Promised || e.MissesDeadline() || e.onLeased() {
			continue
		}
		if p.promises.jobs[e] || p.promises.allow(e.Job) {
			p.promises.make(e)
			p.bookings.soft--
		}
	}
}

// horizon returns the instant up to which planned starts become promises.
func (p *Pass) horizon() cluster.Instant {
	switch h := p.Snap.Policy.Scheduling.PromiseHorizon; {
	case h < 0:
		return cluster.Never
	case h == 0:
		return 0
	default:
		return p.Snap.Now.Add(h)
	}
}

// Shown returns a planned start as users see it: in full seconds, and 0 when it depends on the assumed
// run time of jobs without a time limit.
func Shown(now, at cluster.Instant) cluster.Instant {
	if at == 0 || at.Sub(now) > eligible.UnlimitedTime/2 {
		return 0
	}
	const second = 1e9
	return (at + second - 1) / second * second
}

// Unallocated returns what no job has of each host, those that start in this pass included, and the hosts
// with a free GPU.
func (p *Pass) Unallocated() ([]backfill.Amount, backfill.HostSet) {
	if p.unallocated != nil {
		return p.unallocated, p.withGPU
	}
	p.unallocated = slices.Clone(p.running.unallocated)
	for _, e := range p.started {
		for i := range e.Shares {
			p.unallocated[e.Shares[i].Host].Subtract(&e.Shares[i].Amount)
		}
	}
	p.withGPU = backfill.NewHostSet(len(p.unallocated))
	for h := range p.unallocated {
		if p.unallocated[h].GPUs > 0 {
			p.withGPU.Add(h)
		}
	}
	return p.unallocated, p.withGPU
}

// outdated reports whether the obstacle of an element of an array is outdated: it was checked before the
// number of planned elements changed. No other pass would follow otherwise. O(groups) where a number
// changed.
func (p *Pass) outdated() bool {
	if !p.elements.AnyChanged() {
		return false
	}
	for _, g := range p.ineligible.groups {
		if !p.elements.Changed(g.array) {
			continue
		}
		o, blocked := p.obstacle(g.first())
		if !blocked || o.Reason != g.obstacle.Reason {
			return true
		}
	}
	return false
}

// obstacle returns the obstacle of an ineligible entry as it is now.
func (p *Pass) obstacle(e *Entry) (eligible.Obstacle, bool) {
	if o, blocked := p.Check.First(e.Job); blocked {
		return o, true
	}
	if e.Class == nil {
		return eligible.Obstacle{}, false
	}
	return p.promises.exceeded(e.Job) // it had a planned start until it was due
}
