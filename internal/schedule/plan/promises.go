package plan

import (
	"fmt"

	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/internal/schedule/words"
	"github.com/greylag/greylag/pkg/cluster"
)

// promises holds the promised jobs, and what limits have to leave for them. What runs, what is promised,
// and what is about to start or to be promised stay within a limit together. So no promise is broken by a
// limit that existed when it was made, however far it moves forward.
type promises struct {
	jobs   map[*Entry]bool
	limits *eligible.Limits
	usage  map[cluster.LimitScope]*promisedUsage // nil before the first use in a pass
}

// promisedUsage is what is promised in one scope.
type promisedUsage struct {
	jobs  map[*Entry]bool
	sums  []promisedAmount
	first *Entry // with the lowest job ID; nil when unknown
}

// promisedAmount is how much of a bound is promised.
type promisedAmount struct {
	cluster.EffectiveLimit
	amount int64
}

func newPromises() promises { return promises{jobs: map[*Entry]bool{}} }

// begin begins a pass with other limits.
func (t *promises) begin(l *eligible.Limits) { t.limits, t.usage = l, nil }

// reset removes all promises.
func (t *promises) reset() { t.jobs, t.usage = map[*Entry]bool{}, nil }

// make turns a planned start into a promise.
func (t *promises) make(e *Entry) {
	e.Promised = true
	t.reserve(e)
}

// reserve makes limits leave for a job what they leave for a promised one.
func (t *promises) reserve(e *Entry) {
	if t.jobs[e] {
		return
	}
	t.jobs[e] = true
	if t.usage != nil {
		t.count(e, 1)
	}
}

// release drops the promise of a job that started or left the queue.
func (t *promises) release(e *Entry) {
	if !t.jobs[e] {
		return
	}
	delete(t.jobs, e)
	if t.usage != nil {
		t.count(e, -1)
	}
}

// count adds a job to the usage of its scopes, or removes it.
func (t *promises) count(e *Entry, by int64) {
	t.limits.Scopes(e.Job.Spec, func(s cluster.LimitScope) {
		if t.usage[s] == nil {
			t.usage[s] = &promisedUsage{jobs: map[*Entry]bool{}}
		}
		t.usage[s].count(t.limits, e, by)
	})
}

func (u *promisedUsage) count(l *eligible.Limits, e *Entry, by int64) {
	if u.first = nil; by > 0 {
		u.jobs[e] = true
	} else {
		delete(u.jobs, e)
	}
	for i := range u.sums {
		_, asked := l.Against(&u.sums[i].EffectiveLimit, e.Job.Spec)
		u.sums[i].amount += by * asked
	}
}

// of returns how much of a bound is promised. O(1), the first time O(promises in its scope).
func (u *promisedUsage) of(l *eligible.Limits, b *cluster.EffectiveLimit) int64 {
	for i := range u.sums {
		if u.sums[i].Kind == b.Kind && u.sums[i].Resource == b.Resource {
			return u.sums[i].amount
		}
	}
	sum := promisedAmount{EffectiveLimit: *b}
	for e := range u.jobs {
		_, asked := l.Against(b, e.Job.Spec)
		sum.amount += asked
	}
	u.sums = append(u.sums, sum)
	return sum.amount
}

// names names the promised jobs: the first, and how many others.
func (u *promisedUsage) names() string {
	if u.first == nil {
		for e := range u.jobs {
			if u.first == nil || e.Job.ID < u.first.Job.ID {
				u.first = e
			}
		}
	}
	name := "job " + u.first.Job.Ref().String()
	if n := len(u.jobs) - 1; n > 0 {
		return name + " and " + words.Count(int32(n), "other")
	}
	return name
}

// exceeded returns the limit under which a job without a promise may neither start now nor be promised a
// start, since what the limit leaves is promised to others. O(its limits).
func (t *promises) exceeded(job *cluster.Job) (eligible.Obstacle, bool) {
	if !t.limits.Limited() || len(t.jobs) == 0 {
		return eligible.Obstacle{}, false
	}
	if t.usage == nil {
		t.usage = map[cluster.LimitScope]*promisedUsage{}
		for e := range t.jobs {
			t.count(e, 1)
		}
	}
	bounds := t.limits.Bounds(job.Spec)
	for i := range bounds {
		b := &bounds[i]
		used, asked := t.limits.Against(b, job.Spec)
		u := t.usage[b.Scope]
		if used < 0 || asked <= 0 || u == nil || len(u.jobs) == 0 {
			continue
		}
		if kept := u.of(t.limits, b); kept > 0 && used+kept+asked > b.Value {
			detail := fmt.Sprintf("%s; %s promised to %s", b.Exceeded(used, asked), b.Amount(kept), u.names())
			return eligible.Obstacle{Reason: b.Reason(), Detail: detail}, true
		}
	}
	return eligible.Obstacle{}, false
}

// allow reports whether the limits leave enough for one more promise.
func (t *promises) allow(job *cluster.Job) bool {
	if _, limited := t.limits.First(job); limited {
		return false
	}
	_, exceeded := t.exceeded(job)
	return !exceeded
}
