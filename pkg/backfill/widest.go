package backfill

import "github.com/greylag/greylag/pkg/cluster"

// Widest returns a start of a want that counts hosts, at an instant and with GPUs of a type: on as many
// hosts as can serve their share then, at most most; false if they are fewer than the want needs. The
// booking that it replaces must be hidden. O(hosts × steps).
func (p *Profile) Widest(w *Want, kind string, at cluster.Instant, most int32) (Start, bool) {
	for i := range w.kinds {
		k := &w.kinds[i]
		if k.kind != kind {
			continue
		}
		p.found = p.found[:0]
		p.gather(w, k, at, len(p.hosts), func(word int) uint64 { return w.hosts[word] })
		n := int32(len(p.found))
		if w.domains != nil {
			n = w.mostHosts(p.counts(w))
		}
		wide := *w
		wide.Need.Nodes = min(n, most)
		if wide.Need.Nodes < w.Need.Nodes || !p.enough(w) {
			return Start{}, false
		}
		return p.choose(&wide, k, at), true
	}
	return Start{}, false
}
