package backfill

import (
	"cmp"
	"slices"

	"github.com/greylag/greylag/pkg/cluster"
)

// searchCache holds bounds found by earlier searches for a want. Between two frees, free capacity only
// shrinks: the next search continues where the last one ended, and a start that became possible
// uses the host that something was freed on, within that interval.
//
// Invariant: no start is possible before after, except on a host of one of the windows, within it.
// It holds for the first given freed intervals of the era.
type searchCache struct {
	after      cluster.Instant
	windows    []hostWindow
	era, given int
}

// hostWindow is when a host on which something was freed can serve its share.
type hostWindow struct {
	host int
	opening
	closes cluster.Instant // when it can no longer for the first time, as of the last check
}

// freedInterval is an interval in which a host has more than before; the host -1-n stands for the
// licence in row n.
type freedInterval struct {
	host     int
	from, to cluster.Instant
}

// maxFreed is how many freed intervals are kept for wants that have not checked them yet; beyond it
// all searches start from scratch.
const maxFreed = 1 << 16

// FreedSoFar identifies what was freed so far: it changes whenever something becomes free.
type FreedSoFar struct{ era, intervals int }

// Freed returns what was freed so far. O(1).
func (p *Profile) Freed() FreedSoFar { return FreedSoFar{p.era, len(p.freed)} }

// FreedSince calls a function with each host on which something became free since an earlier moment, and with -1 for
// licences. It returns false if that is no longer known: then something may have become free anywhere.
func (p *Profile) FreedSince(m FreedSoFar, freed func(host int)) bool {
	if m.era != p.era {
		return false
	}
	for i := m.intervals; i < len(p.freed); i++ {
		freed(max(p.freed[i].host, -1))
	}
	return true
}

func (p *Profile) recordFreed(g freedInterval) {
	if len(p.freed) == maxFreed {
		p.freed, p.era = p.freed[:0], p.era+1
	}
	p.freed = append(p.freed, g)
}

// update brings a cache up to date. O(freed intervals since then × steps).
func (p *Profile) update(w *Want, k *kindWant) {
	m := &k.searchCache
	if m.era != p.era {
		*m = searchCache{era: p.era, windows: m.windows[:0]}
	}
	for ; m.given < len(p.freed) && m.after > p.now; m.given++ {
		p.addWindow(w, k, &p.freed[m.given])
	}
	if m.given = len(p.freed); m.after <= p.now {
		m.windows = m.windows[:0]
	}
}

// addWindow adds a window when a host on which something was freed can serve its share now.
func (p *Profile) addWindow(w *Want, k *kindWant, g *freedInterval) {
	if g.host < 0 {
		if w.usesLicence(g) {
			k.after = p.now
		}
		return
	}
	in := opening{max(p.now, g.from.Add(-w.Lasts)+1), min(k.after, g.to)}
	if in.from >= in.before || !w.hosts.Has(g.host) {
		return
	}
	if x := (hostWindow{host: g.host, opening: in}); p.stillOpen(w, k, &x) {
		k.windows = append(k.windows, x)
	}
}

// inWindows returns the first start within the windows before an instant. It drops closed windows,
// and those without a start.
func (p *Profile) inWindows(w *Want, k *kindWant, before cluster.Instant) (Start, bool) {
	open := k.windows[:0]
	for _, g := range k.windows {
		if g.from >= before || p.stillOpen(w, k, &g) {
			open = append(open, g)
		}
	}
	slices.SortFunc(open, hostWindow.compare)
	searched := p.now // there is no start up to here
	for i := 0; i < len(open) && open[i].from < before; i++ {
		g := open[i]
		if from := max(g.from, searched); from < min(g.closes, before) {
			if s, ok := p.fresh(w, k, from, min(g.closes, before)); ok {
				open[i].from = s.At
				k.windows = slices.Delete(open, 0, i)
				return s, true
			}
			searched = min(g.closes, before)
		}
		if g.from = max(g.from, searched); p.stillOpen(w, k, &g) {
			at, _ := slices.BinarySearchFunc(open[i+1:], g, hostWindow.compare)
			open = slices.Insert(open, i+1+at, g)
		}
	}
	k.windows = slices.DeleteFunc(open, func(g hostWindow) bool { return g.from < before })
	return Start{}, false
}

// stillOpen reports whether a host can still serve its share within a window, and updates the
// window.
func (p *Profile) stillOpen(w *Want, k *kindWant, g *hostWindow) bool {
	p.Rows++
	o, ok := k.demands[p.models[g.host]].opening(&p.rows[g.host], g.opening, w)
	g.from, g.closes = o.from, o.before
	return ok
}

func (g hostWindow) compare(o hostWindow) int {
	return cmp.Or(cmp.Compare(g.from, o.from), cmp.Compare(g.host, o.host))
}
