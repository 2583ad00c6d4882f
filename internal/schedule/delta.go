package schedule

import (
	"maps"
	"slices"

	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
)

// applyDelta brings the plan up to a snapshot by what changed since the last one.
// Planned starts are brought forward into what became free, one at a time in order
// of priority, and new jobs are planned around all others. It reports false when the
// plan cannot be kept because somebody stays longer than was thought.
func (p *Planner) applyDelta(r *pass) bool {
	s := &incrementalPass{Planner: p, r: r, hosts: p.left}
	p.left = map[int]bool{}
	p.profile.Advance(r.snap.Now)
	r.namesakes = p.namesakes
	active, pending := changes(p.active, r.jobs.active), changes(p.pending, r.jobs.pending)
	for _, c := range active {
		r.namesakes.ran(c.old, c.now)
		s.happened(c.old)
		s.happened(c.now)
	}
	if r.namesakes != nil { // before anybody asks
		for _, c := range pending {
			r.namesakes.waited(c.old, c.now)
		}
	}
	for _, c := range pending { // before others leave what is for those ahead
		if c.old != nil && c.now != nil {
			s.waiting(c.old, c.now)
		}
	}
	for _, c := range active {
		if c.now == nil {
			s.left(c.old)
		}
	}
	for _, c := range pending {
		if c.old == nil || c.now == nil {
			s.waiting(c.old, c.now)
		}
	}
	for _, c := range active {
		if c.now != nil {
			s.runs(c.old, c.now)
		}
	}
	if s.overdue(); s.late {
		return false
	}
	s.unplanSingletons()
	s.recheckIneligible()
	s.openings()
	s.run()
	return true
}

// change is a job that is not the same in two snapshots; nil in the one that it is not in.
type change struct{ old, now *cluster.Job }

// changes is what differs between two lists by id, by id. O(jobs).
func changes(old, now []*cluster.Job) (list []change) {
	for len(old) > 0 || len(now) > 0 {
		if len(old) > 0 && len(now) > 0 && old[0] == now[0] {
			old, now = old[1:], now[1:]
			continue
		}
		switch {
		case len(now) == 0 || len(old) > 0 && old[0].ID < now[0].ID:
			list = append(list, change{old: old[0]})
			old = old[1:]
		case len(old) == 0 || now[0].ID < old[0].ID:
			list = append(list, change{now: now[0]})
			now = now[1:]
		default:
			list = append(list, change{old[0], now[0]})
			old, now = old[1:], now[1:]
		}
	}
	return list
}

// incrementalPass offers what became free, and places to new jobs, in order of priority.
type incrementalPass struct {
	*Planner
	r     *pass
	hosts map[int]bool // on which something became free
	late  bool         // somebody who has hosts is in the way of the plan
	moves int
	looks int // at places that were not better

	touched []int           // hosts of which something became free since classes were last offered it
	heard   []*requestClass // room used again
}

// happened notes that something became of a job.
func (s *incrementalPass) happened(job *cluster.Job) {
	s.barred.happened(job)
	s.singles.happened(job)
}

// left gives back what a job had that has no nodes any more.
func (s *incrementalPass) left(job *cluster.Job) {
	t := s.tenants[job.ID]
	if t == nil {
		return
	}
	for _, h := range t.hosts {
		s.hosts[h] = true
	}
	s.release(s.r, t)
}

// runs books a job that has nodes now, or will leave them at another time than was thought.
func (s *incrementalPass) runs(old, job *cluster.Job) {
	if old == nil || s.tenants[job.ID] == nil || old.Attempt != job.Attempt {
		if old != nil {
			s.left(old)
		}
		if job.Alloc != nil {
			t := s.newRunningJob(s.r, job)
			if s.late = s.late || s.overlapsPlan(t, s.r.snap.Now, t.until); !s.late {
				s.occupy(s.r, t)
			}
		}
		return
	}
	t := s.tenants[job.ID]
	t.job = job
	s.moveEnd(t, s.ground.end(s.r.snap.Now, job))
}

func (s *incrementalPass) moveEnd(t *runningJob, end cluster.Instant) {
	switch {
	case end < t.until:
		s.leave(t, end, t.until)
		for _, h := range t.hosts {
			s.hosts[h] = true
		}
	case end > t.until:
		if s.late = s.late || s.overlapsPlan(t, t.until, end); s.late {
			return
		}
		s.hold(t, t.until, end)
	default:
		return
	}
	s.leaving.Remove(t.place)
	t.until = end
	s.leaving.Push(t)
}

// overdue puts off the ends of jobs that should have left their nodes by now.
func (s *incrementalPass) overdue() {
	for {
		if s.leaving.Len() == 0 || s.late {
			return
		}
		t := s.leaving.Items()[0]
		if t.until > s.r.snap.Now {
			return
		}
		s.moveEnd(t, s.ground.end(s.r.snap.Now, t.job))
	}
}

