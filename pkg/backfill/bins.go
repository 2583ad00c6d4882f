package backfill

import "github.com/greylag/greylag/pkg/cluster"

// The index says in which time bins enough hosts can serve a want, and which hosts these are.

// onHosts searches for hosts, without regard to licences.
func (p *Profile) onHosts(w *Want, k *kindWant, from, before cluster.Instant) (Start, bool) {
	if k.layer < 0 {
		copy(p.set, w.hosts)
		p.avoid = nil
		return p.among(w, k, p.set, p.set, from, before)
	}
	l, c := p.index.layers[k.layer], p.index
	least := p.leastHosts(w, k)
	sure := 0 // up to here enough hosts can serve the want throughout each bin
	for b := c.binOf(from); ; b++ {
		t := max(from, c.begin(b))
		if t >= before {
			return Start{}, false
		}
		if b == maxBins-1 {
			return p.within(w, k, b, b, t, before)
		}
		last := c.binOf(t.Add(w.Lasts)) - 1 // the last bin that a start in b fills
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

// leastHosts returns how many hosts must be able to serve the want at one time.
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

// within searches for starts in bin b, which fill the bins up to last.
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

// left returns the hosts that can serve the want in each of the bins that a start in bin b fills;
// false when they are too few. The result of the last search is used again while nothing was freed:
// it can only shrink. A search of the whole rest of a bin may remove useless hosts from that set; a
// search of a part gets a copy.
func (p *Profile) left(w *Want, k *kindWant, b, last int, in opening) (HostSet, bool) {
	known := &k.cachedHosts
	whole := !p.uncached && in.before == p.index.end(b)
	if !p.uncached && known.set != nil && known.bin == b && known.from <= in.from && known.era == p.era && known.freed == len(p.freed) {
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
		known.bin, known.from, known.era, known.freed = -1, in.from, p.era, len(p.freed)
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
		known.bin = b
	}
	return set, true
}
