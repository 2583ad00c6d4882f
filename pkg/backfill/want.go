package backfill

import (
	"iter"
	"math/bits"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// Want is a search for starts of one request. Make it with [Profile.Want]. It remembers what it
// learned of the hosts of its profile, and is valid for that profile until it is dropped. Equal
// requests should share one.
type Want struct {
	Need  topology.NodeRequest
	Owner any // the caller's own
	Lasts time.Duration
	hosts HostSet
	// domains gives each host's domain when the nodes of the job must lie in at most most domains;
	// nil when they may lie anywhere.
	domains  []int32
	most     int32
	groups   []int32 // of each domain, when these must be of one group; else nil
	required HostSet // hosts that each start has; nil for none
	licences []licenceDemand
	group    *demandGroup // nil once it is dropped
	kinds    []kindWant
	bounded  bool
}

// Bounded reports whether a search for the want was bounded: it may start later than necessary.
func (w *Want) Bounded() bool { return w.bounded }

// licenceDemand is a number of licences of one row.
type licenceDemand struct {
	row   int
	count Amount
}

// kindWant is a want for GPUs of one of its types.
type kindWant struct {
	kind    string
	demands []demand // by model
	layer   int      // of the index; -1 for none
	searchCache
	cachedHosts cachedHosts
	startable   startable
}

// cachedHosts is the result of a search of one bin: the hosts that were left for starts from an
// instant on, at a number of freed intervals.
type cachedHosts struct {
	set        HostSet
	bin        int
	from       cluster.Instant
	era, freed int
}

// demand is the amount that a want takes on one host of a model.
type demand struct {
	// forms are alternative amounts, each with all GPUs in one pool; none when no pool of the model
	// is large enough.
	forms []Amount
	// spill says that the GPUs may also come from several pools, those in mask.
	spill  bool
	mask   Lanes
	gpus   int32 // of each host; at least, when the want is spread
	base   Amount
	perGPU cluster.Bytes
	linked bool
}

// model is hosts that have the same in the same pools.
type model struct {
	all    Amount
	pools  [MaxPools]topology.Pool // without their domain and set
	size   cluster.NodeSize
	linked Lanes // full lanes of pools that are in an NVLink domain
	count  int
	gres   [cluster.MaxGres]cluster.Gres
}

// demandOf returns what the need takes of one host of the model, for one type.
func (m *model) demandOf(need *topology.NodeRequest, kind string) demand {
	d := demand{gpus: max(need.PerNode, 0), linked: need.Linked}
	if need.PerNode < 0 {
		d.gpus, d.perGPU = 1, need.Memory.PerGPUOn(m.size)
	}
	d.base = Amount{CPUs: need.CPUs, Slots: 1, Memory: need.Memory.On(m.size, d.gpus)}
	if need.Exclusive {
		d.base.Slots, d.base.CPUs = Slots, max(need.CPUs, m.all.CPUs)
	}
	if len(need.Gres) > 0 {
		if !cluster.HasGres(m.gres[:], need.Gres) {
			return d
		}
		d.base.Gres = GresOf(m.gres[:], need.Gres)
	}
	if d.gpus == 0 {
		d.forms = []Amount{d.base}
		return d
	}
	for i := range m.count {
		pool := &m.pools[i]
		if !topology.Accepts(kind, pool.Kind) || pool.Memory < need.GPUMemory ||
			need.Linked && (d.gpus > 1 || need.PerNode < 0 && need.Total > 1) && m.linked.Of(i) == 0 {
			continue
		}
		d.mask |= Lane(i, maxLane)
		if m.all.GPUs.Of(i) >= d.gpus {
			form := d.base
			form.GPUs = Lane(i, d.gpus)
			d.forms = append(d.forms, form)
		}
	}
	pools := 0
	for l := d.mask; l != 0; l >>= 8 {
		pools += int(l & 1)
	}
	d.spill = pools > 1 && !need.Linked && d.gpus > 1 && m.all.GPUs.Sum(d.mask) >= d.gpus
	return d
}

// fits reports whether a host can serve the demand with what is free on it.
func (d *demand) fits(free *Amount) bool {
	for i := range d.forms {
		if free.Covers(&d.forms[i]) {
			return true
		}
	}
	return d.spill && free.Covers(&d.base) && free.GPUs.Sum(d.mask) >= d.gpus
}

// never reports whether no host of the model can serve the demand.
func (d *demand) never() bool { return len(d.forms) == 0 && !d.spill }

// gives returns how many GPUs of what is free a spread want can use.
func (d *demand) gives(free *Amount) int32 {
	if !free.Covers(&d.base) {
		return 0
	}
	n := free.GPUs.Sum(d.mask)
	if d.linked {
		n = 0
		for i := range MaxPools {
			n = max(n, (free.GPUs & d.mask).Of(i))
		}
	}
	if d.perGPU > 0 {
		n = int32(min(cluster.Bytes(n), free.Memory/d.perGPU))
	}
	return n
}

// takes returns what n GPUs take of a host, given what is free on it: from the smallest pool that
// has them all, else from the largest pools on. The GPUs must be free.
func (d *demand) takes(free *Amount, n int32) Amount {
	a := d.base
	a.Memory = max(a.Memory, d.perGPU*cluster.Bytes(n))
	best := -1
	for i := range MaxPools {
		has := (free.GPUs & d.mask).Of(i)
		if has >= n && n > 0 && (best < 0 || has < (free.GPUs&d.mask).Of(best)) {
			best = i
		}
	}
	if best >= 0 {
		a.GPUs = Lane(best, n)
		return a
	}
	for rest := free.GPUs & d.mask; n > 0 && rest != 0; {
		most := 0
		for i := range MaxPools {
			if rest.Of(i) > rest.Of(most) {
				most = i
			}
		}
		has := min(n, rest.Of(most))
		a.GPUs |= Lane(most, has)
		rest &^= Lane(most, maxLane)
		n -= has
	}
	return a
}

// HostSet is a set of hosts by number.
type HostSet []uint64

// NewHostSet returns an empty set for the hosts 0 to n-1.
func NewHostSet(n int) HostSet { return make(HostSet, (n+63)/64) }

// Add adds a host.
func (s HostSet) Add(h int) { s[h/64] |= 1 << (h % 64) }

func (s HostSet) remove(h int) { s[h/64] &^= 1 << (h % 64) }

// All yields the hosts of the set in ascending order.
func (s HostSet) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, word := range s {
			for ; word != 0; word &= word - 1 {
				if !yield(i*64 + bits.TrailingZeros64(word)) {
					return
				}
			}
		}
	}
}

// Len returns the number of hosts in the set.
func (s HostSet) Len() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// Has reports whether a host is in the set.
func (s HostSet) Has(h int) bool { return s[h/64]&(1<<(h%64)) != 0 }
