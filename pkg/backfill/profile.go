package backfill

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// Profile is what is free on each host from now on. Hosts are known by their place.
type Profile struct {
	now    cluster.Instant
	hosts  []*topology.Host
	rows   []Row
	models []int   // by host, into all
	all    []model // the different ones
	levels [][]int32
	extras []Row
	index  *binIndex // nil when there are too few hosts to need one
	// gives is what was given back in this era: searches that know where the last one
	// for the same ended look at what was given since.
	gives     []freedInterval
	era       int
	shapes    map[shapeKey]*demandGroup
	list      []*demandGroup           // all of them
	told      struct{ era, given int } // gifts that News has told
	forgetful bool                     // the search under way remembers nothing
	version   uint64                   // of the rows: each change of one makes the next
	// Packed takes the hosts that are left the fullest, not those nearest to each other,
	// where a want allows both.
	Packed bool
	// Rows counts the rows that searches looked at.
	Rows int

	set   HostSet // room used again by every search
	sure  HostSet
	avoid HostSet // hosts that are better left to larger jobs; nil when none are
	found []candidate
	mine  []candidate
	turns []turn
}

const (
	// indexed is from how many hosts on the index pays.
	indexed = 16
	// A stretch of the index is so long when there are many hosts, and twice as long when
	// there are few: looking at rows costs less then than keeping the index.
	stretch = cluster.Instant(10 * time.Minute)
	many    = 1024
)

// New is the profile of hosts that are all free from now on, in the order given:
// neighbours are thought to be near each other. levels gives each host's domain,
// narrowest level first, -1 for none; the level 0 is NVLink domains across hosts.
// licences are counts of what belongs to no host.
func New(now cluster.Instant, hosts []*topology.Host, levels [][]int32, licences []int32) *Profile {
	p := &Profile{now: now, hosts: hosts, levels: levels, shapes: map[shapeKey]*demandGroup{}, set: NewHostSet(len(hosts)), sure: NewHostSet(len(hosts))}
	p.rows, p.models = make([]Row, len(hosts)), make([]int, len(hosts))
	for h, host := range hosts {
		p.models[h] = p.modelOf(host)
		p.rows[h] = NewRow(now, p.all[p.models[h]].all)
	}
	for _, n := range licences {
		p.extras = append(p.extras, NewRow(now, Amount{CPUs: n}))
	}
	if len(hosts) >= indexed {
		width := stretch
		if len(hosts) < many {
			width *= 2
		}
		p.index = &binIndex{
			width: width, first: int64(now / width), words: len(p.set),
			seen: make([][]marks, len(hosts)), whole: make([]uint16, len(hosts)), shut: make([]bool, len(hosts)),
		}
	}
	return p
}

// modelOf finds or adds the model of a host.
func (p *Profile) modelOf(h *topology.Host) int {
	m := model{all: Amount{CPUs: h.CPUs, Slots: Slots, Memory: h.Memory}, size: h.Size, count: min(len(h.Pools), MaxPools)}
	for i := range m.count {
		pool := h.Pools[i]
		m.all.GPUs |= Lane(i, pool.GPUs.Len())
		if pool.Domain != "" {
			m.linked |= Lane(i, maxLane)
		}
		m.pools[i] = topology.Pool{Kind: pool.Kind, Memory: pool.Memory}
	}
	if i := slices.Index(p.all, m); i >= 0 {
		return i
	}
	p.all = append(p.all, m)
	return len(p.all) - 1
}

// Hosts counts the hosts.
func (p *Profile) Hosts() int { return len(p.rows) }

// Host is the host at a place.
func (p *Profile) Host(h int) *topology.Host { return p.hosts[h] }

// All is what a host has.
func (p *Profile) All(h int) Amount { return p.all[p.models[h]].all }

// Row is what is free on a host; it must not be changed.
func (p *Profile) Row(h int) *Row { return &p.rows[h] }

