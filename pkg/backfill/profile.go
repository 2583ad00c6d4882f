package backfill

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// Profile is the free capacity of each host over time, from now on. Hosts are known by number.
type Profile struct {
	now      cluster.Instant
	hosts    []*topology.Host
	rows     []Row
	models   []int   // by host, into all
	all      []model // the different ones
	levels   [][]int32
	licences []Row
	index    *binIndex // nil when there are too few hosts to need one
	// freed holds what became free in this era. A search that starts where the last one of its want
	// ended checks only what became free since.
	freed     []freedInterval
	era       int
	groups    map[demandKey]*demandGroup
	groupList []*demandGroup           // all groups
	notified  struct{ era, given int } // up to which EachSooner has reported freed intervals
	uncached  bool                     // the present search does not use the search cache
	version   uint64                   // of the rows: each change increments it
	// Packed prefers the hosts that are left the fullest to a narrow domain, where a want allows
	// both.
	Packed bool
	// Rows counts the rows that searches read.
	Rows int

	set   HostSet // a buffer of every search
	sure  HostSet
	avoid HostSet // hosts to leave to larger jobs if possible; nil for none
	found []candidate
	own   []candidate
	edges []edge
}

const (
	// minIndexed is the number of hosts from which on the index pays.
	minIndexed = 16
	// binWidth is the length of a bin with many hosts; with fewer it is twice as long, since then
	// reading rows costs less than updating the index.
	binWidth = cluster.Instant(10 * time.Minute)
	many     = 1024
)

// New returns the profile of hosts that are all free from now on. Neighbours in their order should
// be near in the fabric. levels gives each host's domain, narrowest level first, -1 for none; level
// 0 are NVLink domains across hosts. licences are counts of what belongs to no host.
func New(now cluster.Instant, hosts []*topology.Host, levels [][]int32, licences []int32) *Profile {
	p := &Profile{now: now, hosts: hosts, levels: levels, groups: map[demandKey]*demandGroup{}, set: NewHostSet(len(hosts)), sure: NewHostSet(len(hosts))}
	p.rows, p.models = make([]Row, len(hosts)), make([]int, len(hosts))
	for h, host := range hosts {
		p.models[h] = p.modelOf(host)
		p.rows[h] = NewRow(now, p.all[p.models[h]].all)
	}
	for _, n := range licences {
		p.licences = append(p.licences, NewRow(now, Amount{CPUs: n}))
	}
	if len(hosts) >= minIndexed {
		width := binWidth
		if len(hosts) < many {
			width *= 2
		}
		p.index = &binIndex{
			width: width, first: int64(now / width), words: len(p.set),
			seen: make([][]marks, len(hosts)), whole: make([]uint16, len(hosts)), closed: make([]bool, len(hosts)),
		}
	}
	return p
}

