package backfill

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/greylag/greylag/pkg/cluster"
)

// Earliest is the first instant from from on and before before at which the whole
// want fits for as long as it lasts, with its shares by host; of equally early ones
// the type named first. It looks at the stretches of the index in turn: those in
// which too few hosts could give the need are passed over, and only hosts that are
// left after intersecting the stretches that the want would fill are looked at.
// O(stretches × hosts/64 + hosts left × steps).
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

// Search is Earliest without the memory of earlier searches, for when a booking has
// been lifted.
func (p *Profile) Search(w *Want, from, before cluster.Instant) (Start, bool) {
	p.forgetful = true
	defer func() { p.forgetful = false }()
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

// ofKind looks for one type: in the gaps first, then where the last search for the same
// ended.
func (p *Profile) ofKind(w *Want, k *kindWant, from, before cluster.Instant) (Start, bool) {
	if p.learn(w, k); p.forgetful || from > p.now {
		return p.fresh(w, k, from, before)
	}
	if len(k.gaps) > 0 {
		if s, ok := p.inGaps(w, k, min(before, k.after)); ok {
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

// licensed is the first instant from at on at which all licences are free.
func (p *Profile) licensed(w *Want, at cluster.Instant) cluster.Instant {
	for i := 0; i < len(w.extra); i++ {
		x := &w.extra[i]
		t, ok := p.extras[x.row].Earliest(at, cluster.Never, w.Lasts, &x.count)
		if !ok {
			return cluster.Never
		}
		if t > at {
			at, i = t, -1
		}
	}
	return at
}

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

// candidate is a host that can be one of the job's nodes at some instant.
type candidate struct {
	host  int
	free  Amount // throughout the job
	gives int32  // GPUs, of a spread want
}

func (p *Profile) candidate(w *Want, k *kindWant, h int, free Amount) candidate {
	c := candidate{host: h, free: free}
	if w.Need.PerNode < 0 {
		c.gives = k.demands[p.models[h]].gives(&free)
	}
	return c
}

// enoughHosts is how many hosts that can start at once are gathered, for each that is
// needed, before the best of them are chosen.
const enoughHosts = 24

// among looks at the rows of a set of hosts, first of those of them that can probably
// start at once.
func (p *Profile) among(w *Want, k *kindWant, set, sure HostSet, from, before cluster.Instant) (Start, bool) {
	stop := int(w.Need.Nodes)*4 + enoughHosts
	if w.domains != nil || w.Need.PerNode < 0 {
		stop = len(p.hosts)
	}
	if p.found = p.found[:0]; sure.Len() >= int(w.Need.Nodes) {
		if p.avoid != nil { // small jobs first look at hosts that large ones could not use
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
	case w.Need.Nodes == 1 && w.domains == nil:
		return p.single(w, k, set, from, before)
	}
	return p.later(w, k, set, from, before)
}

// single finds the first start on one host, on the host that it fits best.
func (p *Profile) single(w *Want, k *kindWant, set HostSet, from, before cluster.Instant) (Start, bool) {
	best, end := before, before // end is past the best so far, so that its equals are found
	p.found = p.found[:0]
	for i := range set {
		for rest := set[i]; rest != 0; rest &= rest - 1 {
			h := i*64 + bits.TrailingZeros64(rest)
			p.Rows++
			t, ok := k.demands[p.models[h]].earliest(&p.rows[h], opening{from, end}, w)
			if !ok {
				if end == before {
					set[i] &^= rest & -rest // nor will it be for the next alike
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

// enough reports whether the candidates found are enough, in few enough domains.
func (p *Profile) enough(w *Want) bool {
	if w.Need.PerNode < 0 {
		return p.enoughSpread(w)
	}
	if w.domains == nil {
		return len(p.found) >= int(w.Need.Nodes)
	}
	counts := map[int32]int32{}
	for i := range p.found {
		if d := w.domains[p.found[i].host]; d >= 0 {
			counts[d]++
		}
	}
	return top(counts, w.most) >= w.Need.Nodes
}

// top adds the largest numbers, most of them.
func top(counts map[int32]int32, most int32) int32 {
	list := make([]int32, 0, len(counts))
	for _, n := range counts {
		list = append(list, n)
	}
	slices.SortFunc(list, func(a, b int32) int { return cmp.Compare(b, a) })
	sum := int32(0)
	for _, n := range list[:min(len(list), int(most))] {
		sum += n
	}
	return sum
}

// turn is an instant from which a host can, or can no longer, start its share.
type turn struct {
	at   cluster.Instant
	host int32
	by   int8
}

// later finds the first instant after from at which enough hosts can start at once:
// it walks over the instants at which one of them begins or ends to be able to.
func (p *Profile) later(w *Want, k *kindWant, set HostSet, from, before cluster.Instant) (Start, bool) {
	turns := p.turns[:0]
	for i := range set {
		for rest := set[i]; rest != 0; rest &= rest - 1 {
			h := i*64 + bits.TrailingZeros64(rest)
			n := len(turns)
			if turns = p.openings(turns, h, w, k, opening{from, before}); len(turns) == n {
				set[i] &^= rest & -rest // nor will it be for the next alike
			}
		}
	}
	p.turns = turns
	if s, ok := p.atOnce(w, k, turns, from); ok {
		return s, true
	}
	slices.SortFunc(turns, func(a, b turn) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by), cmp.Compare(a.host, b.host))
	})
	count := int32(0)
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
		count += int32(t.by)
		if t.by < 0 || count < w.Need.Nodes || i+1 < len(turns) && turns[i+1].at == t.at && turns[i+1].by > 0 {
			continue
		}
		if domains == nil || top(domains, w.most) >= w.Need.Nodes {
			return p.startAt(w, k, turns[:i+1], t.at), true
		}
	}
	return Start{}, false
}

// atOnce is the start at the first instant looked at, when enough hosts are open then
// and it does not matter where they are: there is nothing to sort.
func (p *Profile) atOnce(w *Want, k *kindWant, turns []turn, from cluster.Instant) (Start, bool) {
	open := int32(0)
	for i := range turns {
		if turns[i].at == from {
			open++
		}
	}
	if w.domains != nil || open < w.Need.Nodes {
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
func (p *Profile) openings(turns []turn, h int, w *Want, k *kindWant, in opening) []turn {
	d := &k.demands[p.models[h]]
	p.Rows++
	for in.from < in.before {
		o, ok := d.opening(&p.rows[h], in, w)
		if !ok {
			break
		}
		turns = append(turns, turn{o.from, int32(h), 1})
		if o.before < in.before {
			turns = append(turns, turn{o.before, int32(h), -1})
		}
		in.from = o.before
	}
	return turns
}

// opening is the first interval within another in which the demand can start.
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

// earliest is when the first opening begins.
func (d *demand) earliest(r *Row, in opening, w *Want) (cluster.Instant, bool) {
	if len(d.forms) == 1 && !d.spill {
		return r.Earliest(in.from, in.before, w.Lasts, &d.forms[0])
	}
	o, ok := d.opening(r, in, w)
	return o.from, ok
}

// startAt chooses among the hosts that are open at an instant, by the turns up to it.
func (p *Profile) startAt(w *Want, k *kindWant, turns []turn, at cluster.Instant) Start {
	p.found = p.found[:0]
	open := map[int32]bool{}
	for _, t := range turns {
		open[t.host] = t.by > 0
	}
	to := at.Add(w.Lasts)
	for h, is := range open {
		if is {
			p.found = append(p.found, p.candidate(w, k, int(h), p.rows[h].window(at, to)))
		}
	}
	slices.SortFunc(p.found, func(a, b candidate) int { return cmp.Compare(a.host, b.host) })
	return p.choose(w, k, at)
}