// Now is the instant before which nothing is looked for.
func (p *Profile) Now() cluster.Instant { return p.now }

// Take takes an amount of a host from one instant until before another.
// O(steps + stretches between them).
func (p *Profile) Take(h int, from, to cluster.Instant, a *Amount) {
	if from = max(from, p.now); from >= to {
		return
	}
	p.rows[h].Take(from, to, a)
	p.version++
	if p.index != nil {
		p.index.update(p, h, from, to)
	}
}

// Only lets nothing onto a host but from one instant until before another. It comes before
// all wants, and once for a host. O(steps + stretches between them).
func (p *Profile) Only(h int, from, to cluster.Instant) {
	wall := &Amount{Slots: Blocked}
	if from = max(from, p.now); from > p.now {
		p.rows[h].Take(p.now, from, wall)
	}
	if to < cluster.Never {
		p.rows[h].Take(max(to, p.now), cluster.Never, wall)
	}
	if p.index != nil {
		p.index.shut[h] = true
		if from < to {
			p.index.update(p, h, from, to)
		}
	}
}

// Give gives back what was taken.
func (p *Profile) Give(h int, from, to cluster.Instant, a *Amount) {
	if from = max(from, p.now); from >= to {
		return
	}
	p.rows[h].Give(from, to, a)
	p.version++
	if p.index != nil {
		p.index.update(p, h, from, to)
	}
	p.recordFreed(freedInterval{h, from, to})
}

// TakeExtra takes licences; GiveExtra gives them back.
func (p *Profile) TakeExtra(row int, from, to cluster.Instant, count int32) {
	p.extras[row].Take(from, to, &Amount{CPUs: count})
}

// GiveExtra is the inverse of TakeExtra.
func (p *Profile) GiveExtra(row int, from, to cluster.Instant, count int32) {
	p.extras[row].Give(max(from, p.now), to, &Amount{CPUs: count})
	p.recordFreed(freedInterval{-1 - row, p.now, to})
}

// HasExtra reports whether so many licences of a row are free at an instant.
func (p *Profile) HasExtra(row int, at cluster.Instant, count int32) bool {
	return p.extras[row].Free(at).CPUs >= count
}

// HasExtraUntil reports whether so many licences of a row are free throughout an interval.
func (p *Profile) HasExtraUntil(row int, from, to cluster.Instant, count int32) bool {
	free := p.extras[row].window(max(from, p.now), to)
	return free.CPUs >= count
}

// Advance moves now on. What was before is forgotten. O(hosts), and O(index) once in
// several days.
func (p *Profile) Advance(now cluster.Instant) {
	if now <= p.now {
		return
	}
	p.now = now
	for h := range p.rows {
		p.rows[h].Forget(now)
	}
	for i := range p.extras {
		p.extras[i].Forget(now)
	}
	if p.index != nil {
		p.index.advance(p, now)
	}
}

// Need describes a want; where says on which hosts, at most in how many domains.
type Where struct {
	Hosts HostSet // nil means all
	// Domains, when not nil, is each host's domain (-1: none, and not to be used); the
	// nodes of the job lie in at most Most of them.
	Domains []int32
	Most    int32
	// Groups, when not nil, is each domain's group; all nodes lie in domains of one.
	Groups []int32
}

// Licence is so much of a row of licences.
type Licence struct {
	Row   int
	Count int32
}

// Want prepares the search for a need that lasts so long (more than 0). Drop it when
// nobody looks for it any more.
func (p *Profile) Want(need topology.Need, lasts time.Duration, where Where, licences ...Licence) *Want {
	w := &Want{Need: need, Lasts: lasts, hosts: where.Hosts, domains: where.Domains, most: where.Most, groups: where.Groups}
	if w.hosts == nil {
		w.hosts = NewHostSet(len(p.hosts))
		for h := range p.hosts {
			w.hosts.Add(h)
		}
	}
	for _, l := range licences {
		w.extra = append(w.extra, extra{l.Row, Amount{CPUs: l.Count}})
	}
	for _, kind := range need.Types {
		k := kindWant{kind: kind, layer: -1}
		for i := range p.all {
			k.demands = append(k.demands, p.all[i].demandOf(&need, kind))
		}
		if p.index != nil {
			k.layer = p.layerOf(k.demands)
		}
		w.kinds = append(w.kinds, k)
	}
	p.enlist(w)
	return w
}

