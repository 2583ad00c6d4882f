package backfill

import (
	"math/bits"
	"slices"

	"github.com/greylag/greylag/pkg/cluster"
)

// binIndex is the index of a profile. For time bins of equal length, and for the most frequent
// demands, it knows which hosts can serve the demand throughout the bin, and which at some instant
// of it. A search intersects sets of hosts, 64 at a time, and reads only the rows of the hosts that
// are left.
//
// Invariant: min[b] is the set of hosts whose row covers the demand at every instant of bin b,
// max[b] the set of those whose row does at one instant at least. The last bin has no end.
type binIndex struct {
	width  cluster.Instant
	first  int64 // number of the first bin since the epoch
	words  int
	layers []*layer
	seen   [][]marks // by host and bin, up to the last one in which something was ever taken
	whole  []uint16  // by host: the layers that an empty host can serve, if it is not closed
	closed []bool    // by host: closed outside the bins in seen
}

const (
	maxBins   = 4096
	maxLayers = 16
)

// marks are the layers that a host can serve throughout a bin and at some instant of it.
type marks struct{ min, max uint16 }

// layer is the index of one demand.
type layer struct {
	demands []demand // by model
	whole   []uint64 // hosts that can serve it when they are empty, and are not closed
	count   int32    // of whole
	bins    []bin    // by bin; a missing one is whole
}

// bin is the hosts that can serve the demand in one time bin; min is nil while nothing was taken in
// it.
type bin struct {
	min, max   []uint64
	nmin, nmax int32
}

func (c *binIndex) binOf(t cluster.Instant) int {
	return int(min(max(int64(t/c.width)-c.first, 0), maxBins-1))
}

// begin returns when a bin begins.
func (c *binIndex) begin(b int) cluster.Instant { return cluster.Instant(c.first+int64(b)) * c.width }

// end returns when a bin ends: the last one never does.
func (c *binIndex) end(b int) cluster.Instant {
	if b == maxBins-1 {
		return cluster.Never
	}
	return c.begin(b + 1)
}

// bin returns a bin of a layer, and creates it if needed.
func (c *binIndex) bin(l *layer, b int) *bin {
	for len(l.bins) <= b {
		l.bins = append(l.bins, bin{nmin: l.count, nmax: l.count})
	}
	d := &l.bins[b]
	if d.min == nil {
		both := make([]uint64, 2*c.words)
		d.min, d.max = both[:c.words:c.words], both[c.words:]
		copy(d.min, l.whole)
		copy(d.max, l.whole)
	}
	return d
}

// counts returns how many hosts can serve the layer throughout a bin, and at some instant of it.
func (l *layer) counts(b int) (throughout, once int32) {
	if b >= len(l.bins) {
		return l.count, l.count
	}
	return l.bins[b].nmin, l.bins[b].nmax
}

// keep intersects a set with the hosts that can serve the layer throughout a bin.
func (l *layer) keep(set []uint64, b int) {
	with := l.whole
	if b < len(l.bins) && l.bins[b].min != nil {
		with = l.bins[b].min
	}
	with = with[:len(set)]
	for i := range set {
		set[i] &= with[i]
	}
}

// once returns the hosts that can serve the layer at some instant of a bin.
func (l *layer) once(b int) []uint64 {
	if b < len(l.bins) && l.bins[b].max != nil {
		return l.bins[b].max
	}
	return l.whole
}

// update records what changed on a host in an interval. O(steps + bins in the interval + hosts
// whose state changed).
func (c *binIndex) update(p *Profile, h int, from, to cluster.Instant) {
	m := p.models[h]
	row := &p.rows[h]
	b, last := c.binOf(from), c.binOf(to-1)
	if more := last + 1 - len(c.seen[h]); more > 0 {
		c.seen[h] = slices.Grow(c.seen[h], more)
	}
	for len(c.seen[h]) <= last {
		c.seen[h] = append(c.seen[h], marks{c.whole[h], c.whole[h]})
	}
	i := row.at(c.begin(b))
	now := c.marksOf(m, &row.steps[i].free)
	for ; b <= last; b++ {
		end := c.end(b)
		if i+1 < len(row.steps) && row.steps[i+1].from <= c.begin(b) {
			i++
			now = c.marksOf(m, &row.steps[i].free)
		}
		got := marks{now, now}
		for i+1 < len(row.steps) && row.steps[i+1].from < end {
			i++
			now = c.marksOf(m, &row.steps[i].free)
			got.min, got.max = got.min&now, got.max|now
		}
		if old := c.seen[h][b]; old != got {
			c.seen[h][b] = got
			c.flip(h, b, old, got)
		}
	}
}

