package schedule

import (
	"container/heap"

	"github.com/greylag/greylag/pkg/cluster"
)

// plan is step 3: it serves job after job in order. One that can start now without
// taking anything from those before it does; one that cannot gets the earliest
// start that the profile allows, and from then on nobody behind it can take that.
func (r *round) plan() {
	for len(r.queue) > 0 {
		if len(r.decision.Plan.Starts) >= maxStarts {
			r.decision.More = true
			return
		}
		c := r.queue[0]
		if r.serve(c) {
			c.next++
		} else {
			c.blocked = true
			r.retire(c)
			continue
		}
		if c.next == len(c.jobs) {
			r.retire(c)
		} else {
			heap.Fix(&r.queue, 0)
		}
	}
}

// retire takes the first class from the queue; its jobs that were not served wait.
func (r *round) retire(c *class) {
	heap.Pop(&r.queue)
	r.served = append(r.served, c)
}

// serve decides about the next job of a class; false when the pass has nothing to
// say about it or the rest of the class but c.rest.
func (r *round) serve(c *class) bool {
	if !c.looked && !r.look(c) {
		return false
	}
	job, profile := c.jobs[c.next], r.ground.profile
	if !c.blocked {
		if where, ok := profile.StartsNow(&c.want); ok {
			profile.Take(r.snap.Now, r.snap.Now.Add(c.want.Lasts), where.Nodes)
			r.start(job, where)
			return true
		}
		c.blocked = true
		c.why = r.shortage(c)
	}
	if len(r.planned) >= Depth || profile.Exhausted() {
		return false
	}
	at, where, ok := profile.Earliest(&c.want)
	if !ok {
		return false
	}
	profile.Take(at, at.Add(c.want.Lasts), where.Nodes)
	r.planned = append(r.planned, booking{job, at, where})
	r.wait(job, c.why, shown(r.snap.Now, at))
	return true
}

// shown is the planned start that users see: none when it rests on the guess for
// jobs without a limit, and full seconds.
func shown(now, at cluster.Instant) cluster.Instant {
	if at.Sub(now) > forever/2 {
		return 0
	}
	const second = 1e9
	return (at + second - 1) / second * second
}

// look is the first look at a class: whether its jobs could ever start.
func (r *round) look(c *class) bool {
	c.looked = true
	c.rest = verdict{reason: cluster.ReasonPriority}
	if r.decision.Searched >= maxSearches {
		return false
	}
	r.decision.Searched++
	c.want = r.ground.want(c.spec, c.part)
	if r.ground.profile.FitsEmpty(&c.want) {
		return true
	}
	c.rest = r.impossible(c)
	return false
}