// overlapsPlan reports whether a tenant has a host or a licence for longer than was thought and
// another job is planned to have it then.
func (p *Planner) overlapsPlan(t *runningJob, from, to cluster.Instant) bool {
	for i, h := range t.hosts {
		if !p.profile.Has(h, from, to, &t.amounts[i]) {
			return true
		}
	}
	return slices.ContainsFunc(t.licences, func(l backfill.Licence) bool {
		return !p.profile.HasExtraUntil(l.Row, from, to, l.Count)
	})
}

// waiting notes a change among the jobs that wait.
func (s *incrementalPass) waiting(old, job *cluster.Job) {
	if old == nil || job == nil || !sameWish(old, job) {
		s.happened(old)
		s.happened(job)
	}
	var e *entry
	if old != nil {
		e = s.entries[old.ID]
	}
	if e != nil && job != nil && sameWish(old, job) {
		e.job = job
		return
	}
	var promise *cluster.Promise
	changed := ""
	if e != nil {
		if e.promised && e.at > 0 && job != nil {
			promise, changed = s.promiseOf(e), s.ground.changed(e.job.Spec, job.Spec)
		}
		s.drop(e)
	}
	if job == nil {
		return
	}
	n := s.admitted(s.r, job)
	if s.entries[job.ID] != nil {
		s.entries[job.ID].changed = changed
	}
	if n != nil {
		n.class.insert(n)
		s.keepChanged(n, promise)
		s.moveCandidate(n)
	}
}

// keepChanged leaves a job that asks for something else the start that it was promised, if
// what it asks for now fits there: nobody comes between, and who asks for less loses nothing.
func (s *incrementalPass) keepChanged(e *entry, promise *cluster.Promise) {
	if promise == nil || e.changed == demoted || !s.mayPromise(s.r, e.job) {
		return
	}
	if start, choice, ok := s.near(s.r, e, promise, &priorPlan{}); ok {
		s.keepAt(s.r, e, promise, start, choice)
		s.offerClass(e.class)
	}
}

// sameWish reports whether nothing of a waiting job changed that a plan rests on.
func sameWish(a, b *cluster.Job) bool {
	return a.Spec == b.Spec && a.Hold == b.Hold && a.Eligible == b.Eligible && a.Attempt == b.Attempt
}

// drop forgets a job that waits no more, or waits for something else. What it was planned on is
// for others, unless it runs there.
func (s *incrementalPass) drop(e *entry) {
	if job, found := s.r.jobs.find(e.job.ID); e.at > 0 && !(e.starts && found && job.State.Holds()) {
		for _, share := range e.shares {
			s.hosts[share.Host] = true
		}
	}
	s.unbook(e)
	s.releasePromise(s.r, e)
	if e.class != nil && e.kept == nil {
		s.retire(e)
	}
	e.gone = true
	s.barred.remove(e)
	s.unlimit(s.r, e)
	s.singles.remove(e)
	delete(s.entries, e.job.ID)
}

// retire takes a job out of its class, and forgets a class that has no more.
func (s *incrementalPass) retire(e *entry) {
	c := e.class
	if c.remove(e); len(c.jobs) > 0 {
		return
	}
	for i := range c.options {
		s.unequip(&c.options[i])
	}
	delete(s.classes, s.ground.classKeyOf(c.spec))
	for _, spec := range c.specs {
		delete(s.bySpec, spec)
	}
}

// recheckIneligible looks once more at jobs that were not eligible, where that may have changed.
func (s *incrementalPass) recheckIneligible() {
	list := s.barred.dueForRecheck(s.r.snap.Now, func(b jobName) *entry { return s.entries[s.r.firstOf(b)] })
	for list.Len() > 0 {
		e := list.Pop()
		line := e.kept.limitGroup
		v, barred := s.bar(s.r, e.job)
		if !barred && e.class != nil { // it had a place until it was due
			v, barred = s.promisedAway(s.r, e.job)
		}
		switch {
		case barred && line != nil:
			line.hear(s.r, v)
			continue
		case barred:
			if v != e.why {
				s.r.markChanged(e)
			}
			s.barred.remove(e)
			s.barred.add(s.r, e, v)
			continue
		}
		s.barred.remove(e)
		delete(s.entries, e.job.ID)
		e.gone = true
		if n := s.admitted(s.r, e.job); n != nil {
			n.class.insert(n)
			s.moveCandidate(n)
		}
		if line != nil && line.size > 0 {
			list.Push(line.first())
		}
	}
}

