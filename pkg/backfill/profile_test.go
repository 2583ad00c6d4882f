package backfill

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// world is a profile with a plain list of what was taken on each host.
type world struct {
	*testing.T
	r       *rand.Rand
	p       *Profile
	domains []int32
	groups  []int32 // of domains
	taken   []booked
	soonest map[*Want]cluster.Instant // as of the last check
	left    [][]Amount                // by host and minute from now on
}

type booked struct {
	want  *Want
	at    cluster.Instant
	start Start
}

const minute = cluster.Instant(time.Minute)

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{T: t, r: rand.New(rand.NewPCG(seed, 2))}
	var hosts []*topology.Host
	count := []int{3, 20, 70}[w.r.IntN(3)]
	for h := range count {
		n := cluster.Node{Name: fmt.Sprintf("n%03d", h), CPUs: 8, Memory: 64}
		two := w.r.IntN(4) == 0
		for i := range int32(4) {
			g := cluster.GPU{Index: i, Type: "a", Memory: 40, Domain: "d0"}
			if two && i >= 2 {
				g.Domain = "d1"
			}
			if two && h%2 == 0 {
				g.Memory = 80
			}
			n.GPUs = append(n.GPUs, g)
		}
		hosts = append(hosts, topology.NewHost(&n))
		w.domains = append(w.domains, int32(h/max(2, count/10)))
	}
	for d := range w.domains[count-1] + 1 {
		w.groups = append(w.groups, d/3)
	}
	w.left, w.soonest = make([][]Amount, count), map[*Want]cluster.Instant{}
	none := slices.Repeat([]int32{-1}, count)
	w.p = New(minute*1000, hosts, [][]int32{none, w.domains}, []int32{5})
	return w
}

// ask returns a random want.
func (w *world) ask() *Want {
	q := cluster.Request{Nodes: 1, TasksPerNode: 1, CPUsPerTask: 1 + w.r.Int32N(4), MemPerNode: cluster.Bytes(w.r.IntN(32))}
	where := HostConstraint{}
	switch w.r.IntN(6) {
	case 0:
		q.Nodes, q.GPUs = 0, 1+w.r.Int32N(14)
		if w.r.IntN(2) == 0 { // on few hosts, in few domains
			where = HostConstraint{Domains: w.domains, Most: 1 + w.r.Int32N(2)}
			q.Nodes = min(w.r.Int32N(5), q.GPUs)
		}
	case 1:
		q.Nodes, q.GPUsPerNode, q.Exclusive = 1+w.r.Int32N(3), w.r.Int32N(5), true
	case 2:
		q.Nodes, q.GPUsPerNode = 1+w.r.Int32N(5), 1+w.r.Int32N(4)
		where = HostConstraint{Domains: w.domains, Most: 1 + w.r.Int32N(2)}
	case 3:
		q.GPUsPerNode, q.Connect = 1+w.r.Int32N(2), cluster.ConnectNode
	default:
		q.Nodes, q.GPUsPerNode = 1+w.r.Int32N(2), w.r.Int32N(5)
	}
	if where.Most > 1 && w.r.IntN(2) == 0 {
		where.Groups = w.groups
	}
	var licences []Licence
	if w.r.IntN(6) == 0 {
		licences = []Licence{{0, 1 + w.r.Int32N(3)}}
	}
	need := topology.NeedOf(&q)
	if q.GPUs > 0 && q.Nodes == 0 {
		need.Most = w.r.Int32N(4)
	}
	return w.p.Want(need, time.Duration(1+w.r.IntN(90))*time.Minute, where, licences...)
}

// free returns what is free of a host for the duration of a want, by checking every minute of it.
func (w *world) free(h int, at cluster.Instant, lasts time.Duration) Amount {
	least := w.p.All(h)
	for t := at; t < at.Add(lasts); t += minute {
		if m := w.minute(h, t); m != nil {
			least.both(m)
		}
	}
	return least
}

// minute returns what is free of a host in one minute.
func (w *world) minute(h int, t cluster.Instant) *Amount {
	i := int((t - w.p.Now()) / minute)
	for len(w.left[h]) <= i {
		w.left[h] = append(w.left[h], w.p.All(h))
	}
	return &w.left[h][i]
}

// record takes or frees what a start has, minute by minute.
func (w *world) record(b booked, by func(*Amount, *Amount)) {
	for _, s := range b.start.Shares {
		for t := b.at; t < b.at.Add(b.want.Lasts); t += minute {
			by(w.minute(s.Host, t), &s.Amount)
		}
	}
}

