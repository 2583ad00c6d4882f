package backfill

import (
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// demandGroup holds the wants that take the same of the same hosts, the shortest first: what became
// free on a host is checked once for all of them.
type demandGroup struct {
	number int
	key    demandKey
	wants  []*Want
}

// demandKey is all that decides on which hosts a want may start, and what it takes of them.
type demandKey struct {
	hosts                  *uint64
	perNode, cpus          int32
	memory                 cluster.MemoryRule
	ofGPU                  cluster.Bytes
	exclusive, linked, one bool
	types, licences, gres  string
}

func (w *Want) key() demandKey {
	n := &w.Need
	k := demandKey{
		perNode: n.PerNode, cpus: n.CPUs, memory: n.Memory, ofGPU: n.GPUMemory,
		exclusive: n.Exclusive, linked: n.Linked, one: n.Total == 1, types: strings.Join(n.Types, "\x00"),
		gres: cluster.FormatGres(n.Gres),
	}
	if len(w.hosts) > 0 {
		k.hosts = &w.hosts[0]
	}
	for i := range w.licences {
		k.licences += string(rune(w.licences[i].row)) + "\x00"
	}
	return k
}

// addWant adds a want to its group.
func (p *Profile) addWant(w *Want) {
	key := w.key()
	s := p.groups[key]
	if s == nil {
		s = &demandGroup{number: len(p.groupList), key: key}
		p.groups[key] = s
		p.groupList = append(p.groupList, s)
	}
	w.group = s
	at, _ := slices.BinarySearchFunc(s.wants, w.Lasts, func(w *Want, d time.Duration) int { return int(min(1, max(-1, w.Lasts-d))) })
	s.wants = slices.Insert(s.wants, at, w)
}

// Drop removes a want that is not searched for any more. O(wants of its group).
func (p *Profile) Drop(w *Want) {
	s := w.group
	if s == nil {
		return
	}
	w.group = nil
	if s.wants = slices.DeleteFunc(s.wants, func(x *Want) bool { return x == w }); len(s.wants) > 0 {
		return
	}
	last := p.groupList[len(p.groupList)-1]
	p.groupList[s.number], last.number = last, s.number
	p.groupList = p.groupList[:len(p.groupList)-1]
	delete(p.groups, s.key)
}

// EachSooner calls f for each want that freed capacity may let start earlier since the last call,
// perhaps more than once, with the instant before which it surely cannot. f must free nothing.
// O(freed intervals × (groups + wants that are called for)).
func (p *Profile) EachSooner(sooner func(w *Want, from cluster.Instant)) {
	if p.notified.era != p.era { // some freed intervals were dropped
		p.notified.era, p.notified.given = p.era, len(p.freed)
		for _, s := range p.groupList {
			for _, w := range s.wants {
				sooner(w, p.now)
			}
		}
		return
	}
	for ; p.notified.given < len(p.freed); p.notified.given++ {
		g := &p.freed[p.notified.given]
		for _, s := range p.groupList {
			from, longest := p.longestFit(s, g)
			for _, w := range s.wants {
				if w.Lasts > longest {
					break
				}
				sooner(w, max(from, g.from.Add(-w.Lasts)+1))
			}
		}
	}
}

// longestFit returns for how long at most a host can serve a share of the group around a freed
// interval, and since when.
func (p *Profile) longestFit(s *demandGroup, g *freedInterval) (from cluster.Instant, longest time.Duration) {
	w := s.wants[0]
	if g.host < 0 {
		if w.usesLicence(g) {
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

// usesLicence reports whether a freed interval is of a licence of the want.
func (w *Want) usesLicence(g *freedInterval) bool {
	return slices.ContainsFunc(w.licences, func(x licenceDemand) bool { return x.row == -1-g.host })
}
