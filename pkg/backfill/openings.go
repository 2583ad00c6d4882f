package backfill

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/greylag/greylag/pkg/cluster"
)

// A want that cannot start at once starts at the first instant at which one of its hosts becomes
// able to serve its share, and enough others are.

// edge is an instant from which a host can serve its share, or can no longer.
type edge struct {
	at   cluster.Instant
	host int32
	by   int8
}

// later returns the first start after from at which enough hosts can serve their share. It visits
// the instants at which the set of such hosts changes.
func (p *Profile) later(w *Want, k *kindWant, set HostSet, from, before cluster.Instant) (Start, bool) {
	turns := p.edges[:0]
	for i := range set {
		for rest := set[i]; rest != 0; rest &= rest - 1 {
			h := i*64 + bits.TrailingZeros64(rest)
			n := len(turns)
			if turns = p.openings(turns, h, w, k, opening{from, before}); len(turns) == n {
				set[i] &^= rest & -rest // nor can it serve the next want of the group
			}
		}
	}
	p.edges = turns
	if s, ok := p.firstIfAnywhere(w, k, turns, from); ok {
		return s, true
	}
	slices.SortFunc(turns, func(a, b edge) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by), cmp.Compare(a.host, b.host))
	})
	count, missing := int32(0), w.required.Len() // of the required hosts
	var domains map[int32]int32
	if w.domains != nil {
		domains = map[int32]int32{}
	}
	for i, t := range turns {
		if domains != nil {
			if d := w.domains[t.host]; d >= 0 {
				domains[d] += int32(t.by)
			}
		}
		if w.required != nil && w.required.Has(int(t.host)) {
			missing -= int(t.by)
		}
		count += int32(t.by)
		if t.by < 0 || missing > 0 || count < w.Need.Nodes || i+1 < len(turns) && turns[i+1].at == t.at && turns[i+1].by > 0 {
			continue
		}
		if domains == nil || w.mostHosts(domains) >= w.Need.Nodes {
			return p.startAt(w, k, turns[:i+1], t.at), true
		}
	}
	return Start{}, false
}

// firstIfAnywhere returns the start at the first instant, when enough hosts can serve their share
// then and the want may lie anywhere: nothing needs sorting.
func (p *Profile) firstIfAnywhere(w *Want, k *kindWant, turns []edge, from cluster.Instant) (Start, bool) {
	open := int32(0)
	for i := range turns {
		if turns[i].at == from {
			open++
		}
	}
	if w.domains != nil || w.required != nil || open < w.Need.Nodes {
		return Start{}, false
	}
	p.found = p.found[:0]
	for i := range turns {
		if turns[i].at == from {
			h := int(turns[i].host)
			p.found = append(p.found, p.candidate(w, k, h, p.rows[h].window(from, from.Add(w.Lasts))))
		}
	}
	return p.choose(w, k, from), true
}

// openings appends when the want can start on one host within an interval.
func (p *Profile) openings(turns []edge, h int, w *Want, k *kindWant, in opening) []edge {
	d := &k.demands[p.models[h]]
	p.Rows++
	for in.from < in.before {
		o, ok := d.opening(&p.rows[h], in, w)
		if !ok {
			break
		}
		turns = append(turns, edge{o.from, int32(h), 1})
		if o.before < in.before {
			turns = append(turns, edge{o.before, int32(h), -1})
		}
		in.from = o.before
	}
	return turns
}

// opening returns the first interval within another in which the demand can start.
func (d *demand) opening(r *Row, in opening, w *Want) (opening, bool) {
	var first opening
	found := false
	for i := range d.forms {
		if o, ok := r.opening(in.from, in.before, w.Lasts, &d.forms[i]); ok && (!found || o.from < first.from) {
			first, found = o, true
		}
	}
	if !d.spill || found && first.from == in.from {
		return first, found
	}
	if found {
		in.before = first.from
	}
	for i := r.at(in.from); i < len(r.steps); i++ { // several pools: try each step
		t := max(in.from, r.steps[i].from)
		if t >= in.before {
			break
		}
		if free := r.window(t, t.Add(w.Lasts)); d.fits(&free) {
			before := min(in.before, r.end(i))
			if next := r.end(r.at(t.Add(w.Lasts) - 1)); next < cluster.Never { // until then the window meets no other step
				before = min(before, next.Add(-w.Lasts)+1)
			}
			return opening{t, before}, true
		}
	}
	return first, found
}

// earliest returns when the first opening begins.
func (d *demand) earliest(r *Row, in opening, w *Want) (cluster.Instant, bool) {
	if len(d.forms) == 1 && !d.spill {
		return r.Earliest(in.from, in.before, w.Lasts, &d.forms[0])
	}
	o, ok := d.opening(r, in, w)
	return o.from, ok
}

// startAt chooses among the hosts that can serve their share at an instant, by the edges up to it.
func (p *Profile) startAt(w *Want, k *kindWant, turns []edge, at cluster.Instant) Start {
	p.found = p.found[:0]
	open := NewHostSet(len(p.hosts))
	for _, t := range turns {
		if t.by > 0 {
			open.Add(int(t.host))
		} else {
			open.remove(int(t.host))
		}
	}
	to := at.Add(w.Lasts)
	for h := range open.All() {
		p.found = append(p.found, p.candidate(w, k, h, p.rows[h].window(at, to)))
	}
	return p.choose(w, k, at)
}
