package schedule

import (
	"maps"
	"slices"

	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// needsReplan reports whether what happened concerns the whole plan: it is the
// first pass, nodes or rules changed, or it is time to put those starts that are no
// promises into the present order of priorities, and to see whether those on several
// hosts could begin sooner, if not now, on others that overlap them.
func (p *Planner) needsReplan(r *pass) bool {
	snap := r.snap
	if p.preemptingFor != 0 || p.last == nil || snap.Index < p.last.Index || snap.Now < p.last.Now || snap.Policy != p.last.Policy {
		return true
	}
	if !sameBudgets(p.last, snap) || !cluster.SameGrants(treeOf(p.last), treeOf(snap)) {
		return true
	}
	rules := &snap.Policy.Scheduling
	if rules.Depth != cluster.Unlimited || !sameFabric(p.last.Switches, snap.Switches) || !maps.Equal(p.ground.prices, pricesOf(snap)) {
		return true
	}
	if !slices.EqualFunc(snap.Nodes, p.last.Nodes, sameGround) {
		return true
	}
	if p.soft+p.wide == 0 || rules.Replan <= 0 || snap.Now.Sub(p.ordered) < rules.Replan {
		return false
	}
	return p.wide > 0 || !p.inOrder(r)
}

// sameFabric reports whether two snapshots have the same fabric: it is replaced as a
// whole.
func sameFabric(a, b []cluster.Switch) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// sameGround reports whether two nodes are the same to a scheduler.
func sameGround(a, b *cluster.Node) bool {
	return a == b || a.Name == b.Name && a.Usable() == b.Usable() && a.CPUs == b.CPUs && a.Memory == b.Memory &&
		a.Epoch == b.Epoch && slices.Equal(a.GPUs, b.GPUs) && slices.Equal(a.Features, b.Features) && a.Region == b.Region
}

// isLate reports whether a job should have been started by a pass that was not made.
func (p *Planner) isLate(now cluster.Instant) bool {
	at, ok := p.nextDue()
	return ok && now.Sub(at) > slack
}

// replan makes the plan from what runs. Promises are put where they were; then they
// are brought forward, one at a time in order of priority; then all other jobs are
// planned around them, in order (docs/adr/0009). When a job overruns, promises slip
// behind it, in the order of their instants: a minute's delay of one job must not
// cost another its place.
func (p *Planner) replan(r *pass, slips bool) {
	before, first := p.remember(), p.madeFor(r)
	r.slips = slips
	p.reset(r)
	p.profile.Packed = r.snap.Policy.Scheduling.Packed
	r.told, r.taken = r.told[:0], nil
	for _, job := range r.jobs.active {
		if job.Alloc != nil {
			p.occupy(r, p.newRunningJob(r, job))
		}
	}
	p.ground.block(p.profile)
	all := make([]*entry, 0, len(r.jobs.pending))
	for _, promised := range [...]bool{true, false} { // an array's limit has room for those first
		for _, job := range r.jobs.pending {
			if (job.Promise != nil) != promised {
				continue
			}
			if e := p.admitted(r, job); e != nil {
				all = append(all, e)
			}
		}
	}
	slices.SortFunc(all, func(a, b *entry) int { return a.rank.compare(&b.rank) })
	p.keepPromises(r, all, before, slips)
	p.planPreemptor(r, first)
	for moved := !r.stay; moved; { // what one leaves may be what one before it waits for
		moved = false
		for _, e := range all {
			moved = e.promised && p.bringForward(r, e) || moved
		}
	}
	p.planRest(r, all, before)
	if len(all) > 0 {
		p.lowestPlanned = all[len(all)-1].rank
	}
	p.ordered, r.decision.Stats.Anew = r.snap.Now, true
}

// priorPlan is what was planned for a job, in words that outlive the plan.
type priorPlan struct {
	spec            *cluster.JobSpec
	plan            *cluster.Promise // nil when it had no place
	firm            bool
	broken, changed string

	hosts  []*topology.Host // of the ground that shares are on
	shares []backfill.Share
	choice int
}

// remember notes what is planned.
func (p *Planner) remember() map[cluster.JobID]priorPlan {
	notes := make(map[cluster.JobID]priorPlan, len(p.entries))
	for id, e := range p.entries {
		m := priorPlan{spec: e.job.Spec, broken: e.broken, changed: e.changed}
		if e.at > 0 {
			m.plan, m.firm = p.promiseOf(e), e.promised
			m.hosts, m.shares, m.choice = p.ground.hosts, e.shares, e.choice
		}
		if e.at > 0 || e.broken != "" || e.changed != "" {
			notes[id] = m
		}
	}
	return notes
}

// reset forgets the plan.
func (p *Planner) reset(r *pass) {
	g := newGround(r.snap)
	*p = Planner{
		passes: p.passes, ground: g, profile: backfill.New(r.snap.Now, g.hosts, g.levels, g.counts),
		classes: map[classKey]*requestClass{}, bySpec: map[*cluster.JobSpec]*requestClass{},
		entries: make(map[cluster.JobID]*entry, len(r.jobs.pending)), tenants: map[cluster.JobID]*runningJob{},
		due: newDue(), leaving: newLeaving(), offers: newMoves(), barred: newBarred(), singles: newSingletons(), limited: map[*entry]bool{}, pledged: map[*entry]bool{}, left: map[int]bool{}, on: make([][]*entry, len(g.hosts)), last: p.last, made: p.made, active: p.active, pending: p.pending, prio: p.prio,
		taken: make([]topology.Set, len(g.hosts)), unallocated: make([]backfill.Amount, len(g.hosts)),
	}
	for h := range p.unallocated {
		p.unallocated[h] = p.profile.All(h)
	}
}

// admitted makes the entry of a pending job; nil when it is held, or not eligible.
func (p *Planner) admitted(r *pass, job *cluster.Job) *entry {
	if job.Hold != cluster.NotHeld {
		return nil // the state said why when it was held
	}
	e := &entry{job: job, place: -1}
	p.entries[job.ID] = e
	r.markChanged(e)
	if v, barred := p.bar(r, job); barred {
		p.barred.add(r, e, v)
		return nil
	}
	e.class = p.classOf(r, job)
	if e.class.never.reason != cluster.ReasonNone {
		p.barred.add(r, e, e.class.never)
		return nil
	}
	p.limit(r, e)
	p.singles.add(e)
	p.enrol(r, e)
	return e
}

// planRest plans all that is no promise, in order.
func (p *Planner) planRest(r *pass, all []*entry, before map[cluster.JobID]priorPlan) {
	rules := &r.snap.Policy.Scheduling
	last := cluster.Never
	if rules.Window > 0 {
		last = r.snap.Now.Add(rules.Window)
	}
	planned := int32(0)
	shut := map[string]bool{} // partitions in which nobody may pass the one that waits
	for _, e := range all {
		if e.promised || e.at > 0 { // or has got the room that was made for it
			continue
		}
		limit := last
		if rules.Depth != cluster.Unlimited && planned >= rules.Depth {
			limit = min(limit, r.snap.Now+1)
		}
		first := e.class.options[0].part.Name
		if shut[first] {
			continue
		}
		p.planOne(r, e, before[e.job.ID], limit)
		if e.at > 0 && e.at <= r.snap.Now {
			if v, away := p.promisedAway(r, e.job); away {
				p.withhold(r, e, v)
				continue
			}
		}
		if e.at == 0 || e.at > r.snap.Now {
			planned++
			shut[first] = rules.Depth == 0
		}
	}
}

// planOne books the earliest start before an instant, if there is one. A job that
// cannot start sooner than it was going to stays where it was.
func (p *Planner) planOne(r *pass, e *entry, old priorPlan, before cluster.Instant) {
	now := r.snap.Now
	p.turns++
	e.turn = p.turns
	if old.plan != nil && old.plan.At > now && old.plan.At < before && old.spec == e.job.Spec {
		if stay, where, ok := p.kept(e, old.plan, old.plan.At, &old); ok {
			s, choice, sooner := p.findWithin(e.class, now, e.class.limitOf(stay.At, where), (*backfill.Profile).Earliest)
			if !sooner {
				s, choice = stay, where
			}
			p.book(e, s, choice)
			return
		}
	}
	if s, choice, ok := p.find(e.class, now, before, (*backfill.Profile).Earliest); ok {
		p.book(e, s, choice)
	}
}
