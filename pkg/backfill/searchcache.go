package backfill

import (
	"cmp"
	"slices"

	"github.com/greylag/greylag/pkg/cluster"
)

// searchCache is what the searches for a want have learned. What is free only shrinks
// between two gifts, so the next search goes on where the last one ended; and a start
// that a gift makes possible has the host that was given something in it.
//
// Invariant: no start is possible before after but one on a host of one of the gaps,
// within it. It holds for the first given gifts of the era.
type searchCache struct {
	after      cluster.Instant
	gaps       []hostWindow
	era, given int
}

// hostWindow is when a host that was given something can start its share.
type hostWindow struct {
	host int
	opening
	shuts cluster.Instant // when it cannot any more for the first time, as of the last look
}

// freedInterval is an interval in which a host has more than before; the host -1-n stands for
// the licence in row n.
type freedInterval struct {
	host     int
	from, to cluster.Instant
}

// maxFreed is how many gifts are kept for those who have not looked yet; then all
// searches begin anew.
const maxFreed = 1 << 16

func (p *Profile) recordFreed(g freedInterval) {
	if len(p.gives) == maxFreed {
		p.gives, p.era = p.gives[:0], p.era+1
	}
	p.gives = append(p.gives, g)
}

// learn brings a memory up to the present. O(gifts since then × steps).
func (p *Profile) learn(w *Want, k *kindWant) {
	m := &k.searchCache
	if m.era != p.era {
		*m = searchCache{era: p.era, gaps: m.gaps[:0]}
	}
	for ; m.given < len(p.gives) && m.after > p.now; m.given++ {
		p.open(w, k, &p.gives[m.given])
	}
	if m.given = len(p.gives); m.after <= p.now {
		m.gaps = m.gaps[:0]
	}
}

// open notes when a host that was given something can start its share now.
func (p *Profile) open(w *Want, k *kindWant, g *freedInterval) {
	if g.host < 0 {
		if w.uses(g) {
			k.after = p.now
		}
		return
	}
	in := opening{max(p.now, g.from.Add(-w.Lasts)+1), min(k.after, g.to)}
	if in.from >= in.before || !w.hosts.Has(g.host) {
		return
	}
	if x := (hostWindow{host: g.host, opening: in}); p.narrowed(w, k, &x) {
		k.gaps = append(k.gaps, x)
	}
}

// inGaps looks for the first start in the gaps before an instant. What of them turns out
// to be shut, and that in which there is no start, is forgotten.
func (p *Profile) inGaps(w *Want, k *kindWant, before cluster.Instant) (Start, bool) {
	open := k.gaps[:0]
	for _, g := range k.gaps {
		if g.from >= before || p.narrowed(w, k, &g) {
			open = append(open, g)
		}
	}
	slices.SortFunc(open, hostWindow.compare)
	searched := p.now // up to here there is none
	for i := 0; i < len(open) && open[i].from < before; i++ {
		g := open[i]
		if from := max(g.from, searched); from < min(g.shuts, before) {
			if s, ok := p.fresh(w, k, from, min(g.shuts, before)); ok {
				open[i].from = s.At
				k.gaps = slices.Delete(open, 0, i)
				return s, true
			}
			searched = min(g.shuts, before)
		}
		if g.from = max(g.from, searched); p.narrowed(w, k, &g) {
			at, _ := slices.BinarySearchFunc(open[i+1:], g, hostWindow.compare)
			open = slices.Insert(open, i+1+at, g)
		}
	}
	k.gaps = slices.DeleteFunc(open, func(g hostWindow) bool { return g.from < before })
	return Start{}, false
}

// narrowed reports whether a host can still start its share within a gap, and notes when.
func (p *Profile) narrowed(w *Want, k *kindWant, g *hostWindow) bool {
	p.Rows++
	o, ok := k.demands[p.models[g.host]].opening(&p.rows[g.host], g.opening, w)
	g.from, g.shuts = o.from, o.before
	return ok
}

func (g hostWindow) compare(o hostWindow) int {
	return cmp.Or(cmp.Compare(g.from, o.from), cmp.Compare(g.host, o.host))
}
