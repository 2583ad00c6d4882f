package oracle

import (
	"slices"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// conservative reserves a start for every job when it is submitted, and moves them earlier, one at
// a time in order of arrival, whenever a job ends.
//
// Invariant: a reserved start never moves later, since a job is taken out of the profile only to be
// put back where it was or earlier.
type conservative struct {
	*machine
	waiting []int // in order of arrival; some have started already
	starts  []cluster.Instant
	gone    int  // of waiting, that have started
	moved   bool // something may fit earlier than it is planned
}

func (c *conservative) submitted(job int) {
	at, _ := c.earliest(job, cluster.Never)
	c.take(job, at)
	c.starts = append(c.starts, at)
	c.waiting = append(c.waiting, job)
	c.out[job].Promise = time.Duration(at)
	c.at(start, at, job)
}

// ended makes one pass, no fixpoint. It is skipped if nothing was freed since a pass that moved no
// job: submissions and time only take capacity away.
func (c *conservative) ended(job int) {
	if c.release(job) {
		c.moved = true
	}
	if !c.moved {
		return
	}
	c.moved = false
	if 2*c.gone > len(c.waiting) {
		c.waiting = slices.DeleteFunc(c.waiting, func(j int) bool { return c.started[j] })
		c.gone = 0
	}
	for _, j := range c.waiting {
		old := c.starts[j]
		if old <= c.now || !c.any(j, old) {
			continue
		}
		c.give(j, old)
		at, ok := c.earliest(j, old)
		if !ok {
			at = old
		}
		c.take(j, at)
		if c.starts[j] = at; at != old {
			c.moved = true
			c.at(start, at, j)
		}
	}
}

// any reports whether there is an instant before another at which as many processors are free as a
// job needs. If not, the job cannot move, whatever it frees itself, since its own slot begins at
// that other instant.
func (c *conservative) any(job int, before cluster.Instant) bool {
	a := c.amount(job)
	_, ok := c.profile.Earliest(c.now, before, 1, &a)
	return ok
}

func (c *conservative) due(job int, at cluster.Instant) bool {
	if c.starts[job] != at {
		return false
	}
	c.gone++
	return true
}
