package backfill

import "github.com/greylag/greylag/pkg/cluster"

// A booking can block an earlier start of its own job: on some of its hosts together with others.
// No search finds that start while it counts all bookings as taken.

// startable holds the hosts that can serve a want's share now.
type startable struct {
	now          cluster.Instant
	version      uint64
	hosts        []candidate
	inFewDomains int32 // how many of them lie in few enough domains, where that matters
}

// SelfOverlapping reports whether a booking for the want can block an earlier start of its own job:
// it is on several hosts, or may use GPUs of several pools of one host, or licences.
func (w *Want) SelfOverlapping() bool {
	return w.Need.Nodes != 1 || w.Need.PerNode < 0 || len(w.licences) > 0 || w.MultiPool()
}

// MultiPool reports whether a host may serve the want from one of its pools or from another.
func (w *Want) MultiPool() bool {
	forms := map[int]int{} // by model
	for i := range w.kinds {
		for m := range w.kinds[i].demands {
			d := &w.kinds[i].demands[m]
			if forms[m] += len(d.forms); d.spill || forms[m] > 1 {
				return true
			}
		}
	}
	return false
}

// EachStartable calls f for each want that can start on a host now for its whole duration, as far
// as the host is concerned. O(groups × steps + wants that are called for).
func (p *Profile) EachStartable(h int, can func(*Want)) {
	r, m := &p.rows[h], p.models[h]
	for _, s := range p.groupList {
		w := s.wants[0]
		if !w.hosts.Has(h) {
			continue
		}
		until := p.now
		for k := range w.kinds {
			d := &w.kinds[k].demands[m]
			i := 0
			for i < len(r.steps) && d.fits(&r.steps[i].free) {
				i++
			}
			if i > 0 {
				until = max(until, r.end(i-1))
			}
		}
		for _, w := range s.wants {
			if p.now.Add(w.Lasts) > until {
				break
			}
			can(w)
		}
	}
}

// Regroup returns a start now of a want that is booked for later on its own hosts, counting that
// booking as free. The booking does not change. O(shares × steps) when too few of the hosts are
// free; else O(bins × hosts/64 + startable hosts × steps) once until something is taken or freed.
func (p *Profile) Regroup(w *Want, at cluster.Instant, own []HostShare) (Start, bool) {
	if at <= p.now || !p.licensedWithoutOwn(w, at) {
		return Start{}, false
	}
	for i := range w.kinds {
		if k := &w.kinds[i]; p.regroup(w, k, at, own) {
			return p.choose(w, k, p.now), true
		}
	}
	return Start{}, false
}

// licensedWithoutOwn reports whether all licences are free from now on, the want's own included.
func (p *Profile) licensedWithoutOwn(w *Want, at cluster.Instant) bool {
	for i := range w.licences {
		x := &w.licences[i]
		if free := p.licences[x.row].without(p.now, at, p.now.Add(w.Lasts), &x.count); !free.Covers(&x.count) {
			return false
		}
	}
	return true
}

// regroup gathers the hosts that can serve the want now, its own booking counted as free, and
// reports whether they suffice.
func (p *Profile) regroup(w *Want, k *kindWant, at cluster.Instant, own []HostShare) bool {
	least, end := int(p.leastHosts(w, k)), p.now.Add(w.Lasts)
	mine, most := p.own[:0], p.countStartable(k)
	for i := range own {
		s := &own[i]
		d := &k.demands[p.models[s.Host]]
		p.Rows++
		if w.hosts.Has(s.Host) && d.fits(&p.rows[s.Host].steps[0].free) {
			if free := p.rows[s.Host].without(p.now, at, end, &s.Amount); d.fits(&free) {
				mine = append(mine, p.candidate(w, k, s.Host, free))
			}
		}
		if len(mine)+len(own)-i-1+most < least {
			return false // too many of its own are not free
		}
	}
	p.own = mine
	if len(mine) == 0 && len(w.licences) == 0 {
		return false // searches find others alone
	}
	others := p.startableNow(w, k)
	more := len(mine) - inBoth(mine, others)
	if len(others)+more < least || w.Need.PerNode >= 0 && (more == 0 && len(w.licences) == 0 || w.domains != nil && int(k.startable.inFewDomains)+more < least) {
		return false // its own hosts are expensive to check, and help too little
	}
	p.found = merged(p.found[:0], mine, others)
	return len(p.found) >= least && p.enough(w)
}

// inBoth returns how many hosts are in both of two lists by host. O(both).
func inBoth(a, b []candidate) (n int) {
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i].host < b[j].host:
			i++
		case b[j].host < a[i].host:
			j++
		default:
			n, i, j = n+1, i+1, j+1
		}
	}
	return n
}

// merged appends two lists by host to one; of a host in both, the candidate of the first. O(both).
func merged(list, a, b []candidate) []candidate {
	for len(a) > 0 && len(b) > 0 {
		if b[0].host < a[0].host {
			list, b = append(list, b[0]), b[1:]
			continue
		}
		if b[0].host == a[0].host {
			b = b[1:]
		}
		list, a = append(list, a[0]), a[1:]
	}
	return append(append(list, a...), b...)
}

// countStartable returns how many hosts can serve a want's share now; when that is unknown, how
// many can in this bin, which are at least as many. O(1).
func (p *Profile) countStartable(k *kindWant) int {
	if k.startable.now == p.now && k.startable.version == p.version {
		return len(k.startable.hosts)
	}
	if k.layer < 0 {
		return len(p.hosts)
	}
	_, once := p.index.layers[k.layer].counts(p.index.binOf(p.now))
	return int(once)
}

// startableNow returns the hosts that can serve a want's share now, with all bookings taken.
func (p *Profile) startableNow(w *Want, k *kindWant) []candidate {
	if k.startable.now == p.now && k.startable.version == p.version {
		return k.startable.hosts
	}
	copy(p.set, w.hosts)
	if k.layer >= 0 {
		l, b := p.index.layers[k.layer], p.index.binOf(p.now)
		for i, word := range l.once(b) {
			p.set[i] &= word
		}
		for last := p.index.binOf(p.now.Add(w.Lasts)) - 1; b < last; {
			b++
			l.keep(p.set, b)
		}
	}
	p.found = p.found[:0]
	p.gather(w, k, p.now, len(p.hosts), func(word int) uint64 { return p.set[word] })
	k.startable = startable{now: p.now, version: p.version, hosts: append(k.startable.hosts[:0], p.found...)}
	if w.domains != nil && w.Need.PerNode >= 0 {
		k.startable.inFewDomains = w.mostHosts(p.counts(w))
	}
	return k.startable.hosts
}
