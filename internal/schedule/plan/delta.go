package plan

import (
	"slices"

	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/pkg/cluster"
)

// delta applies what changed since the last snapshot to the schedule.
type delta struct {
	*Pass
	late bool // a running job has something for longer than expected, and it is planned for another
}

// applyDelta updates the schedule by what changed since the last snapshot, and checks the jobs whose
// eligibility may have changed. It returns false when the plan cannot be kept, since a running job has
// something for longer than expected.
func (p *Pass) applyDelta() bool {
	d := &delta{Pass: p}
	p.bookings.Profile.Advance(p.Snap.Now)
	if d.extendMembers(); d.late {
		return false
	}
	p.Check.Names = p.names
	active, pending := changes(p.jobs.Active, p.Check.Jobs.Active), changes(p.jobs.Pending, p.Check.Jobs.Pending)
	for _, c := range active {
		p.Check.Names.UpdateActive(c.old, c.now)
		d.jobChanged(c.old)
		d.jobChanged(c.now)
	}
	for _, c := range pending { // before the first check of a singleton
		p.Check.Names.UpdatePending(c.old, c.now)
	}
	for _, c := range pending { // before other jobs free what jobs ahead of these may use
		if c.old != nil && c.now != nil {
			d.updatePending(c.old, c.now)
		}
	}
	for _, c := range active {
		if c.now == nil {
			d.removeRunning(c.old)
		}
	}
	for _, c := range pending {
		if c.old == nil || c.now == nil {
			d.updatePending(c.old, c.now)
		}
	}
	for _, c := range active {
		if c.now != nil {
			d.updateRunning(c.old, c.now)
		}
	}
	if d.extendOverdue(); d.late {
		return false
	}
	d.recheckSingletons()
	d.recheckIneligible()
	return true
}

// jobChange is a job that differs between two snapshots; nil in the one without it.
type jobChange struct{ old, now *cluster.Job }

// changes returns the differences of two lists by ID. O(jobs).
func changes(old, now []*cluster.Job) (list []jobChange) {
	for len(old) > 0 || len(now) > 0 {
		if len(old) > 0 && len(now) > 0 && old[0] == now[0] {
			old, now = old[1:], now[1:]
			continue
		}
		switch {
		case len(now) == 0 || len(old) > 0 && old[0].ID < now[0].ID:
			list = append(list, jobChange{old: old[0]})
			old = old[1:]
		case len(old) == 0 || now[0].ID < old[0].ID:
			list = append(list, jobChange{now: now[0]})
			now = now[1:]
		default:
			list = append(list, jobChange{old[0], now[0]})
			old, now = old[1:], now[1:]
		}
	}
	return list
}

// jobChanged records that a job changed, for those that depend on it; nil is no job.
func (d *delta) jobChanged(job *cluster.Job) {
	d.ineligible.jobChanged(job)
	d.singletons.jobChanged(job)
}

// removeRunning frees what a job had that has no allocation any more.
func (d *delta) removeRunning(job *cluster.Job) {
	j := d.running.Job(job.ID)
	if j == nil {
		return
	}
	d.freeRunning(j)
	d.running.remove(d.Snap.Now, j)
}

// freeRunning records that the hosts of a running job become free.
func (d *delta) freeRunning(j *RunningJob) {
	for _, part := range j.Parts() {
		for _, h := range part.Hosts {
			d.freedHosts[h] = true
		}
	}
}

// updateRunning books an active job that has an allocation now, or is expected to end at another time.
func (d *delta) updateRunning(old, job *cluster.Job) {
	if old == nil || d.running.Job(job.ID) == nil || old.Attempt != job.Attempt || old.Members != job.Members || job.Members != nil && old.State != job.State {
		if old != nil {
			d.removeRunning(old)
		}
		if job.Alloc != nil {
			j := d.running.newJob(d.Snap.Now, job)
			for _, part := range j.Parts() {
				d.late = d.late || d.running.overlapsPlan(part, d.Snap.Now, part.Until)
			}
			if !d.late {
				d.running.add(d.Snap.Now, j)
			}
		}
		return
	}
	j := d.running.Job(job.ID)
	j.job = job
	d.setEnd(j, d.res.End(d.Snap.Now, job))
}

// setEnd changes the expected end of a running job.
func (d *delta) setEnd(j *RunningJob, end cluster.Instant) {
	if end < j.Until {
		d.freeRunning(j)
	}
	if end > j.Until {
		if d.late = d.late || d.running.overlapsPlan(j, j.Until, end); d.late {
			return
		}
	}
	d.running.setEnd(j, end)
}