// layerOf is the layer of the index for a demand: of one that asks for no more, so
// that few layers serve many demands.
func (p *Profile) layerOf(demands []demand) int {
	for coarse := range 2 {
		weak := slices.Clone(demands)
		for i := range weak {
			weak[i].weaken(coarse > 0)
		}
		if n := p.index.add(p, weak); n >= 0 {
			return n
		}
	}
	return -1
}

// weaken makes a demand ask for less, and more like others.
func (d *demand) weaken(more bool) {
	weak := func(a *Amount) {
		a.Memory = 0
		a.CPUs = floor2(a.CPUs)
		if more {
			a.CPUs = min(a.CPUs, 1)
			for i := range MaxPools {
				if n := a.GPUs.Of(i); n > 0 {
					a.GPUs = Lane(i, floor2(n))
				}
			}
		}
	}
	d.forms = slices.Clone(d.forms)
	for i := range d.forms {
		weak(&d.forms[i])
	}
	weak(&d.beside)
	d.perGPU = 0
	if more {
		d.gpus = floor2(d.gpus)
	}
}

// floor2 is the largest power of two that is not more than n; 0 for none.
func floor2(n int32) int32 {
	if n <= 0 {
		return 0
	}
	return 1 << (bits.Len32(uint32(n)) - 1)
}

// Share is what one host gives to a start.
type Share struct {
	Host   int
	GPUs   int32
	Amount Amount
}

// Start is when a want can start, on what.
type Start struct {
	At     cluster.Instant
	Kind   string // the type of its GPUs
	Shares []Share
}

// Fits reports whether the shares, which were found for the want before, are free for
// as long as it lasts from an instant on. O(shares × steps).
func (p *Profile) Fits(w *Want, at cluster.Instant, shares []Share) bool {
	for i := range shares {
		free := p.rows[shares[i].Host].window(at, at.Add(w.Lasts))
		if !w.hosts.Has(shares[i].Host) || !free.Covers(&shares[i].Amount) {
			return false
		}
	}
	for i := range w.extra {
		if free := p.extras[w.extra[i].row].window(at, at.Add(w.Lasts)); !free.Covers(&w.extra[i].count) {
			return false
		}
	}
	return true
}

// Book takes what a start needs; Unbook gives it back from an instant on.
func (p *Profile) Book(w *Want, at cluster.Instant, shares []Share) {
	for i := range shares {
		p.Take(shares[i].Host, at, at.Add(w.Lasts), &shares[i].Amount)
	}
	for i := range w.extra {
		p.TakeExtra(w.extra[i].row, at, at.Add(w.Lasts), w.extra[i].count.CPUs)
	}
}

// Unbook is the inverse of Book.
func (p *Profile) Unbook(w *Want, at cluster.Instant, shares []Share) {
	for i := range shares {
		p.Give(shares[i].Host, at, at.Add(w.Lasts), &shares[i].Amount)
	}
	for i := range w.extra {
		p.GiveExtra(w.extra[i].row, at, at.Add(w.Lasts), w.extra[i].count.CPUs)
	}
}

// FitsEmpty reports whether the want would fit if no job had anything. O(hosts).
func (p *Profile) FitsEmpty(w *Want) bool {
	return p.FitsIn(w, nil, nil)
}

