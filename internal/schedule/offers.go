package schedule

import "github.com/greylag/greylag/pkg/cluster"

// offer queues an entry to be looked at.
func (p *Planner) offer(e *entry) {
	if !e.queued && !e.gone {
		e.queued = true
		p.offers.push(offer{e, 0})
	}
}

// offer is an entry that may start sooner than planned: because something is free
// next to its own place, or because its class can start at an instant.
type offer struct {
	*entry
	at cluster.Instant
}

// offers is a heap by rank. It is written out, since a pass may offer something to all
// who wait: container/heap would have each of them allocated.
type offers []offer

func (o offers) less(i, j int) bool {
	if c := o[i].rank.compare(&o[j].rank); c != 0 {
		return c < 0
	}
	return o[i].at < o[j].at // one entry, offered twice: in an order that chance has no part in
}

func (o *offers) push(x offer) {
	*o = append(*o, x)
	h := *o
	for i := len(h) - 1; i > 0 && h.less(i, (i-1)/2); i = (i - 1) / 2 {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
	}
}

// pop removes the first in order.
func (o *offers) pop() offer {
	h, last := *o, len(*o)-1
	x := h[0]
	h[0], h[last] = h[last], offer{}
	*o = h[:last]
	o.down(0)
	return x
}

// settle puts all into order, after ranks have changed.
func (o *offers) settle() {
	for i := len(*o)/2 - 1; i >= 0; i-- {
		o.down(i)
	}
}

func (o *offers) down(i int) {
	for h := *o; ; {
		least := i
		for c := 2*i + 1; c < min(2*i+3, len(h)); c++ {
			if h.less(c, least) {
				least = c
			}
		}
		if least == i {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}
