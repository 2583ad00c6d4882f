package schedule

import (
	"container/heap"

	"github.com/greylag/greylag/pkg/cluster"
)

// offer queues an entry to be looked at.
func (p *Planner) offer(e *entry) {
	if !e.queued && !e.gone {
		e.queued = true
		heap.Push(&p.offers, offer{e, 0})
	}
}

// offer is an entry that may start sooner than planned: because something is free
// next to its own place, or because its class can start at an instant.
type offer struct {
	*entry
	at cluster.Instant
}

// offers is a heap by rank.
type offers []offer

// Len counts.
func (o offers) Len() int { return len(o) }

// Less orders.
func (o offers) Less(i, j int) bool {
	if c := o[i].rank.compare(&o[j].rank); c != 0 {
		return c < 0
	}
	return o[i].at < o[j].at // one entry, offered twice: in an order that chance has no part in
}

// Swap swaps.
func (o offers) Swap(i, j int) { o[i], o[j] = o[j], o[i] }

// Push adds an offer at the end.
func (o *offers) Push(x any) { *o = append(*o, x.(offer)) }

// Pop removes the last.
func (o *offers) Pop() any {
	last := len(*o) - 1
	x := (*o)[last]
	*o = (*o)[:last]
	return x
}