// fits reports whether a want fits at an instant, by trying.
func (w *world) fits(x *Want, at cluster.Instant) bool {
	for _, e := range x.licences {
		for t := at; t < at.Add(x.Lasts); t += minute {
			used := e.count.CPUs
			for _, b := range w.taken {
				if len(b.want.licences) > 0 && b.at <= t && t < b.at.Add(b.want.Lasts) {
					used += b.want.licences[0].count.CPUs
				}
			}
			if used > 5 {
				return false
			}
		}
	}
	return w.suffice(x, w.candidates(x, func(h int) Amount { return w.free(h, at, x.Lasts) }), nil)
}

// candidates returns the hosts that can be one of a want's nodes, given what is free of each.
func (w *world) candidates(x *Want, free func(h int) Amount) []candidate {
	var hosts []candidate
	for h := range w.p.Hosts() {
		has := free(h)
		d := &x.kinds[0].demands[w.p.models[h]]
		if d.fits(&has) {
			hosts = append(hosts, candidate{host: h, gives: d.gives(&has)})
		}
	}
	return hosts
}

// suffice reports whether a want has enough hosts in some domains, with every choice of further
// ones that it allows.
func (w *world) suffice(x *Want, hosts []candidate, in []int32) bool {
	var gives []int32
	next := int32(-1) // domains are added in order
	if len(in) > 0 {
		next = in[len(in)-1]
	}
	for i := range hosts {
		if x.domains == nil || slices.Contains(in, w.domains[hosts[i].host]) {
			gives = append(gives, hosts[i].gives)
		}
	}
	slices.SortFunc(gives, func(a, b int32) int { return int(b - a) })
	nodes := int(x.Need.Nodes)
	if x.Need.PerNode >= 0 && len(gives) >= nodes {
		return true
	}
	sum := int32(0)
	for n, g := range gives {
		sum += g
		if fits := nodes == 0 && (x.Need.Most == 0 || n < int(x.Need.Most)) || n+1 == nodes; fits && x.Need.PerNode < 0 && sum >= x.Need.Total {
			return true
		}
	}
	if x.domains == nil || len(in) == int(x.most) {
		return false
	}
	for _, h := range hosts {
		d := w.domains[h.host]
		if d <= next || len(in) > 0 && x.groups != nil && w.groups[d] != w.groups[in[0]] {
			continue
		}
		if next = d; w.suffice(x, hosts, append(slices.Clone(in), d)) {
			return true
		}
	}
	return false
}

// FuzzEarliest compares searches with an oracle that tries every minute.
func FuzzEarliest(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		w := newWorld(t, seed)
		wants := []*Want{w.ask(), w.ask(), w.ask(), w.ask(), w.ask()}
		for i := range 60 {
			w.checkNotified(wants)
			if len(w.taken) > 0 && w.r.IntN(4) == 0 {
				j := w.r.IntN(len(w.taken))
				w.p.Unbook(w.taken[j].want, w.taken[j].at, w.taken[j].start.Shares)
				w.record(w.taken[j], (*Amount).more)
				w.taken = slices.Delete(w.taken, j, j+1)
				continue
			}
			if len(w.taken) > 0 {
				w.regroup(w.r.IntN(len(w.taken)))
			}
			x := wants[w.r.IntN(len(wants))]
			if !w.p.FitsEmpty(x) {
				if w.suffice(x, w.candidates(x, w.p.All), nil) {
					t.Fatalf("step %d: %+v would fit if nothing were taken", i, x.Need)
				}
				continue
			}
			if len(w.taken) > 0 && w.r.IntN(4) == 0 {
				w.move(x)
				continue
			}
			from := w.p.Now()
			if w.r.IntN(3) == 0 {
				from += minute * cluster.Instant(w.r.IntN(60))
			}
			s, ok := w.p.Earliest(x, from, cluster.Never)
			if !ok {
				t.Fatalf("step %d: %+v never fits", i, x.Need)
			}
			for at := from; at <= s.At; at += minute {
				if w.fits(x, at) != (at == s.At) {
					t.Fatalf("step %d: %+v for %v fits at %d: %v; found %d", i, x.Need, x.Lasts, at/minute, at != s.At, s.At/minute)
				}
			}
			w.checkIndex()
			w.check(x, s)
			w.taken = append(w.taken, booked{x, s.At, s})
			w.record(w.taken[len(w.taken)-1], (*Amount).less)
			w.p.Book(x, s.At, s.Shares)
		}
	})
}

// move replaces a booking by a start of another want.
func (w *world) move(x *Want) {
	b := &w.taken[w.r.IntN(len(w.taken))]
	w.p.Hide(b.want, b.at, b.start.Shares)
	s, ok := w.p.Search(x, w.p.Now(), cluster.Never)
	w.p.Show(b.want, b.at, b.start.Shares)
	if !ok {
		w.Fatalf("%+v never fits", x.Need)
	}
	w.record(*b, (*Amount).more)
	w.check(x, s)
	w.p.Move(b.want, b.at, b.start.Shares, x, s)
	*b = booked{x, s.At, s}
	w.record(*b, (*Amount).less)
	w.checkIndex()
}

