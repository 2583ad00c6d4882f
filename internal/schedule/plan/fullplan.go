package plan

import (
	"maps"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/internal/schedule/order"
	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// fullPlan is what planning all jobs again needs.
type fullPlan struct {
	jobs      []*Entry // the eligible ones
	prior     map[cluster.JobID]priorPlan
	preemptor cluster.JobID // for which others were preempted, and which has not started; 0 for none
}

// mustPlanAll reports whether all jobs have to be planned again: this is the first pass; nodes, policy,
// prices or rights changed; other nodes fail often; others were preempted for a job; or the replan interval has passed, and the
// starts without a promise are not in the present order of priorities; or a job on several hosts may be
// able to start earlier.
func (p *Pass) mustPlanAll() bool {
	snap, last := p.Snap, p.last
	if p.preempting || last == nil || snap.Index < last.Index || snap.Now < last.Now || snap.Policy != last.Policy {
		return true
	}
	if !order.SameBudgets(last, snap) || !cluster.SameGrants(eligible.TreeOf(last), eligible.TreeOf(snap)) {
		return true
	}
	if p.reservesFreed && p.mustReserveAgain() {
		return true
	}
	rules := &snap.Policy.Scheduling
	if rules.Depth != cluster.Unlimited || !sameFabric(last.Switches, snap.Switches) || !maps.Equal(p.res.Prices, PricesOf(snap)) {
		return true
	}
	if !slices.EqualFunc(snap.Nodes, last.Nodes, sameNode) || p.otherNodesFail() {
		return true
	}
	if p.bookings.soft+p.bookings.wide == 0 || rules.Replan <= 0 || snap.Now.Sub(p.sequence.checked) < rules.Replan {
		return false
	}
	return p.mayMoveWide(rules.Replan) || !p.inOrder()
}

// wideReplan is the number of replan intervals after which a job on several hosts alone justifies planning
// all jobs again. Without that it moves when it can start at once, or on hosts that are not its own.
const wideReplan = 10

// mayMoveWide reports whether a job on several hosts may be able to start earlier on hosts that overlap
// its own: something became free since all jobs were planned, wideReplan intervals ago or longer.
func (p *Pass) mayMoveWide(interval time.Duration) bool {
	q := &p.sequence
	return p.bookings.wide > 0 && p.Snap.Now.Sub(q.planned) >= wideReplan*interval && q.freed != p.bookings.Profile.Freed()
}

// otherNodesFail reports whether other nodes fail often than when all jobs were planned, and a job avoids such nodes.
// O(classes + nodes).
func (p *Pass) otherNodesFail() bool {
	if slices.Equal(p.Snap.Nodes, p.last.Nodes) {
		return false
	}
	for _, c := range p.classes.byKey {
		if c.Spec.Request.AvoidsFailing() {
			return !slices.Equal(p.res.Failing, cluster.OftenFailing(p.Snap.Nodes, p.Snap.Now))
		}
	}
	return false
}

// sameFabric reports whether two snapshots have the same fabric: the state replaces it as a whole.
func sameFabric(a, b []cluster.Switch) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// sameNode reports whether two nodes are equal for the scheduler.
func sameNode(a, b *cluster.Node) bool {
	return a == b || a.Name == b.Name && a.Usable() == b.Usable() && a.CPUs == b.CPUs && a.Memory == b.Memory &&
		a.Epoch == b.Epoch && slices.Equal(a.GPUs, b.GPUs) && slices.Equal(a.Features, b.Features) && a.Region == b.Region &&
		a.Market == b.Market && a.Rental == b.Rental && slices.Equal(a.Gres, b.Gres) && (a.Degraded() != "") == (b.Degraded() != "")
}

// isLate reports whether a job should have been started by a pass that did not take place.
func (p *Pass) isLate() bool {
	at, ok := p.bookings.next()
	return ok && p.Snap.Now.Sub(at) > slack
}

// checkAll books the running jobs in an empty schedule and checks all pending jobs.
func (p *Pass) checkAll() {
	p.fullPlan = fullPlan{prior: p.priorPlans(), preemptor: p.waitingPreemptor()}
	p.reset()
	p.running.promisedAt = promisedNodes(p.Check.Jobs.Pending)
	for _, job := range p.Check.Jobs.Active {
		if job.Alloc != nil {
			p.running.add(p.Snap.Now, p.running.newJob(p.Snap.Now, job))
		}
	}
	p.running.promisedAt = nil
	p.res.block(p.bookings.Profile)
	p.fullPlan.jobs = make([]*Entry, 0, len(p.Check.Jobs.Pending))
	for _, promised := range [...]bool{true, false} { // the limit of an array is for promised elements first
		for _, job := range p.Check.Jobs.Pending {
			if (job.Promise != nil) != promised {
				continue
			}
			if e := p.check(job); e != nil {
				p.fullPlan.jobs = append(p.fullPlan.jobs, e)
			}
		}
	}
}

// reset empties the tables.
func (p *Pass) reset() {
	s := p.Schedule
	if s.res != nil {
		s.res = s.res.at(p.Snap)
	}
	if s.res == nil {
		s.res = NewResources(p.Snap, s.rules)
	}
	s.entries = make(map[cluster.JobID]*Entry, len(p.Check.Jobs.Pending))
	s.bookings = newBookings(p.Snap.Now, s.res)
	s.bookings.Profile.Packed = p.Snap.Policy.Scheduling.Packed
	s.classes = newClasses(s.res, s.bookings.Profile)
	s.running = newRunning(s.res, s.bookings.Profile)
	s.promises.reset()
	s.ineligible, s.singletons = newIneligible(), newSingletons()
	s.elements.Reset()
	s.moves = newMoves()
	s.sequence, s.sharing = sequence{}, nil
	s.started, s.preempting, s.reservesFreed = nil, false, false
	p.changed, s.opted = p.changed[:0], nil
}

// check adds a pending job to the schedule, and returns its entry if it is eligible; nil when it is held
// or not eligible.
func (p *Pass) check(job *cluster.Job) *Entry {
	if job.Hold != cluster.NotHeld {
		return nil // its reason is the state's
	}
	e := &Entry{Job: job, place: -1}
	p.entries[job.ID] = e
	p.markChanged(e)
	if job.Spec.Burst.On() {
		p.opted = append(p.opted, e)
	}
	if o, blocked := p.Check.First(job); blocked {
		p.ineligible.add(p, e, o)
		return nil
	}
	e.Class = p.classes.of(job, p.Snap.Now)
	if e.Class.never() {
		p.ineligible.add(p, e, e.Class.Never)
		return nil
	}
	p.elements.Add(job)
	p.singletons.add(e)
	if job.Spec.Request.Share.On() {
		p.sharing = append(p.sharing, e)
	}
	return e
}

// planAll plans all jobs. Promises stay where they were; then they move forward, one at a time in order;
// then all other jobs are planned around them, in order. When a job or a pass is late, promises slip
// behind it in the order of their instants: a delay of a minute must not cost a job its place.
func (p *Pass) planAll() {
	jobs := p.fullPlan.jobs
	p.keepPromises()
	p.planPreemptor()
	p.reserveFreed()
	for moved := !p.keepPlaces; moved; { // what one leaves may be what one ahead of it waits for
		moved = false
		for _, e := range jobs {
			moved = e.Promised && p.moveForward(e) || moved
		}
	}
	for _, e := range jobs {
		p.leaveAvoided(e)
	}
	p.planRest()
	if len(jobs) > 0 {
		p.sequence.lowest = jobs[len(jobs)-1].Rank
	}
	q := &p.sequence
	q.checked, q.planned, q.freed = p.Snap.Now, p.Snap.Now, p.bookings.Profile.Freed()
}

// priorPlan is what was planned for a job before all jobs are planned again.
type priorPlan struct {
	attempt         cluster.Attempt // the last one when it was planned
	spec            *cluster.JobSpec
	plan            *cluster.Promise // nil without a planned start
	promised        bool
	broken, changed string

	hosts  []*topology.Host // of the resources that shares refer to
	shares []backfill.HostShare
	choice int
}

// priorPlans returns what is planned.
func (p *Pass) priorPlans() map[cluster.JobID]priorPlan {
	all := make(map[cluster.JobID]priorPlan, len(p.entries))
	for id, e := range p.entries {
		m := priorPlan{attempt: e.Job.Attempt, spec: e.Job.Spec, broken: e.Broken, changed: e.changed}
		if e.At > 0 {
			m.plan, m.promised = p.PromiseOf(e), e.Promised
			m.hosts, m.shares, m.choice = p.res.Hosts, e.Shares, e.Choice
		}
		if e.shared != nil || e.Promised && e.onLeased() { // its place is on a GPU that is not free for other jobs, or may be gone
			m.plan, m.promised, m.shares = e.Job.Promise, e.Job.Promise != nil, nil
		}
		if e.At > 0 || e.Broken != "" || e.changed != "" {
			all[id] = m
		}
	}
	return all
}

// planRest plans all jobs without a promise, in order.
func (p *Pass) planRest() {
	rules := &p.Snap.Policy.Scheduling
	last := cluster.Never
	if rules.Window > 0 {
		last = p.Snap.Now.Add(rules.Window)
	}
	planned := int32(0)
	closed := map[string]bool{} // partitions in which no job may pass the first one that waits
	for _, e := range p.fullPlan.jobs {
		if e.Promised || e.At > 0 { // or planned as the preemptor
			continue
		}
		before := last
		if rules.Depth != cluster.Unlimited && planned >= rules.Depth {
			before = min(before, p.Snap.Now+1)
		}
		first := e.Class.Options[0].Partition
		if closed[first] {
			continue
		}
		p.planOne(e, p.fullPlan.prior[e.Job.ID], before)
		if e.At > 0 && e.At <= p.Snap.Now {
			if o, exceeded := p.promises.exceeded(e.Job); exceeded {
				p.withdraw(e, o)
				continue
			}
		}
		if e.At == 0 || e.At > p.Snap.Now {
			planned++
			closed[first] = rules.Depth == 0
		}
	}
}

// planOne books the earliest start before an instant, if there is one. A job that cannot start earlier
// than it was planned to keeps its place.
func (p *Pass) planOne(e *Entry, prior priorPlan, before cluster.Instant) {
	now := p.Snap.Now
	p.sequence.turns++
	e.turn = p.sequence.turns
	if prior.plan != nil && prior.plan.At > now && prior.plan.At < before && prior.spec == e.Job.Spec {
		if same, choice, ok := p.kept(e, prior.plan, prior.plan.At, &prior); ok {
			s, better, earlier := p.bookings.findWithin(e.Class, now, e.Class.limitOf(same.At, choice), cluster.Never, (*backfill.Profile).Earliest)
			if !earlier {
				s, better = same, choice
			}
			p.bookings.Book(e, s, better)
			return
		}
	}
	if s, choice, ok := p.bookings.find(e.Class, now, before, (*backfill.Profile).Earliest); ok {
		p.bookings.Book(e, s, choice)
	}
}

// moveForward moves a planned start to the earliest instant at which there is room, its own place
// included. It reports whether that is earlier.
func (p *Pass) moveForward(e *Entry) bool {
	if e.At <= p.Snap.Now {
		return false
	}
	w := e.Class.want(e.Choice)
	p.bookings.Profile.Hide(w, e.At, e.Shares)
	start, choice, ok := p.bookings.better(e, (*backfill.Profile).Search)
	p.bookings.Profile.Show(w, e.At, e.Shares)
	if ok {
		p.move(e, start, choice)
	}
	return ok
}

// leaveAvoided moves a promised start on nodes that its job avoids now to other nodes at the same time, if there are some.
func (p *Pass) leaveAvoided(e *Entry) {
	avoided := func(s backfill.HostShare) bool { return slices.Contains(e.Class.Avoids, p.res.Hosts[s.Host].Name) }
	if len(e.Class.Avoids) == 0 || !slices.ContainsFunc(e.Shares, avoided) {
		return
	}
	w := e.Class.want(e.Choice)
	p.bookings.Profile.Hide(w, e.At, e.Shares)
	start, choice, ok := p.bookings.findElsewhere(e)
	p.bookings.Profile.Show(w, e.At, e.Shares)
	if ok && choice%2 == e.Choice%2 && !slices.ContainsFunc(start.Shares, avoided) {
		p.move(e, start, choice)
	}
}

// move moves a planned start.
func (p *Pass) move(e *Entry, to backfill.Start, choice int) {
	p.bookings.rebook(e, to, choice)
	p.markChanged(e)
	p.Stats.Moved++
}
