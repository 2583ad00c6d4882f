package backfill

import "github.com/greylag/greylag/pkg/cluster"

// The index says in which stretches of time enough hosts have room, and which they are.

// onHosts looks for hosts alone.
func (p *Profile) onHosts(w *Want, k *kindWant, from, before cluster.Instant) (Start, bool) {
	if k.layer < 0 {
		copy(p.set, w.hosts)
		p.avoid = nil
		return p.among(w, k, p.set, p.set, from, before)
	}
	l, c := p.index.layers[k.layer], p.index
	least := p.leastHosts(w, k)
	sure := 0 // up to here enough hosts have room throughout each stretch
	for b := c.stretch(from); ; b++ {
		t := max(from, c.begin(b))
		if t >= before {
			return Start{}, false
		}
		if b == stretches-1 {
			return p.within(w, k, b, b, t, before)
		}
		last := c.stretch(t.Add(w.Lasts)) - 1 // the last stretch that a start in b fills
		bad := -1
		for i := last; i > max(b, sure); i-- {
			if n, _ := l.counts(i); n < least {
				bad = i
				break
			}
		}
		if sure = max(sure, last); bad >= 0 {
			b, sure = bad-1, max(bad, last)
			continue
		}
		if _, once := l.counts(b); once < least {
			continue
		}
		if s, ok := p.within(w, k, b, last, t, min(before, c.end(b))); ok {
			return s, true
		}
	}
}

// leastHosts is how many hosts must have room at the same time.
func (p *Profile) leastHosts(w *Want, k *kindWant) int32 {
	if w.Need.PerNode >= 0 {
		return w.Need.Nodes
	}
	most := int32(1)
	for i := range p.all {
		most = max(most, p.all[i].all.GPUs.Sum(k.demands[i].mask))
	}
	return max(w.Need.Nodes, (w.Need.Total+most-1)/most)
}

// within looks at starts in stretch b, which fill the stretches up to last.
func (p *Profile) within(w *Want, k *kindWant, b, last int, from, before cluster.Instant) (Start, bool) {
	l := p.index.layers[k.layer]
	set, ok := p.left(w, k, b, last, opening{from, before})
	if !ok {
		return Start{}, false
	}
	p.avoid = nil
	if wider := p.index.widest(l); wider != nil {
		p.avoid = wider.once(b)
	}
	copy(p.sure, set)
	l.keep(p.sure, b)
	return p.among(w, k, set, p.sure, from, before)
}

// left is the hosts that have room in each of the stretches that a start in stretch b
// would fill, false when they are too few. Those of the last search for the same serve
// again while nothing was given: there can only be fewer. So a search of a whole rest
// of a stretch may take out of the set what it finds of no use; one of a part is given
// a copy.
func (p *Profile) left(w *Want, k *kindWant, b, last int, in opening) (HostSet, bool) {
	known := &k.known
	whole := !p.forgetful && in.before == p.index.end(b)
	if !p.forgetful && known.set != nil && known.stretch == b && known.from <= in.from && known.era == p.era && known.gives == len(p.gives) {
		if !whole {
			copy(p.set, known.set)
			return p.set, true
		}
		known.from = in.from
		return known.set, true
	}
	l, set := p.index.layers[k.layer], p.set
	if whole {
		if known.set == nil {
			known.set = make(HostSet, len(p.set))
		}
		set = known.set
		known.stretch, known.from, known.era, known.gives = -1, in.from, p.era, len(p.gives)
	}
	once, least := l.once(b), int(p.leastHosts(w, k))
	for i := range set {
		set[i] = w.hosts[i] & once[i]
	}
	for i := b + 1; i <= last; i++ {
		if l.keep(set, i); i%8 == 0 && set.Len() < least {
			return nil, false
		}
	}
	if whole {
		known.stretch = b
	}
	return set, true
}
