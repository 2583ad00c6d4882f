package schedule

import (
	"fmt"

	"github.com/greylag/greylag/pkg/cluster"
)

// A limit holds for what is promised as for what runs: what runs, what is promised and
// what is about to start or to be promised stay within it together. So a promise is
// never broken by a limit that was there when it was made, however far it is brought
// forward, and whoever starts meanwhile.

// promisedUsage is what limits have to leave for promises. It is made when first asked for in
// a pass. O(promises × scopes of a job).
type promisedUsage map[cluster.Scope]*pledge

// pledge is what is promised in one scope.
type pledge struct {
	jobs  map[*entry]bool
	sums  []promised
	first *entry // the one with the lowest id; nil when that is to be found again
}

// promised is how much of a bound is.
type promised struct {
	cluster.Bound
	amount int64
}

// pledge makes a promise of a planned start.
func (p *Planner) pledge(r *pass, e *entry) {
	e.promised = true
	p.reserve(r, e)
}

// reserve has limits leave what they would for a promise.
func (p *Planner) reserve(r *pass, e *entry) {
	if p.pledged[e] {
		return
	}
	p.pledged[e] = true
	if r.pledges != nil {
		r.limits.tree.Scopes(e.job.Spec, func(s cluster.Scope) { r.pledges.in(s).count(r.limits, e, 1) })
	}
}

// releasePromise takes a promise back whose job starts, or waits no more.
func (p *Planner) releasePromise(r *pass, e *entry) {
	if !p.pledged[e] {
		return
	}
	delete(p.pledged, e)
	if r.pledges != nil {
		r.limits.tree.Scopes(e.job.Spec, func(s cluster.Scope) { r.pledges.in(s).count(r.limits, e, -1) })
	}
}

func (all promisedUsage) in(s cluster.Scope) *pledge {
	if all[s] == nil {
		all[s] = &pledge{jobs: map[*entry]bool{}}
	}
	return all[s]
}

// count adds a promise, or takes one away.
func (g *pledge) count(l *limits, e *entry, by int64) {
	if g.first = nil; by > 0 {
		g.jobs[e] = true
	} else {
		delete(g.jobs, e)
	}
	for i := range g.sums {
		_, asked := l.against(&g.sums[i].Bound, e.job.Spec)
		g.sums[i].amount += by * asked
	}
}

// of is how much of a bound is promised. O(1), the first time O(promises in its scope).
func (g *pledge) of(l *limits, b *cluster.Bound) int64 {
	for i := range g.sums {
		if g.sums[i].Kind == b.Kind && g.sums[i].Resource == b.Resource {
			return g.sums[i].amount
		}
	}
	sum := promised{Bound: *b}
	for e := range g.jobs {
		_, asked := l.against(b, e.job.Spec)
		sum.amount += asked
	}
	g.sums = append(g.sums, sum)
	return sum.amount
}

// lowest is the promised job with the lowest id.
func (g *pledge) lowest() *entry {
	if g.first == nil {
		for e := range g.jobs {
			if g.first == nil || e.job.ID < g.first.job.ID {
				g.first = e
			}
		}
	}
	return g.first
}

// promisedAway is the limit under which a job that is not promised may neither start now
// nor be promised a start, because others are promised what it leaves. O(its limits).
func (p *Planner) promisedAway(r *pass, job *cluster.Job) (verdict, bool) {
	l := r.limits
	if l.bounds == nil || len(p.pledged) == 0 {
		return verdict{}, false
	}
	if r.pledges == nil {
		r.pledges = promisedUsage{}
		for e := range p.pledged {
			l.tree.Scopes(e.job.Spec, func(s cluster.Scope) { r.pledges.in(s).count(l, e, 1) })
		}
	}
	bounds := l.of(job.Spec)
	for i := range bounds {
		b := &bounds[i]
		used, asked := l.against(b, job.Spec)
		g := r.pledges[b.Scope]
		if used < 0 || asked <= 0 || g == nil || len(g.jobs) == 0 {
			continue
		}
		if kept := g.of(l, b); kept > 0 && used+kept+asked > b.Value {
			return verdict{b.Reason(), fmt.Sprintf("%s; %s promised to %s", b.Exceeded(used, asked), b.Amount(kept), g.who())}, true
		}
	}
	return verdict{}, false
}

// who names the promised jobs.
func (g *pledge) who() string {
	name := "job " + g.lowest().job.Ref().String()
	if n := len(g.jobs) - 1; n > 0 {
		return name + " and " + count(int32(n), "other")
	}
	return name
}

// mayPromise reports whether the limits leave room for one more promise.
func (p *Planner) mayPromise(r *pass, job *cluster.Job) bool {
	if _, limited := r.limits.bar(job); limited {
		return false
	}
	_, away := p.promisedAway(r, job)
	return !away
}
