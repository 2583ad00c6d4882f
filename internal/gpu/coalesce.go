package gpu

import "time"

// coalesceFor is how long equal events are counted before they are sent again.
const coalesceFor = 10 * time.Second

// mostKinds limits the kinds of events that are counted at one time; others are dropped. NVIDIA's list
// has fewer than 200 numbers, and a host 16 GPUs.
const mostKinds = 4096

// Coalescer merges equal events: a program that ends can cause 10,000 a second. The zero value is ready
// for use. It is not safe for concurrent use.
type Coalescer struct {
	kinds map[RawEvent]*counted
}

// counted is a kind of event that was sent.
type counted struct {
	sent  time.Time
	since uint32 // events since then
}

// Add takes an event and reports whether to send it now. The first of a kind is.
func (c *Coalescer) Add(now time.Time, e RawEvent) bool {
	if c.kinds == nil {
		c.kinds = map[RawEvent]*counted{}
	}
	if k := c.kinds[e]; k != nil {
		k.since++
		return false
	}
	if len(c.kinds) >= mostKinds {
		return false
	}
	c.kinds[e] = &counted{sent: now}
	return true
}

// AddEvent is Add for an event of the kernel log. Equal ones that follow are not sent.
func (c *Coalescer) AddEvent(now time.Time, e Event) bool {
	for range c.Due(now) { // forgets kinds that did not come again
		continue
	}
	return c.Add(now, RawEvent{UUID: e.Bus, Instance: e.Instance, Type: uint64(e.Action)<<16 | uint64(e.Recovery), Data: uint64(e.XID)})
}

// Due returns the events that were counted long enough, each kind once with its count.
func (c *Coalescer) Due(now time.Time) (due []RawEvent) {
	for e, k := range c.kinds {
		if now.Sub(k.sent) < coalesceFor {
			continue
		}
		if k.since == 0 {
			delete(c.kinds, e)
			continue
		}
		e := e
		e.Count = k.since
		due = append(due, e)
		*k = counted{sent: now}
	}
	return due
}
