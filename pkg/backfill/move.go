package backfill

import "github.com/greylag/greylag/pkg/cluster"

// Move replaces a booking by another start. What a host frees and takes again does not count as
// freed, and the index is updated once.
func (p *Profile) Move(w *Want, at cluster.Instant, shares []HostShare, then *Want, to Start) {
	old, next := span{max(at, p.now), at.Add(w.Lasts)}, span{max(to.At, p.now), to.At.Add(then.Lasts)}
	for i := range shares {
		p.rows[shares[i].Host].Release(old.from, old.to, &shares[i].Amount)
	}
	for i := range to.Shares {
		p.rows[to.Shares[i].Host].Take(next.from, next.to, &to.Shares[i].Amount)
	}
	p.version++
	for i, k := 0, 0; i < len(shares) || k < len(to.Shares); { // both are sorted by host
		switch {
		case k == len(to.Shares) || i < len(shares) && shares[i].Host < to.Shares[k].Host:
			p.changed(shares[i].Host, old)
			p.recordFreedIn(shares[i].Host, old)
			i++
		case i == len(shares) || to.Shares[k].Host < shares[i].Host:
			p.changed(to.Shares[k].Host, next)
			k++
		default:
			p.replaced(&shares[i], &to.Shares[k], old, next)
			i, k = i+1, k+1
		}
	}
	for i := range w.licences {
		p.ReleaseLicences(w.licences[i].row, at, at.Add(w.Lasts), w.licences[i].count.CPUs)
	}
	for i := range then.licences {
		p.TakeLicences(then.licences[i].row, to.At, to.At.Add(then.Lasts), then.licences[i].count.CPUs)
	}
}

// span is an interval of time.
type span struct{ from, to cluster.Instant }

// changed updates the index for an interval of a host.
func (p *Profile) changed(h int, in span) {
	if p.index != nil && in.from < in.to {
		p.index.update(p, h, in.from, in.to)
	}
}

// replaced records that one booking on a host replaces another.
func (p *Profile) replaced(was, is *HostShare, old, next span) {
	h := was.Host
	if old.to < next.from || next.to < old.from {
		p.changed(h, old)
		p.changed(h, next)
	} else {
		p.changed(h, span{min(old.from, next.from), max(old.to, next.to)})
	}
	if !is.Amount.Covers(&was.Amount) {
		next = span{old.to, old.to} // it may have more at each instant
	}
	p.recordFreedIn(h, span{old.from, min(old.to, next.from)})
	p.recordFreedIn(h, span{max(old.from, next.to), old.to})
}

func (p *Profile) recordFreedIn(h int, in span) {
	if in.from < in.to {
		p.recordFreed(freedInterval{h, in.from, in.to})
	}
}