// FitsIn reports whether the want fits into what is said to be free of each host; nil
// means all. A want for GPUs looks only at hosts of which some are free, if those are
// known. O(hosts looked at until there are enough).
func (p *Profile) FitsIn(w *Want, now []Amount, open HostSet) bool {
	look := w.hosts
	if open != nil && w.Need.Total > 0 {
		look = p.set
		for i := range look {
			look[i] = w.hosts[i] & open[i]
		}
	}
	for i := range w.kinds {
		p.found = p.found[:0]
		k, plain := &w.kinds[i], w.Need.PerNode >= 0 && w.domains == nil
		for word := range look {
			for rest := look[word]; rest != 0; rest &= rest - 1 {
				h := word*64 + bits.TrailingZeros64(rest)
				free := p.all[p.models[h]].all
				if now != nil {
					free = now[h]
				}
				if !k.demands[p.models[h]].fits(&free) {
					continue
				}
				if p.found = append(p.found, p.candidate(w, k, h, free)); plain && len(p.found) >= int(w.Need.Nodes) {
					return true
				}
			}
		}
		if p.enough(w) {
			return true
		}
	}
	return false
}

// Shares turns what hosts keep for a promise into shares by host, false when a host could
// never give that, or they are not as near each other as the want asks. The hosts may come in
// any order: of another fabric, say.
func (p *Profile) Shares(w *Want, kind string, at cluster.Instant, hosts []int, gpus []int32) ([]Share, bool) {
	k := slices.IndexFunc(w.kinds, func(k kindWant) bool { return k.kind == kind })
	if k < 0 {
		return nil, false
	}
	var shares []Share
	for i, h := range hosts {
		d := &w.kinds[k].demands[p.models[h]]
		free := p.rows[h].window(at, at.Add(w.Lasts))
		if d.never() || !free.Covers(&d.beside) || (free.GPUs&d.mask).Sum(d.mask) < gpus[i] {
			return nil, false
		}
		share := Share{h, gpus[i], d.takes(&free, gpus[i])}
		if w.Need.Linked && gpus[i] > 1 && !share.Amount.inOnePool() {
			return nil, false
		}
		shares = append(shares, share)
	}
	slices.SortFunc(shares, byHost)
	return shares, w.allows(shares)
}

// allows reports whether hosts lie in few enough domains of one group.
func (w *Want) allows(shares []Share) bool {
	if w.domains == nil || len(shares) == 0 {
		return true
	}
	var in []int32
	for i := range shares {
		d := w.domains[shares[i].Host]
		if d < 0 || w.groupOf(d) != w.groupOf(w.domains[shares[0].Host]) {
			return false
		}
		if !slices.Contains(in, d) {
			in = append(in, d)
		}
	}
	return len(in) <= int(w.most)
}

// byHost orders shares by host.
func byHost(a, b Share) int { return cmp.Compare(a.Host, b.Host) }

// Has reports whether so much of a host is free throughout an interval.
func (p *Profile) Has(h int, from, to cluster.Instant, a *Amount) bool {
	free := p.rows[h].window(max(from, p.now), to)
	return free.Covers(a)
}

// Lift takes a booking out for a moment, so that a search can count its place as
// free: Lower must follow, and nothing but searches come between.
func (p *Profile) Lift(w *Want, at cluster.Instant, shares []Share) {
	gives := len(p.gives)
	p.Unbook(w, at, shares)
	p.gives = p.gives[:min(gives, len(p.gives))]
}

// Lower is the inverse of Lift.
func (p *Profile) Lower(w *Want, at cluster.Instant, shares []Share) { p.Book(w, at, shares) }

// Slide is the first instant before a booking begins from which its own hosts are free
// for all of it, its place counted as free. O(shares × steps).
func (p *Profile) Slide(w *Want, at cluster.Instant, shares []Share) (cluster.Instant, bool) {
	t := p.now
	for i := 0; i < len(shares) && t < at; i++ {
		first := p.rows[shares[i].Host].slide(t, at, w.Lasts, &shares[i].Amount)
		if first > t {
			t, i = first, -1 // the hosts before must be free then as well
		}
	}
	return t, t < at && p.licensed(w, t) == t
}
