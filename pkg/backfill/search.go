package backfill

import (
	"math/bits"

	"github.com/greylag/greylag/pkg/cluster"
)

// Earliest returns the first start in [from, before) at which the whole want fits for its duration,
// with its shares by host; of equally early ones that of the type named first. It skips the bins of
// the index in which too few hosts could serve the need, and reads only the rows of the hosts that
// are left after intersecting the bins that the want fills. O(bins × hosts/64 + hosts left ×
// steps).
func (p *Profile) Earliest(w *Want, from, before cluster.Instant) (Start, bool) {
	var best Start
	found := false
	from = max(from, p.now)
	for i := range w.kinds {
		if s, ok := p.ofKind(w, &w.kinds[i], from, before); ok {
			best, found, before = s, true, s.At
		}
	}
	return best, found
}

// Search is Earliest without the search cache, for use while a booking is hidden.
func (p *Profile) Search(w *Want, from, before cluster.Instant) (Start, bool) {
	p.uncached = true
	defer func() { p.uncached = false }()
	return p.Earliest(w, from, before)
}

func (p *Profile) fresh(w *Want, k *kindWant, from, before cluster.Instant) (Start, bool) {
	for at := from; at < before; {
		s, ok := p.onHosts(w, k, at, before)
		if !ok {
			break
		}
		if at = p.licensed(w, s.At); at == s.At {
			return s, true
		}
	}
	return Start{}, false
}

// ofKind searches for one type: in the windows of the cache first, then where the last search of
// the want ended.
func (p *Profile) ofKind(w *Want, k *kindWant, from, before cluster.Instant) (Start, bool) {
	if p.update(w, k); p.uncached || from > p.now {
		return p.fresh(w, k, from, before)
	}
	if len(k.windows) > 0 {
		if s, ok := p.inWindows(w, k, min(before, k.after)); ok {
			return s, true
		}
	}
	at := max(k.after, p.now)
	if at >= before {
		return Start{}, false
	}
	s, ok := p.fresh(w, k, at, before)
	if k.after = before; ok {
		k.after = s.At
	}
	return s, ok
}

// licensed returns the first instant from at on at which all licences are free.
func (p *Profile) licensed(w *Want, at cluster.Instant) cluster.Instant {
	for i := 0; i < len(w.licences); i++ {
		x := &w.licences[i]
		t, ok := p.licences[x.row].Earliest(at, cluster.Never, w.Lasts, &x.count)
		if !ok {
			return cluster.Never
		}
		if t > at {
			at, i = t, -1
		}
	}
	return at
}

// candidate is a host that can be one of the job's nodes at some instant.
type candidate struct {
	host  int
	free  Amount // for the duration of the job
	gives int32  // GPUs, of a spread want
}

func (p *Profile) candidate(w *Want, k *kindWant, h int, free Amount) candidate {
	c := candidate{host: h, free: free}
	if w.Need.PerNode < 0 {
		c.gives = k.demands[p.models[h]].gives(&free)
	}
	return c
}

// enoughHosts is how many hosts that can start at once are gathered, for each one needed, before
// the best of them are chosen.
const enoughHosts = 24

// among searches the hosts' rows, likely immediate starts first.
func (p *Profile) among(w *Want, k *kindWant, set, sure HostSet, from, before cluster.Instant) (Start, bool) {
	stop := int(w.Need.Nodes)*4 + enoughHosts
	if w.domains != nil || w.required != nil || w.Need.PerNode < 0 {
		stop = len(p.hosts)
	}
	if p.found = p.found[:0]; sure.Len() >= int(w.Need.Nodes) {
		if p.avoid != nil { // small jobs first try hosts that large ones could not use
			p.gather(w, k, from, stop, func(i int) uint64 { return sure[i] &^ p.avoid[i] })
			p.gather(w, k, from, stop, func(i int) uint64 { return sure[i] & p.avoid[i] })
		} else {
			p.gather(w, k, from, stop, func(i int) uint64 { return sure[i] })
		}
	}
	if len(p.found) > 0 && p.enough(w) {
		return p.choose(w, k, from), true
	}
	switch {
	case w.Need.PerNode < 0:
		return p.spreadLater(w, k, set, from, before)
	case w.Need.Nodes == 1 && w.domains == nil && w.required == nil:
		return p.single(w, k, set, from, before)
	}
	return p.later(w, k, set, from, before)
}

// single returns the first start on one host: on the host that it fits best.
func (p *Profile) single(w *Want, k *kindWant, set HostSet, from, before cluster.Instant) (Start, bool) {
	best, end := before, before // end is after the best so far, so that equal ones are found
	p.found = p.found[:0]
	for i := range set {
		for rest := set[i]; rest != 0; rest &= rest - 1 {
			h := i*64 + bits.TrailingZeros64(rest)
			p.Rows++
			t, ok := k.demands[p.models[h]].earliest(&p.rows[h], opening{from, end}, w)
			if !ok {
				if end == before {
					set[i] &^= rest & -rest // nor can it serve the next want of the group
				}
				continue
			}
			if t < best {
				best, end, p.found = t, t+1, p.found[:0]
			}
			if len(p.found) < enoughHosts {
				p.found = append(p.found, candidate{host: h})
			}
		}
	}
	if len(p.found) == 0 {
		return Start{}, false
	}
	for i := range p.found {
		p.found[i].free = p.rows[p.found[i].host].window(best, best.Add(w.Lasts))
	}
	return p.choose(w, k, best), true
}

// gather adds the hosts, given 64 at a time, on which the want can start at an instant.
func (p *Profile) gather(w *Want, k *kindWant, at cluster.Instant, stop int, hosts func(word int) uint64) {
	to := at.Add(w.Lasts)
	for i := 0; i < len(p.set) && len(p.found) < stop; i++ {
		for rest := hosts(i); rest != 0; rest &= rest - 1 {
			h := i*64 + bits.TrailingZeros64(rest)
			p.Rows++
			free := p.rows[h].window(at, to)
			if k.demands[p.models[h]].fits(&free) {
				p.found = append(p.found, p.candidate(w, k, h, free))
			}
		}
	}
}
