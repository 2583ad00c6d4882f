package backfill

import (
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// demandGroup is the wants that take the same of a host, of the same hosts, the shortest
// first: what a host was given is looked at once for all of them.
type demandGroup struct {
	number int
	key    shapeKey
	wants  []*Want
}

// shapeKey is all that decides what a want takes of which hosts.
type shapeKey struct {
	hosts                  *uint64
	perNode, cpus          int32
	memory                 cluster.MemoryRule
	ofGPU                  cluster.Bytes
	exclusive, linked, one bool
	types, licences        string
}

func (w *Want) key() shapeKey {
	n := &w.Need
	k := shapeKey{
		perNode: n.PerNode, cpus: n.CPUs, memory: n.Memory, ofGPU: n.GPUMemory,
		exclusive: n.Exclusive, linked: n.Linked, one: n.Total == 1, types: strings.Join(n.Types, "\x00"),
	}
	if len(w.hosts) > 0 {
		k.hosts = &w.hosts[0]
	}
	for i := range w.extra {
		k.licences += string(rune(w.extra[i].row)) + "\x00"
	}
	return k
}

// enlist puts a want among those of its shape.
func (p *Profile) enlist(w *Want) {
	key := w.key()
	s := p.shapes[key]
	if s == nil {
		s = &demandGroup{number: len(p.list), key: key}
		p.shapes[key] = s
		p.list = append(p.list, s)
	}
	w.shape = s
	at, _ := slices.BinarySearchFunc(s.wants, w.Lasts, func(w *Want, d time.Duration) int { return int(min(1, max(-1, w.Lasts-d))) })
	s.wants = slices.Insert(s.wants, at, w)
}

// Drop forgets a want that is not looked for any more. O(wants that take the same).
func (p *Profile) Drop(w *Want) {
	s := w.shape
	if s == nil {
		return
	}
	w.shape = nil
	if s.wants = slices.DeleteFunc(s.wants, func(x *Want) bool { return x == w }); len(s.wants) > 0 {
		return
	}
	last := p.list[len(p.list)-1]
	p.list[s.number], last.number = last, s.number
	p.list = p.list[:len(p.list)-1]
	delete(p.shapes, s.key)
}

// EachSooner calls for each want that may be able to start sooner because of what was given
// since the last call, perhaps more than once, and says before when surely not. What it
// calls must give nothing. O(gifts × (shapes + wants that are called for)).
func (p *Profile) EachSooner(sooner func(w *Want, from cluster.Instant)) {
	if p.told.era != p.era { // some gifts are not known any more
		p.told.era, p.told.given = p.era, len(p.gives)
		for _, s := range p.list {
			for _, w := range s.wants {
				sooner(w, p.now)
			}
		}
		return
	}
	for ; p.told.given < len(p.gives); p.told.given++ {
		g := &p.gives[p.told.given]
		for _, s := range p.list {
			from, longest := p.room(s, g)
			for _, w := range s.wants {
				if w.Lasts > longest {
					break
				}
				sooner(w, max(from, g.from.Add(-w.Lasts)+1))
			}
		}
	}
}

// room is for how long at most a host has room for a share of the shape at a stretch that
// a gift is a part of, and since when.
func (p *Profile) room(s *demandGroup, g *freedInterval) (from cluster.Instant, longest time.Duration) {
	w := s.wants[0]
	if g.host < 0 {
		if w.uses(g) {
			return p.now, time.Duration(cluster.Never)
		}
		return 0, 0
	}
	if !w.hosts.Has(g.host) {
		return 0, 0
	}
	r := &p.rows[g.host]
	from = cluster.Never
	for k := range w.kinds {
		d := &w.kinds[k].demands[p.models[g.host]]
		for i := r.at(max(g.from, p.now)); i < len(r.steps) && r.steps[i].from < g.to; i++ {
			if !d.fits(&r.steps[i].free) {
				continue
			}
			first := i
			for first > 0 && d.fits(&r.steps[first-1].free) {
				first--
			}
			for i+1 < len(r.steps) && d.fits(&r.steps[i+1].free) {
				i++
			}
			begins := max(p.now, r.steps[first].from)
			from, longest = min(from, begins), max(longest, r.end(i).Sub(begins))
		}
	}
	return from, longest
}

// uses reports whether a gift is of a licence of the want.
func (w *Want) uses(g *freedInterval) bool {
	return slices.ContainsFunc(w.extra, func(x extra) bool { return x.row == -1-g.host })
}