// run offers until nobody can start sooner, or enough was moved.
func (s *incrementalPass) run() {
	s.touched = slices.Sorted(maps.Keys(s.hosts))
	for _, h := range s.touched {
		for _, e := range s.on[h] {
			s.moveCandidate(e)
		}
	}
	s.offerClasses()
	for s.offers.Len() > 0 {
		if s.moves >= maxMoves || s.looks >= maxLooks {
			s.r.decision.More = true
			return
		}
		o := s.offers.Pop()
		if o.at == 0 {
			o.queued = false
		} else if o.class.offered == o.entry {
			o.class.offered = nil
		}
		if o.gone || o.kept != nil { // or barred since it was queued
			if o.at > 0 { // another of the class may have what it was offered
				s.offerClass(o.class)
			}
			continue
		}
		s.take(o)
	}
}

// take looks for a place for the one whose turn it is.
func (s *incrementalPass) take(o moveCandidate) {
	e, from := o.entry, o.shares
	switch {
	case e.at == 0:
		s.planNew(e)
		return
	case o.at == 0: // something became free on one of its hosts
		if s.looks++; !s.slide(e) && !s.regroup(e) {
			return
		}
	case !s.advance(e, o.at):
		s.offerClass(e.class)
		return
	}
	s.moves++
	for _, share := range from {
		s.touched = append(s.touched, share.Host)
		for _, other := range s.on[share.Host] {
			if e.rank.compare(&other.rank) < 0 || s.startsNow(other) || s.canRegroup(other) {
				s.moveCandidate(other)
			}
		}
	}
	s.offerClasses()
	if o.at > 0 {
		s.offerClass(e.class)
	}
}

// startsNow reports whether a job could start at this moment on its own hosts. What
// one leaves is for those behind it, who come later in the sweep; those ahead of it
// had their turn and are asked once more only if they could start at once.
func (s *incrementalPass) startsNow(e *entry) bool {
	if e.at <= s.r.snap.Now || e.starts {
		return false
	}
	for i := range e.shares {
		if free := s.profile.Row(e.shares[i].Host).Free(s.r.snap.Now); !free.Covers(&e.shares[i].Amount) {
			return false
		}
	}
	at, ok := s.profile.Slide(e.class.want(e.choice), e.at, e.shares)
	return ok && at == s.r.snap.Now
}

// planNew plans a job that has no place.
func (s *incrementalPass) planNew(e *entry) {
	s.moves++
	last := cluster.Never
	if w := s.r.snap.Policy.Scheduling.Window; w > 0 {
		last = s.r.snap.Now.Add(w)
	}
	if s.outOfOrder = s.outOfOrder || e != s.alone && e.rank.compare(&s.lowestPlanned) < 0; !s.outOfOrder {
		s.lowestPlanned = e.rank
	}
	others := s.soft
	s.planOne(s.r, e, priorPlan{}, last)
	s.r.markChanged(e)
	s.r.passedOver = s.r.passedOver || others > 0 && s.wouldAsk(s.r, e)
}

// advance moves a planned start to where its class was seen to have room before, at an
// instant, or by regrouping.
func (s *incrementalPass) advance(e *entry, before cluster.Instant) bool {
	if e.at <= before || e.starts {
		return false
	}
	start, choice, ok := s.better(e, (*backfill.Profile).Earliest)
	if ok && start.At <= s.r.snap.Now || !s.regroup(e) {
		if ok {
			s.shift(s.r, e, start, choice)
		}
		return ok
	}
	return true
}

// slide moves a planned start forward on its own hosts. Others are for the search of
// its class, and those together with its own for regroup.
func (s *incrementalPass) slide(e *entry) bool {
	if e.at <= s.r.snap.Now || e.starts {
		return false
	}
	w := e.class.want(e.choice)
	at, ok := s.profile.Slide(w, e.at, e.shares)
	if ok {
		s.shift(s.r, e, backfill.Start{At: at, Kind: e.kind, Shares: e.shares}, e.choice)
	}
	return ok
}

// bringForward moves a planned start to the earliest instant at which there is room,
// its own place counted as free. It reports whether that is earlier.
func (p *Planner) bringForward(r *pass, e *entry) bool {
	if e.at <= r.snap.Now {
		return false
	}
	w := e.class.want(e.choice)
	p.profile.Lift(w, e.at, e.shares)
	start, choice, ok := p.better(e, (*backfill.Profile).Search)
	p.profile.Lower(w, e.at, e.shares)
	if ok {
		p.shift(r, e, start, choice)
	}
	return ok
}

// shift moves a planned start.
func (p *Planner) shift(r *pass, e *entry, to backfill.Start, choice int) {
	p.rebook(e, to, choice)
	r.markChanged(e)
	r.decision.Stats.Moved++
}
