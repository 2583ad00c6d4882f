package schedule

import (
	"cmp"
	"maps"
	"slices"

	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// mustPlanAnew reports whether what happened concerns the whole plan: it is the
// first pass, nodes or rules changed, or it is time to put those starts that are no
// promises into the present order of priorities, and to see whether those on several
// hosts could begin sooner on others that overlap them.
func (p *Planner) mustPlanAnew(r *round) bool {
	snap := r.snap
	if p.making != 0 || p.last == nil || snap.Index < p.last.Index || snap.Now < p.last.Now || snap.Policy != p.last.Policy {
		return true
	}
	if !sameBudgets(p.last, snap) {
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
	at, ok := p.due.next()
	return ok && now.Sub(at) > slack
}

// planAnew makes the plan from what runs. Promises are put where they were; then they
// are brought forward, one at a time in order of priority; then all other jobs are
// planned around them, in order (manual §5.4). When somebody is late, promises slip
// behind them, in the order of their instants: a minute's delay of one job must not
// cost another its place.
func (p *Planner) planAnew(r *round, slips bool) {
	before, first := p.remember(), p.making
	p.reset(r)
	p.profile.Packed = r.snap.Policy.Scheduling.Packed
	r.told, r.places = r.told[:0], nil
	for _, job := range r.jobs.active {
		if job.Alloc != nil {
			p.moveIn(r, p.tenantOf(r, job))
		}
	}
	p.ground.block(p.profile)
	all := make([]*entry, 0, len(r.jobs.pending))
	for _, job := range r.jobs.pending {
		if e := p.admitted(r, job); e != nil {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *entry) int { return a.rank.compare(&b.rank) })
	p.keepPromises(r, all, before, slips)
	p.giveRoom(r, first)
	for moved := true; moved; { // what one leaves may be what one before it waits for
		moved = false
		for _, e := range all {
			moved = e.firm && p.bringForward(r, e) || moved
		}
	}
	p.planRest(r, all, before)
	if len(all) > 0 {
		p.hindmost = all[len(all)-1].rank
	}
	p.ordered, r.decision.Stats.Anew = r.snap.Now, true
}

// keepPromises books promises, the earliest first.
func (p *Planner) keepPromises(r *round, all []*entry, before map[cluster.JobID]memory, slips bool) {
	type promised struct {
		*entry
		plan *cluster.Promise
	}
	var list []promised
	for _, e := range all {
		e.class.jobs = append(e.class.jobs, e)
		old, plan := before[e.job.ID], e.job.Promise
		if e.broken = old.broken; e.broken != "" {
			continue
		}
		if old.firm && old.spec == e.job.Spec { // perhaps not yet agreed
			plan = old.plan
		}
		if plan != nil {
			list = append(list, promised{e, plan})
		}
	}
	slices.SortStableFunc(list, func(a, b promised) int { return cmp.Compare(a.plan.At, b.plan.At) })
	for _, x := range list {
		p.keep(r, x.entry, x.plan, slips)
	}
}

// memory is what was planned for a job, in words that outlive the plan.
type memory struct {
	spec   *cluster.JobSpec
	plan   *cluster.Promise // nil when it had no place
	firm   bool
	broken string
}

// remember notes what is planned.
func (p *Planner) remember() map[cluster.JobID]memory {
	notes := make(map[cluster.JobID]memory, len(p.entries))
	for id, e := range p.entries {
		switch {
		case e.at > 0:
			notes[id] = memory{e.job.Spec, p.promiseOf(e), e.firm, e.broken}
		case e.broken != "":
			notes[id] = memory{broken: e.broken}
		}
	}
	return notes
}

// reset forgets the plan.
func (p *Planner) reset(r *round) {
	g := newGround(r.snap)
	*p = Planner{
		ground: g, profile: backfill.New(r.snap.Now, g.hosts, g.levels, g.counts),
		classes: map[classKey]*class{}, bySpec: map[*cluster.JobSpec]*class{},
		entries: make(map[cluster.JobID]*entry, len(r.jobs.pending)), tenants: map[cluster.JobID]*tenant{},
		barred: map[*entry]bool{}, limited: map[*entry]bool{}, left: map[int]bool{}, on: make([][]*entry, len(g.hosts)), last: p.last, made: p.made, active: p.active, pending: p.pending, prio: p.prio,
		taken: make([]topology.Set, len(g.hosts)), spare: make([]backfill.Amount, len(g.hosts)),
	}
	for h := range p.spare {
		p.spare[h] = p.profile.All(h)
	}
}

// tenantOf describes what a job that runs has, until it is expected to leave.
func (p *Planner) tenantOf(r *round, job *cluster.Job) *tenant {
	t := &tenant{job: job, alloc: job.Alloc, until: p.ground.end(r.snap.Now, job)}
	for i := range job.Alloc.Nodes {
		a := &job.Alloc.Nodes[i]
		h, ok := p.ground.places[a.Node]
		if !ok {
			continue
		}
		amount := backfill.Amount{CPUs: a.CPUs, Slots: 1, Memory: a.Memory, GPUs: p.lanes(h, a.GPUs)}
		if job.Spec.Request.Exclusive {
			amount.Slots = backfill.Slots
		}
		t.hosts, t.amounts = append(t.hosts, h), append(t.amounts, amount)
		for _, twin := range p.ground.twins[a.Node] {
			t.hosts, t.amounts = append(t.hosts, twin.host), append(t.amounts, amount)
		}
	}
	for _, l := range job.Spec.Request.Licences {
		if row, known := p.ground.licences[l.Name]; known {
			t.licences = append(t.licences, backfill.Licence{Row: row, Count: l.Count})
		}
	}
	return t
}

// moveIn books what a tenant has.
func (p *Planner) moveIn(r *round, t *tenant) {
	p.hold(t, r.snap.Now, t.until)
	p.tenants[t.job.ID] = t
	p.leaving.add(t)
	for i, h := range t.hosts {
		p.spare[h].Take(&t.amounts[i])
	}
	p.tookGPUs(t, topology.Set.Or)
}

// moveOut is the inverse of moveIn.
func (p *Planner) moveOut(r *round, t *tenant) {
	p.leave(t, r.snap.Now, t.until)
	p.leaving.remove(t)
	delete(p.tenants, t.job.ID)
	for i, h := range t.hosts {
		p.spare[h].Give(&t.amounts[i])
	}
	p.tookGPUs(t, topology.Set.Minus)
}

// tookGPUs adds the GPUs of a tenant to those that jobs have, or takes them away.
func (p *Planner) tookGPUs(t *tenant, change func(topology.Set, topology.Set) topology.Set) {
	for i := range t.alloc.Nodes {
		a := &t.alloc.Nodes[i]
		if h, ok := p.ground.places[a.Node]; ok {
			p.taken[h] = change(p.taken[h], topology.SetOf(a.GPUs))
		}
	}
}

// hold books what a tenant has for an interval.
func (p *Planner) hold(t *tenant, from, to cluster.Instant) {
	for i, h := range t.hosts {
		p.profile.Take(h, from, to, &t.amounts[i])
	}
	for _, l := range t.licences {
		p.profile.TakeExtra(l.Row, from, to, l.Count)
	}
}

// leave is the inverse of hold.
func (p *Planner) leave(t *tenant, from, to cluster.Instant) {
	for i, h := range t.hosts {
		p.profile.Give(h, from, to, &t.amounts[i])
	}
	for _, l := range t.licences {
		p.profile.GiveExtra(l.Row, from, to, l.Count)
	}
}

// lanes counts GPUs of a host by pool.
func (p *Planner) lanes(h int, gpus []int32) backfill.Lanes {
	var lanes backfill.Lanes
	pools := p.ground.hosts[h].Pools
	for i := range min(len(pools), backfill.MaxPools) {
		n := int32(0)
		for _, g := range gpus {
			if pools[i].GPUs.Has(g) {
				n++
			}
		}
		lanes |= backfill.Lane(i, n)
	}
	return lanes
}

// admitted makes the entry of a pending job; nil when it is held, or not eligible.
func (p *Planner) admitted(r *round, job *cluster.Job) *entry {
	if job.Hold != cluster.NotHeld {
		return nil // the state said why when it was held
	}
	e := &entry{job: job, place: -1}
	p.entries[job.ID] = e
	r.tell(e)
	if v, barred := p.bar(r, job); barred {
		e.why = v
		p.barred[e] = true
		return nil
	}
	e.class = p.classOf(r, job)
	if e.class.never.reason != cluster.ReasonNone {
		e.why = e.class.never
		p.barred[e] = true
		return nil
	}
	if r.admit(job) {
		p.limited[e] = true
	}
	p.enrol(r, e)
	return e
}

// keep books a promise where it was: on the hosts that are kept for it, else on others
// at the same time. When there are none it is broken; if it slips, it is put off as
// little as can be.
func (p *Planner) keep(r *round, e *entry, promise *cluster.Promise, slips bool) {
	at := max(promise.At, r.snap.Now)
	s, choice, ok := p.kept(e, promise, at)
	if !ok {
		s, choice, ok = p.find(e.class, at, at+1, (*backfill.Profile).Search)
	}
	if !ok || at.Sub(promise.At) > slack {
		e.broken = p.blame(r, promise)
	}
	if !ok && slips {
		s, choice, ok = p.find(e.class, at, cluster.Never, (*backfill.Profile).Search)
	}
	if ok {
		e.firm = true
		p.book(e, s, choice)
	}
}

// kept is the start that a promise names, when its hosts still have what it needs.
func (p *Planner) kept(e *entry, promise *cluster.Promise, at cluster.Instant) (backfill.Start, int, bool) {
	var hosts []int
	var gpus []int32
	for _, share := range promise.Hosts {
		h, ok := p.hostOf(e.job.Spec, share.Node)
		if !ok {
			return backfill.Start{}, 0, false
		}
		hosts, gpus = append(hosts, h), append(gpus, share.GPUs)
	}
	for i := range e.class.options {
		o := &e.class.options[i]
		if o.part.Name != promise.Partition {
			continue
		}
		w, choice := o.any, 2*i
		if w == nil {
			w, choice = o.near, 2*i+1
		}
		shares, ok := p.profile.Shares(w, promise.Kind, at, hosts, gpus)
		if ok && p.profile.Fits(w, at, shares) {
			return backfill.Start{At: at, Kind: promise.Kind, Shares: shares}, choice, true
		}
	}
	return backfill.Start{}, 0, false
}

// hostOf is where a job finds a node: at its own place, or at its twin's within the
// reservation of the job.
func (p *Planner) hostOf(spec *cluster.JobSpec, node string) (int, bool) {
	if spec.Reservation == "" {
		h, ok := p.ground.places[node]
		return h, ok
	}
	for _, t := range p.ground.twins[node] {
		if t.reservation.Name == spec.Reservation {
			return t.host, true
		}
	}
	return 0, false
}

// promiseOf is the promise that a firm entry amounts to.
func (p *Planner) promiseOf(e *entry) *cluster.Promise {
	promise := &cluster.Promise{At: e.at, Partition: e.class.options[e.choice/2].part.Name, Kind: e.kind}
	for _, s := range e.shares {
		promise.Hosts = append(promise.Hosts, cluster.NodeShare{Node: p.ground.hosts[s.Host].Name, GPUs: s.GPUs})
	}
	return promise
}

// blame is why a promise cannot be kept.
func (p *Planner) blame(r *round, promise *cluster.Promise) string {
	for _, share := range promise.Hosts {
		n, known := p.ground.nodes[share.Node]
		switch {
		case !known:
			return "node " + share.Node + " is gone"
		case n.Drain:
			return "node " + share.Node + " was drained"
		case n.Fault != "":
			return "node " + share.Node + " has a fault"
		case !n.Usable():
			return "node " + share.Node + " is lost"
		}
	}
	if r.snap.Now.Sub(promise.At) > slack {
		return late
	}
	for _, job := range r.jobs.active {
		if limit := job.Limit(); limit > 0 && limit.Add(p.ground.grace) <= r.snap.Now {
			return overstays(job)
		}
	}
	return "an administrator changed the nodes, a reservation, the policy or the job"
}

// late is the cause that nobody but the controllers gives.
const late = "no controller was there to start jobs in time"

// overstays is the cause that a job gives by not leaving.
func overstays(job *cluster.Job) string {
	return "job " + job.Ref().String() + " has not left its nodes in time"
}

// planRest plans all that is no promise, in order.
func (p *Planner) planRest(r *round, all []*entry, before map[cluster.JobID]memory) {
	rules := &r.snap.Policy.Scheduling
	last := cluster.Never
	if rules.Window > 0 {
		last = r.snap.Now.Add(rules.Window)
	}
	planned := int32(0)
	shut := map[string]bool{} // partitions in which nobody may pass the one that waits
	for _, e := range all {
		if e.firm || e.at > 0 { // or has got the room that was made for it
			continue
		}
		limit := last
		if rules.Depth != cluster.Unlimited && planned >= rules.Depth {
			limit = min(limit, r.snap.Now+1)
		}
		if shut[e.job.Spec.Partition] {
			continue
		}
		if p.planOne(r, e, before[e.job.ID], limit); e.at == 0 || e.at > r.snap.Now {
			planned++
			shut[e.job.Spec.Partition] = rules.Depth == 0
		}
	}
}

// planOne books the earliest start before an instant, if there is one. A job that
// cannot start sooner than it was going to stays where it was.
func (p *Planner) planOne(r *round, e *entry, old memory, before cluster.Instant) {
	now := r.snap.Now
	p.turns++
	e.turn = p.turns
	if old.plan != nil && old.plan.At > now && old.plan.At < before && old.spec == e.job.Spec {
		if s, choice, ok := p.find(e.class, now, old.plan.At, (*backfill.Profile).Earliest); ok {
			p.book(e, s, choice)
			return
		}
		if s, choice, ok := p.kept(e, old.plan, old.plan.At); ok {
			p.book(e, s, choice)
			return
		}
	}
	if s, choice, ok := p.find(e.class, now, before, (*backfill.Profile).Earliest); ok {
		p.book(e, s, choice)
	}
}

// book enters a start into the plan.
func (p *Planner) book(e *entry, s backfill.Start, choice int) {
	p.profile.Book(e.class.want(choice), s.At, s.Shares)
	p.enter(e, s, choice)
}

// enter notes where a start was booked.
func (p *Planner) enter(e *entry, s backfill.Start, choice int) {
	w := e.class.want(choice)
	e.at, e.until, e.choice, e.kind, e.shares = s.At, s.At.Add(w.Lasts), choice, s.Kind, s.Shares
	for _, share := range s.Shares {
		p.on[share.Host] = append(p.on[share.Host], e)
	}
	e.class.latest = max(e.class.latest, e.at)
	p.due.add(e)
	p.count(e, 1)
}

// count keeps count of what a pass that follows an event does not wholly see to.
func (p *Planner) count(e *entry, by int) {
	if !e.firm {
		p.soft += by
	}
	if p.isWide(e) {
		p.wide += by
	}
}

// isWide reports whether a start is on several hosts, or might be: such a one could
// begin sooner on other hosts that overlap its own.
func (p *Planner) isWide(e *entry) bool {
	return len(e.shares) > 1 || e.class.want(e.choice).Need.PerNode < 0
}

// rebook books another start in place of the one that an entry has.
func (p *Planner) rebook(e *entry, to backfill.Start, choice int) {
	p.profile.Move(e.class.want(e.choice), e.at, e.shares, e.class.want(choice), to)
	p.strike(e)
	p.enter(e, to, choice)
}

// unbook takes a start out of the plan.
func (p *Planner) unbook(e *entry) {
	if e.at == 0 {
		return
	}
	p.profile.Unbook(e.class.want(e.choice), e.at, e.shares)
	p.strike(e)
}

// strike is the inverse of enter.
func (p *Planner) strike(e *entry) {
	for _, share := range e.shares {
		list := p.on[share.Host]
		i := slices.Index(list, e)
		list[i] = list[len(list)-1]
		p.on[share.Host] = list[:len(list)-1]
	}
	p.due.remove(e)
	if !e.starts {
		p.count(e, -1)
	}
	e.at = 0
}