// checkNotified checks that EachSooner reported every want that can start earlier than before.
func (w *world) checkNotified(wants []*Want) {
	reported := map[*Want]cluster.Instant{}
	w.p.EachSooner(func(x *Want, from cluster.Instant) {
		if first, ok := reported[x]; !ok || from < first {
			reported[x] = from
		}
	})
	for _, x := range wants {
		if !w.p.FitsEmpty(x) {
			continue
		}
		s, ok := w.p.Search(x, w.p.Now(), cluster.Never)
		if !ok {
			continue
		}
		from, known := reported[x]
		if before := w.soonest[x]; s.At < before && (!known || from > s.At) {
			w.Fatalf("%+v for %v can start at %d, not %d, and was reported (%v) from %d on", x.Need, x.Lasts, s.At/minute, before/minute, known, from/minute)
		}
		w.soonest[x] = s.At
	}
}

// check checks a start: enough hosts, and all free.
func (w *world) check(x *Want, s Start) {
	gpus := int32(0)
	domains, groups := map[int32]bool{}, map[int32]bool{}
	for _, share := range s.Shares {
		free := w.free(share.Host, s.At, x.Lasts)
		if !free.Covers(&share.Amount) || share.Amount.GPUs.Sum(^tops) != share.GPUs {
			w.Fatalf("%+v takes %+v of %+v", x.Need, share, free)
		}
		gpus += share.GPUs
		domains[w.domains[share.Host]] = true
		groups[w.groups[w.domains[share.Host]]] = true
	}
	if x.groups != nil && len(groups) > 1 || x.Need.Most > 0 && len(s.Shares) > int(x.Need.Most) {
		w.Fatalf("%+v got %+v", x.Need, s.Shares)
	}
	if gpus != x.Need.Total || x.Need.Nodes > 0 && len(s.Shares) != int(x.Need.Nodes) || x.domains != nil && len(domains) > int(x.most) {
		w.Fatalf("%+v got %+v", x.Need, s.Shares)
	}
}

// checkIndex recomputes the index from the rows.
func (w *world) checkIndex() {
	c := w.p.index
	if c == nil {
		return
	}
	for n, l := range c.layers {
		fits := make([][]bool, len(w.p.rows)) // by host and step
		for h := range w.p.rows {
			for i := range w.p.rows[h].steps {
				fits[h] = append(fits[h], l.demands[w.p.models[h]].fits(&w.p.rows[h].steps[i].free))
			}
		}
		first := make([]int, len(w.p.rows)) // the step in which the bin begins
		b := 0
		for over := false; !over; b++ { // up to one in which nothing changes any more
			w.checkBin(n, b, fits, first)
			over = !slices.ContainsFunc(w.p.rows, func(r Row) bool { return r.steps[len(r.steps)-1].from > c.begin(b) })
		}
		for last := b - 1; b < maxBins/16; b++ {
			min, max := l.counts(b)
			if x, y := l.counts(last); x != min || y != max || !slices.Equal(l.once(b), l.once(last)) || !slices.Equal(c.throughout(l, b), c.throughout(l, last)) {
				w.Fatalf("layer %d: bin %d is not as %d, and no step is between", n, b, last)
			}
		}
	}
}

// throughout returns the hosts that can serve a layer throughout a bin.
func (c *binIndex) throughout(l *layer, b int) []uint64 {
	set := slices.Repeat([]uint64{^uint64(0)}, c.words)
	l.keep(set, b)
	return set
}

// checkBin recomputes one bin of a layer.
func (w *world) checkBin(n, b int, fits [][]bool, first []int) {
	c, l := w.p.index, w.p.index.layers[n]
	nmin, nmax := int32(0), int32(0)
	begin, end := c.begin(b), c.begin(b+1)
	all, some := c.throughout(l, b), l.once(b)
	for h := range w.p.rows {
		least, once := true, false
		steps, i := w.p.rows[h].steps, first[h]
		for i+1 < len(steps) && steps[i+1].from <= begin {
			i++
		}
		first[h] = i
		for ; i < len(steps) && steps[i].from < end; i++ {
			least, once = least && fits[h][i], once || fits[h][i]
		}
		if some[h/64]>>(h%64)&1 == 1 != once {
			w.Fatalf("layer %d, bin %d, host %d: once is %v", n, b, h, once)
		}
		if all[h/64]>>(h%64)&1 == 1 != least {
			w.Fatalf("layer %d, bin %d, host %d: throughout is %v", n, b, h, least)
		}
		if least {
			nmin++
		}
		if once {
			nmax++
		}
	}
	if x, y := l.counts(b); x != nmin || y != nmax {
		w.Fatalf("layer %d, bin %d: counts %d %d, not %d %d", n, b, x, y, nmin, nmax)
	}
}