// modelOf finds or adds the model of a host.
func (p *Profile) modelOf(h *topology.Host) int {
	m := model{all: Amount{CPUs: h.CPUs, Slots: Slots, Memory: h.Memory}, size: h.Size, count: min(len(h.Pools), MaxPools)}
	copy(m.gres[:], h.Gres)
	m.all.Gres = GresOf(h.Gres, h.Gres)
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

// Hosts returns the number of hosts.
func (p *Profile) Hosts() int { return len(p.rows) }

// Host returns a host by number.
func (p *Profile) Host(h int) *topology.Host { return p.hosts[h] }

// All returns what a host has.
func (p *Profile) All(h int) Amount { return p.all[p.models[h]].all }

// Row returns what is free on a host; it must not be changed.
func (p *Profile) Row(h int) *Row { return &p.rows[h] }

// Now returns the instant from which on searches begin.
func (p *Profile) Now() cluster.Instant { return p.now }

// Take takes an amount of a host for an interval. O(steps + bins in it).
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

// RestrictHost closes a host outside an interval. It comes before all wants, and once for a host.
// O(steps + bins in the interval).
func (p *Profile) RestrictHost(h int, from, to cluster.Instant) {
	wall := &Amount{Slots: Blocked}
	if from = max(from, p.now); from > p.now {
		p.rows[h].Take(p.now, from, wall)
	}
	if to < cluster.Never {
		p.rows[h].Take(max(to, p.now), cluster.Never, wall)
	}
	if p.index != nil {
		p.index.closed[h] = true
		if from < to {
			p.index.update(p, h, from, to)
		}
	}
}

// Release is the inverse of Take.
func (p *Profile) Release(h int, from, to cluster.Instant, a *Amount) {
	if from = max(from, p.now); from >= to {
		return
	}
	p.rows[h].Release(from, to, a)
	p.version++
	if p.index != nil {
		p.index.update(p, h, from, to)
	}
	p.recordFreed(freedInterval{h, from, to})
}

// TakeLicences takes licences of a row for an interval.
func (p *Profile) TakeLicences(row int, from, to cluster.Instant, count int32) {
	p.licences[row].Take(from, to, &Amount{CPUs: count})
}

// ReleaseLicences is the inverse of TakeLicences.
func (p *Profile) ReleaseLicences(row int, from, to cluster.Instant, count int32) {
	p.licences[row].Release(max(from, p.now), to, &Amount{CPUs: count})
	p.recordFreed(freedInterval{-1 - row, p.now, to})
}

// HasLicences reports whether count licences of a row are free at an instant.
func (p *Profile) HasLicences(row int, at cluster.Instant, count int32) bool {
	return p.licences[row].Free(at).CPUs >= count
}

// HasLicencesUntil reports whether count licences of a row are free throughout an interval.
func (p *Profile) HasLicencesUntil(row int, from, to cluster.Instant, count int32) bool {
	free := p.licences[row].window(max(from, p.now), to)
	return free.CPUs >= count
}

// Advance moves now. It drops what was before. O(hosts), and O(index) once in several days.
func (p *Profile) Advance(now cluster.Instant) {
	if now <= p.now {
		return
	}
	p.now = now
	for h := range p.rows {
		p.rows[h].DropBefore(now)
	}
	for i := range p.licences {
		p.licences[i].DropBefore(now)
	}
	if p.index != nil {
		p.index.advance(p, now)
	}
}

// HostConstraint says on which hosts a want may start, and in how many domains at most.
type HostConstraint struct {
	Hosts HostSet // nil means all
	// Domains, when not nil, is each host's domain (-1: none, and not to be used). The nodes of the
	// job lie in at most Most of them.
	Domains []int32
	Most    int32
	// Groups, when not nil, is each domain's group. All nodes lie in domains of one.
	Groups []int32
	// Required, when not nil, are hosts that each start has. It has neither domains nor a spread need.
	Required HostSet
}

// Licence is a number of licences of a row.
type Licence struct {
	Row   int
	Count int32
}

// Want prepares the search for a need that lasts for a duration above 0. Drop it when it is not
// needed any more.
func (p *Profile) Want(need topology.NodeRequest, lasts time.Duration, where HostConstraint, licences ...Licence) *Want {
	w := &Want{Need: need, Lasts: lasts, hosts: where.Hosts, domains: where.Domains, most: where.Most, groups: where.Groups, required: where.Required}
	if w.hosts == nil {
		w.hosts = NewHostSet(len(p.hosts))
		for h := range p.hosts {
			w.hosts.Add(h)
		}
	}
	for _, l := range licences {
		w.licences = append(w.licences, licenceDemand{l.Row, Amount{CPUs: l.Count}})
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
	p.addWant(w)
	return w
}

// layerOf returns the layer of the index for a demand: that of a demand that needs no more, so that
// few layers serve many demands.
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

// weaken lowers a demand, so that more demands are equal.
func (d *demand) weaken(more bool) {
	weak := func(a *Amount) {
		a.Memory, a.Gres = 0, Gres{}
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
	weak(&d.base)
	d.perGPU = 0
	if more {
		d.gpus = floor2(d.gpus)
	}
}

// floor2 returns the largest power of two that is at most n; 0 for none.
func floor2(n int32) int32 {
	if n <= 0 {
		return 0
	}
	return 1 << (bits.Len32(uint32(n)) - 1)
}

// HostShare is the part of a start on one host.
type HostShare struct {
	Host   int
	GPUs   int32
	Amount Amount
}

// Start is when a want can start, and on which hosts.
type Start struct {
	At     cluster.Instant
	Kind   string // type of its GPUs
	Shares []HostShare
}

// Fits reports whether shares, which were found for the want earlier, are free for its whole
// duration from an instant on. O(shares × steps).
func (p *Profile) Fits(w *Want, at cluster.Instant, shares []HostShare) bool {
	for i := range shares {
		free := p.rows[shares[i].Host].window(at, at.Add(w.Lasts))
		if !w.hosts.Has(shares[i].Host) || !free.Covers(&shares[i].Amount) {
			return false
		}
	}
	for i := range w.licences {
		if free := p.licences[w.licences[i].row].window(at, at.Add(w.Lasts)); !free.Covers(&w.licences[i].count) {
			return false
		}
	}
	return true
}

// Book takes what a start needs.
func (p *Profile) Book(w *Want, at cluster.Instant, shares []HostShare) {
	for i := range shares {
		p.Take(shares[i].Host, at, at.Add(w.Lasts), &shares[i].Amount)
	}
	for i := range w.licences {
		p.TakeLicences(w.licences[i].row, at, at.Add(w.Lasts), w.licences[i].count.CPUs)
	}
}

// Unbook is the inverse of Book.
func (p *Profile) Unbook(w *Want, at cluster.Instant, shares []HostShare) {
	for i := range shares {
		p.Release(shares[i].Host, at, at.Add(w.Lasts), &shares[i].Amount)
	}
	for i := range w.licences {
		p.ReleaseLicences(w.licences[i].row, at, at.Add(w.Lasts), w.licences[i].count.CPUs)
	}
}

// FitsEmpty reports whether the want fits into empty hosts. O(hosts).
func (p *Profile) FitsEmpty(w *Want) bool {
	return p.FitsIn(w, nil, nil)
}

// FitsIn reports whether the want fits into what is free of each host; nil means all. open, if not
// nil, are the hosts with a free GPU: a want for GPUs considers only these. O(hosts considered
// until there are enough).
func (p *Profile) FitsIn(w *Want, now []Amount, open HostSet) bool {
	look := w.hosts
	if open != nil && w.Need.Total > 0 {
		look = p.set
		for i := range look {
			look[i] = w.hosts[i] & open[i]
		}
	}
	for i := range w.kinds {
		if p.fitsKind(w, &w.kinds[i], now, look) {
			return true
		}
	}
	return false
}

// fitsKind is FitsIn for one type, on some hosts.
func (p *Profile) fitsKind(w *Want, k *kindWant, now []Amount, look HostSet) bool {
	p.found = p.found[:0]
	plain := w.Need.PerNode >= 0 && w.domains == nil && w.required == nil
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
	return p.enough(w)
}

// Shares turns the hosts and GPUs of a promise into shares by host. It returns false when a host
// can never give that, or the hosts do not have the locality of the want. The hosts may come in any
// order.
func (p *Profile) Shares(w *Want, kind string, at cluster.Instant, hosts []int, gpus []int32) ([]HostShare, bool) {
	k := slices.IndexFunc(w.kinds, func(k kindWant) bool { return k.kind == kind })
	if k < 0 {
		return nil, false
	}
	var shares []HostShare
	for i, h := range hosts {
		d := &w.kinds[k].demands[p.models[h]]
		free := p.rows[h].window(at, at.Add(w.Lasts))
		if d.never() || !free.Covers(&d.base) || (free.GPUs&d.mask).Sum(d.mask) < gpus[i] {
			return nil, false
		}
		share := HostShare{h, gpus[i], d.takes(&free, gpus[i])}
		if w.Need.Linked && gpus[i] > 1 && !share.Amount.inOnePool() {
			return nil, false
		}
		shares = append(shares, share)
	}
	slices.SortFunc(shares, byHost)
	return shares, w.allows(shares)
}

// allows reports whether hosts lie in few enough domains of one group, and are all that the want requires.
func (w *Want) allows(shares []HostShare) bool {
	if w.required != nil {
		n := 0
		for i := range shares {
			if w.required.Has(shares[i].Host) {
				n++
			}
		}
		return n == w.required.Len()
	}
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

// byHost compares shares by host.
func byHost(a, b HostShare) int { return cmp.Compare(a.Host, b.Host) }

// Has reports whether an amount of a host is free throughout an interval.
func (p *Profile) Has(h int, from, to cluster.Instant, a *Amount) bool {
	free := p.rows[h].window(max(from, p.now), to)
	return free.Covers(a)
}

// Hide hides a booking from searches, which then count its place as free. Show must follow, with
// nothing but searches in between.
func (p *Profile) Hide(w *Want, at cluster.Instant, shares []HostShare) {
	gives := len(p.freed)
	p.Unbook(w, at, shares)
	p.freed = p.freed[:min(gives, len(p.freed))]
}

// Show is the inverse of Hide.
func (p *Profile) Show(w *Want, at cluster.Instant, shares []HostShare) { p.Book(w, at, shares) }

// EarliestInPlace returns the first instant before a booking from which its own hosts are free for
// its whole duration, its own place included. O(shares × steps).
func (p *Profile) EarliestInPlace(w *Want, at cluster.Instant, shares []HostShare) (cluster.Instant, bool) {
	t := p.now
	for i := 0; i < len(shares) && t < at; i++ {
		first := p.rows[shares[i].Host].earliestInPlace(t, at, w.Lasts, &shares[i].Amount)
		if first > t {
			t, i = first, -1 // the previous hosts must be free then too
		}
	}
	return t, t < at && p.licensed(w, t) == t
}