func (c *binIndex) marksOf(m int, free *Amount) uint16 {
	set := uint16(0)
	for i, l := range c.layers {
		if l.demands[m].fits(free) {
			set |= 1 << i
		}
	}
	return set
}

func (c *binIndex) flip(h, b int, old, got marks) {
	bit := uint64(1) << (h % 64)
	for x := old.min ^ got.min; x != 0; x &= x - 1 {
		i := bits.TrailingZeros16(x)
		d := c.bin(c.layers[i], b)
		d.min[h/64] ^= bit
		d.nmin += 2*int32(got.min>>i&1) - 1
	}
	for x := old.max ^ got.max; x != 0; x &= x - 1 {
		i := bits.TrailingZeros16(x)
		d := c.bin(c.layers[i], b)
		d.max[h/64] ^= bit
		d.nmax += 2*int32(got.max>>i&1) - 1
	}
}

// widest returns the layer that needs the most GPUs of a host, among those that need more of the
// same pools than this one; else nil.
func (c *binIndex) widest(l *layer) *layer {
	var best *layer
	most := l.demands[0].gpus
	for _, o := range c.layers {
		if d := &o.demands[0]; d.gpus > most && d.mask == l.demands[0].mask {
			best, most = o, d.gpus
		}
	}
	return best
}

// add creates a layer for the demands and returns its number, -1 when there are too many. O(hosts
// × steps).
func (c *binIndex) add(p *Profile, demands []demand) int {
	for i, l := range c.layers {
		if equalDemands(l.demands, demands) {
			return i
		}
	}
	if len(c.layers) == maxLayers {
		return -1
	}
	n := len(c.layers)
	l := &layer{demands: demands, whole: make([]uint64, c.words)}
	c.layers = append(c.layers, l)
	for h, m := range p.models {
		if !c.closed[h] && demands[m].fits(&p.all[m].all) {
			l.whole[h/64] |= 1 << (h % 64)
			l.count++
			c.whole[h] |= 1 << n
			for b := range c.seen[h] {
				c.seen[h][b].min |= 1 << n
				c.seen[h][b].max |= 1 << n
			}
		}
	}
	for h := range p.models {
		if seen := len(c.seen[h]); seen > 0 {
			c.update(p, h, c.begin(0), c.begin(seen))
		}
	}
	return n
}

func equalDemands(a, b []demand) bool {
	for m := range a {
		x, y := &a[m], &b[m]
		if len(x.forms) != len(y.forms) || x.spill != y.spill || x.mask != y.mask || x.gpus != y.gpus || x.base != y.base {
			return false
		}
		for i := range x.forms {
			if x.forms[i] != y.forms[i] {
				return false
			}
		}
	}
	return true
}

// advance drops bins that have ended, many at a time.
func (c *binIndex) advance(p *Profile, now cluster.Instant) {
	const most = maxBins / 8
	over := int(int64(now/c.width) - c.first)
	if over < most {
		return
	}
	c.first += int64(over)
	for h := range c.seen {
		c.seen[h] = c.seen[h][min(over, len(c.seen[h])):]
	}
	for _, l := range c.layers {
		l.bins = l.bins[min(over, len(l.bins)):]
	}
	// The content of the endless last bin belongs to several bins now.
	for h := range c.seen {
		if end := p.rows[h].steps[len(p.rows[h].steps)-1].from; end >= c.begin(maxBins-1-over) {
			c.update(p, h, c.begin(maxBins-1-over), cluster.Never)
		}
	}
}