// extendOverdue moves the expected end of jobs that should have left their nodes by now.
func (d *delta) extendOverdue() {
	for d.running.byEnd.Len() > 0 && !d.late {
		j := d.running.byEnd.Items()[0]
		if j.Until > d.Snap.Now {
			return
		}
		d.setEnd(j, d.res.End(d.Snap.Now, j.job))
	}
}

// updatePending applies a change of a pending job.
func (d *delta) updatePending(old, job *cluster.Job) {
	if old == nil || job == nil || !sameRequest(old, job) {
		d.jobChanged(old)
		d.jobChanged(job)
	}
	var e *Entry
	if old != nil {
		e = d.entries[old.ID]
	}
	if e != nil && job != nil && sameRequest(old, job) {
		e.Job = job
		return
	}
	var promise *cluster.Promise
	changed := ""
	if e != nil {
		if e.Promised && e.At > 0 && job != nil {
			promise, changed = d.PromiseOf(e), d.res.changeReason(e.Job.Spec, job.Spec)
		}
		d.remove(e)
	}
	if job == nil {
		return
	}
	n := d.check(job)
	if d.entries[job.ID] != nil {
		d.entries[job.ID].changed = changed
	}
	if n != nil {
		d.rank(n)
		n.Class.insert(n)
		d.keepChanged(n, promise)
		d.queueMove(n)
	}
}

// keepChanged keeps the promised start of a job whose request changed, if the new request fits there. It
// does so before any other job can use the place.
func (d *delta) keepChanged(e *Entry, promise *cluster.Promise) {
	if promise == nil || e.changed == demoted || !d.promises.allow(e.Job) {
		return
	}
	if start, choice, ok := d.near(e, promise, &priorPlan{}); ok {
		d.keepAt(e, promise, start, choice)
		d.queueClass(e.Class)
	}
}

// sameRequest reports whether nothing of a pending job changed that its planned start depends on.
func sameRequest(a, b *cluster.Job) bool {
	return a.Spec == b.Spec && a.Hold == b.Hold && a.Eligible == b.Eligible && a.Attempt == b.Attempt && len(a.Unfenced) == len(b.Unfenced)
}

// recheckSingletons withdraws the planned starts of singletons that may not start any more.
func (d *delta) recheckSingletons() {
	for _, e := range d.singletons.dueForRecheck() {
		o, waits := d.Check.Dependencies(e.Job)
		if !waits {
			continue
		}
		if !e.Starting {
			d.free(e)
		}
		d.withdraw(e, o)
	}
}

// recheckIneligible checks the ineligible jobs again whose obstacle may have changed. When the first of a
// limit group is eligible, it checks the next one.
func (d *delta) recheckIneligible() {
	list := d.ineligible.dueForRecheck(d.Snap.Now, func(name eligible.JobName) *Entry { return d.entries[d.Check.FirstOf(name)] })
	for list.Len() > 0 {
		e := list.Pop()
		group := e.blocked.group
		o, blocked := d.obstacle(e)
		switch {
		case blocked && group != nil:
			group.update(d.Pass, o)
			continue
		case blocked:
			if o != e.Obstacle {
				d.markChanged(e)
			}
			d.ineligible.remove(e)
			d.ineligible.add(d.Pass, e, o)
			continue
		}
		d.ineligible.remove(e)
		delete(d.entries, e.Job.ID)
		e.removed = true
		if n := d.check(e.Job); n != nil {
			d.rank(n)
			n.Class.insert(n)
			d.queueMove(n)
		}
		if group != nil && group.size > 0 {
			list.Push(group.first())
		}
	}
}

// freeAtEdges records the hosts of reservations that began or ended since the last pass: no job started
// or ended then, and a start that is planned there for later may be able to move forward.
func (p *Pass) freeAtEdges() {
	now, last := p.Snap.Now, p.last
	if nextEdge(last.Policy.Scheduling.Reservations, last.Now) > now {
		return
	}
	for name, reserved := range p.res.reserved {
		if !slices.ContainsFunc(reserved, func(r reservedHost) bool { return edge(r.reservation, last.Now) <= now }) {
			continue
		}
		p.freedHosts[p.res.index[name]] = true
		for _, r := range reserved {
			if r.host != noHost {
				p.freedHosts[r.host] = true
			}
		}
	}
}
