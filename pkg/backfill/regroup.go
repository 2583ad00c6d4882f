package backfill

import (
	"cmp"
	"slices"

	"github.com/greylag/greylag/pkg/cluster"
)

// What is booked for later can be in its own way: a start on several hosts could be had
// sooner on some of them together with others, but that its own booking stands there. No
// search that takes all bookings as they are finds that.

// present is the hosts that can start a want's share at this moment, by host.
type present struct {
	now     cluster.Instant
	version uint64
	hosts   []candidate
	room    int32 // how many of them lie in few enough domains, where that matters
}

// SelfOverlapping reports whether a booking for the want can be in its own way: it is on several
// hosts, or may have GPUs of several pools of one, of whatever type, or licences.
func (w *Want) SelfOverlapping() bool {
	return w.Need.Nodes != 1 || w.Need.PerNode < 0 || len(w.extra) > 0 || w.MultiPool()
}

// MultiPool reports whether a host may give the want GPUs of one of its pools or of another, of
// whatever type.
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

// EachStartable calls for each want of which a host may be able to give a share from this moment
// on for as long as it lasts. O(wants that take something else × steps + wants called for).
func (p *Profile) EachStartable(h int, can func(*Want)) {
	r, m := &p.rows[h], p.models[h]
	for _, s := range p.list {
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

// Regroup is the start of a want at this moment when what is booked for it from a later
// instant on, on hosts of its own, is counted as free. The booking stays what it is.
// O(shares × steps) when too few of the hosts are free; else what those cost that are not
// its own, O(stretches × hosts/64 + hosts that can start × steps), once until something is
// taken or given.
func (p *Profile) Regroup(w *Want, at cluster.Instant, own []Share) (Start, bool) {
	if at <= p.now || !p.licensedAnew(w, at) {
		return Start{}, false
	}
	for i := range w.kinds {
		if k := &w.kinds[i]; p.regroup(w, k, at, own) {
			return p.choose(w, k, p.now), true
		}
	}
	return Start{}, false
}

// licensedAnew reports whether all licences are free from now on but for the want's own.
func (p *Profile) licensedAnew(w *Want, at cluster.Instant) bool {
	for i := range w.extra {
		x := &w.extra[i]
		if free := p.extras[x.row].without(p.now, at, p.now.Add(w.Lasts), &x.count); !free.Covers(&x.count) {
			return false
		}
	}
	return true
}

// regroup gathers the hosts that can start the want now, its own booking taken out, and
// reports whether they are enough.
func (p *Profile) regroup(w *Want, k *kindWant, at cluster.Instant, own []Share) bool {
	least, end := int(p.leastHosts(w, k)), p.now.Add(w.Lasts)
	mine, most := p.mine[:0], p.canNow(k)
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
	p.mine = mine
	if len(mine) == 0 && len(w.extra) == 0 {
		return false // others alone are what every search looks at
	}
	others, more := p.present(w, k), len(mine)
	for i := range mine {
		if _, is := slices.BinarySearchFunc(others, mine[i].host, byPlace); is {
			more--
		}
	}
	if len(others)+more < least || w.Need.PerNode >= 0 && (more == 0 && len(w.extra) == 0 || w.domains != nil && int(k.present.room)+more < least) {
		return false // it costs what is its own, where it helps too little
	}
	p.found = append(p.found[:0], mine...)
	for i := range others {
		if _, is := slices.BinarySearchFunc(mine, others[i].host, byPlace); !is {
			p.found = append(p.found, others[i])
		}
	}
	slices.SortFunc(p.found, func(a, b candidate) int { return cmp.Compare(a.host, b.host) })
	return len(p.found) >= least && p.enough(w)
}

func byPlace(c candidate, host int) int { return cmp.Compare(c.host, host) }

// canNow is how many hosts can start a want's share at this moment, or in this stretch, which
// are at least as many, when they have not been looked for. O(1).
func (p *Profile) canNow(k *kindWant) int {
	if k.present.now == p.now && k.present.version == p.version {
		return len(k.present.hosts)
	}
	if k.layer < 0 {
		return len(p.hosts)
	}
	_, once := p.index.layers[k.layer].counts(p.index.stretch(p.now))
	return int(once)
}

// present is the hosts that can start a want's share now, all bookings as they are.
func (p *Profile) present(w *Want, k *kindWant) []candidate {
	if k.present.now == p.now && k.present.version == p.version {
		return k.present.hosts
	}
	copy(p.set, w.hosts)
	if k.layer >= 0 {
		l, b := p.index.layers[k.layer], p.index.stretch(p.now)
		for i, word := range l.once(b) {
			p.set[i] &= word
		}
		for last := p.index.stretch(p.now.Add(w.Lasts)) - 1; b < last; {
			b++
			l.keep(p.set, b)
		}
	}
	p.found = p.found[:0]
	p.gather(w, k, p.now, len(p.hosts), func(word int) uint64 { return p.set[word] })
	k.present = present{now: p.now, version: p.version, hosts: append(k.present.hosts[:0], p.found...)}
	if w.domains != nil && w.Need.PerNode >= 0 {
		k.present.room = w.roomiest(p.counts(w))
	}
	return k.present.hosts
}
