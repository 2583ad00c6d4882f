package backfill

import (
	"cmp"
	"slices"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// Want is what a start is looked for: the need, for how long (more than 0), and the
// places of the hosts that may serve.
type Want struct {
	Need  topology.Need
	Lasts time.Duration
	Hosts []int
}

// StartsNow places the want so that it can start at this moment and takes nothing
// that was given to others later. O(hosts × steps).
func (p *Profile) StartsNow(w *Want) (cluster.Placement, bool) {
	return topology.Place(p.windows(w, p.now), &w.Need)
}

// FitsNow reports whether the want would fit into what is free at this moment if
// nothing were given to others later. O(hosts log hosts).
func (p *Profile) FitsNow(w *Want) bool {
	p.free = p.free[:0]
	for _, h := range w.Hosts {
		p.free = append(p.free, p.rows[h][0].free)
	}
	_, ok := topology.Place(p.free, &w.Need)
	return ok
}

// FitsEmpty reports whether the want would fit if no job had anything.
func (p *Profile) FitsEmpty(w *Want) bool {
	p.free = p.free[:0]
	for _, h := range w.Hosts {
		p.free = append(p.free, topology.AllOf(p.Host(h)))
	}
	_, ok := topology.Place(p.free, &w.Need)
	return ok
}

// Earliest is the first instant from now on at which the whole want fits for as
// long as it lasts, with a placement; false when there is none, or when the effort
// of the profile is used up.
func (p *Profile) Earliest(w *Want) (cluster.Instant, cluster.Placement, bool) {
	var at cluster.Instant
	var found cluster.Placement
	ok := false
	for _, kind := range w.Need.Types { // of equally early ones, the type named first
		one := *w
		one.Need.Types = []string{kind}
		t, placement, fits := p.earliest(&one)
		if fits && (!ok || t < at) {
			at, found, ok = t, placement, true
		}
	}
	return at, found, ok
}

func (p *Profile) earliest(w *Want) (cluster.Instant, cluster.Placement, bool) {
	var instants []cluster.Instant
	if w.Need.PerNode < 0 {
		instants = p.changes(w)
	} else {
		instants = p.meetings(w)
	}
	for _, t := range instants {
		if p.Exhausted() {
			break
		}
		if placement, ok := topology.Place(p.windows(w, t), &w.Need); ok {
			return t, placement, true
		}
	}
	return 0, cluster.Placement{}, false
}

// windows is what of each host stays free while the want lasts, started at t. It is
// good until the next call.
func (p *Profile) windows(w *Want, t cluster.Instant) []topology.Free {
	end := t.Add(w.Lasts)
	p.free = p.free[:0]
	for _, h := range w.Hosts {
		p.free = append(p.free, p.rows[h].window(t, end))
	}
	p.effort -= len(p.free)
	return p.free
}

// changes lists the instants at which something becomes different on any host of
// the want: an earliest start is one of them.
func (p *Profile) changes(w *Want) []cluster.Instant {
	var list []cluster.Instant
	for _, h := range w.Hosts {
		for i := range p.rows[h] {
			list = append(list, p.rows[h][i].from)
		}
	}
	p.effort -= len(list)
	slices.Sort(list)
	return slices.Compact(list)
}

// turn is an instant from which one host more or less can serve as a node.
type turn struct {
	at cluster.Instant
	by int32
}

// meetings lists the first instant at which enough hosts can each serve as a node
// of the want, nothing when there is none. Every node needs the same, so hosts can
// be looked at one by one and counted.
func (p *Profile) meetings(w *Want) []cluster.Instant {
	turns := p.turns[:0]
	for _, h := range w.Hosts {
		turns = p.openings(turns, p.rows[h], w)
	}
	p.turns = turns
	slices.SortFunc(turns, func(a, b turn) int { return cmp.Compare(a.at, b.at) })
	serving := int32(0)
	for i, t := range turns {
		serving += t.by
		if serving >= w.Need.Nodes && (i+1 == len(turns) || turns[i+1].at > t.at) {
			return []cluster.Instant{t.at}
		}
	}
	return nil
}

// openings appends the intervals of instants at which the want can start on one host.
func (p *Profile) openings(turns []turn, r row, w *Want) []turn {
	for i := 0; i < len(r); {
		o := p.opening(r, i, w)
		if o.last > r[i].from {
			turns = append(turns, turn{r[i].from, 1}, turn{o.last, -1})
		}
		i = o.next
	}
	return turns
}

// opening says how long within a step the want can start: before last, which may be
// before the step begins; and the next step at which looking is worth it.
type opening struct {
	last cluster.Instant
	next int
}

// opening looks at the starts within step i. They meet the steps after it until
// they end; the first that leaves too little bounds how late the start may be.
func (p *Profile) opening(r row, i int, w *Want) opening {
	o := opening{cluster.Never, i + 1}
	if o.next < len(r) {
		o.last = r[o.next].from
	}
	free := r[i].free
	for j := i; j < len(r) && (j == i || r[j].from < o.last.Add(w.Lasts)); j++ {
		p.effort--
		free = free.Both(r[j].free)
		if _, ok := w.Need.Gives(&free, w.Need.Types[0]); ok {
			continue
		}
		late := r[i].from // no start within the step when the step itself is too little
		if j > i {
			late = r[j].from.Add(-w.Lasts) + 1
		}
		if _, alone := w.Need.Gives(&r[j].free, w.Need.Types[0]); !alone && late <= o.last {
			o.next = j + 1 // whatever starts from the next step on meets step j as well
		}
		o.last = min(o.last, late)
		break
	}
	return o
}
