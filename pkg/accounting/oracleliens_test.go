package accounting

import (
	"cmp"
	"slices"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// The oracle's part for commands about one lien, samples, and passing time.

// onOpen runs the commands that need an open lien.
func (o *oracle) onOpen(d *deed, r *Receipt) *want {
	if d.verb == "resize" && d.amount <= 0 {
		return no(ErrAmount)
	}
	n := o.liens[d.lien]
	switch {
	case n == nil:
		return no(ErrNoLien)
	case n.state != Open:
		return no(ErrSettled)
	}
	asked := n.asked
	r.Lien, n.asked = d.lien, o.now
	w := o.onLien(n, d, r)
	if w != nil {
		n.asked = asked
	}
	return w
}

func (o *oracle) onLien(n *oracleLien, d *deed, r *Receipt) *want {
	switch d.verb {
	case "dispatch":
		return o.dispatch(n, d)
	case "roll":
		o.catchUp(n, r)
	case "resize":
		return o.resize(n, d, r)
	case "withdraw":
		if len(n.segments) > 0 || o.inLien(n.ID, "revenue")+o.refunded(n.ID, -1) > 0 {
			return no(ErrLien)
		}
		r.Released = Credits(o.inLien(n.ID, "held"))
		o.release(n, int64(r.Released))
		delete(o.liens, n.ID)
	case "settle":
		o.setTotal(n, d.total)
		o.catchUp(n, r)
		r.Released = Credits(o.inLien(n.ID, "held"))
		o.release(n, int64(r.Released))
		n.ended, n.state = o.now, Settled
		if d.yes {
			n.state = Provisional
		} else if len(n.segments) == 0 {
			n.state = Unused
		}
	}
	return nil
}

func (o *oracle) resize(n *oracleLien, d *deed, r *Receipt) *want {
	if d.amount > n.Amount {
		more, was := d.amount-n.Amount, n.Amount
		n.Amount, r.Held = d.amount, more
		if w := o.affords(n, int64(more), r); w != nil {
			n.Amount = was
			return w
		}
		return nil
	}
	free := o.inLien(n.ID, "held") - max(0, o.lacks(n))
	r.Released = min(n.Amount-d.amount, Credits(max(0, free)))
	o.release(n, int64(r.Released))
	n.Amount -= r.Released
	return nil
}

func (o *oracle) dispatch(n *oracleLien, d *deed) *want {
	g := Segment{Since: o.now}
	for _, x := range d.granted() {
		if n.Floating && o.priceOf(x.Type, o.now) == nil && o.priceOf(n.Rates[0].GPUType, o.now) == nil {
			return no(ErrNoPrice)
		}
		g.GPUs += x.Count
		g.Mix = append(g.Mix, Priced{GPUs: x})
	}
	n.segments = append(n.segments, g)
	return nil
}

// priceOf returns the price of a type in force at an instant; nil when none exists.
func (o *oracle) priceOf(gpuType string, at cluster.Instant) (best *priceSet) {
	for i := range o.prices {
		p := &o.prices[i]
		if p.GPUType == gpuType && p.from <= at && (best == nil || p.from >= best.from) {
			best = p
		}
	}
	return best
}

// believable returns the longest possible counter of a segment.
func (o *oracle) believable(n *oracleLien, i int) int64 {
	end := o.now
	if i+1 < len(n.segments) {
		end = n.segments[i+1].Since
	}
	ns := int64(end-n.segments[i].Since) + int64(5*time.Second)
	return (ns + 999_999) / 1_000_000 * n.segments[i].GPUs
}

func (o *oracle) setTotal(n *oracleLien, total int64) {
	if i := len(n.segments) - 1; i >= 0 && total >= 0 {
		n.segments[i].Base, n.segments[i].Count = 0, min(total, o.believable(n, i))
	}
}

func (o *oracle) amend(d *deed, r *Receipt) *want {
	n := o.liens[d.lien]
	switch {
	case n == nil:
		return no(ErrNoLien)
	case n.state != Provisional:
		return no(ErrSettled)
	case d.total >= 0 && o.now-n.ended > cluster.Instant(24*time.Hour):
		return no(ErrTooLate)
	}
	r.Lien = d.lien
	o.setTotal(n, d.total)
	// Its own buckets come first, if they have anything.
	lacks := max(0, o.lacks(n))
	for _, p := range n.parts {
		if p.bucket == 0 || !o.valid(o.bucket(p.bucket)) || !o.below(n.Chain[0], o.bucket(p.bucket).Owner[0]) {
			continue
		}
		x := min(lacks, o.payable(o.bucket(p.bucket), n))
		o.move(movement{from: "avail", to: "held", bucket: p.bucket, lien: n.ID, part: p.number, node: n.Chain[0], amount: x})
		lacks -= x
	}
	o.catchUp(n, r)
	n.state = Settled
	return nil
}

// adjust is a refund or a correction.
func (o *oracle) adjust(d *deed, r *Receipt) *want {
	if d.amount <= 0 || d.when > o.now {
		return no(ErrAmount)
	}
	n := o.liens[d.lien]
	if n == nil {
		return no(ErrNoLien)
	}
	r.Lien = d.lien
	if d.verb == "correct" {
		o.charge(n, int64(d.amount), r)
		n.adjusted += int64(d.amount)
		return nil
	}
	if net := o.inLien(n.ID, "revenue"); int64(d.amount) > net {
		return &want{ErrRefund, n.Chain[0], int64(d.amount), net, 0}
	}
	r.Returned = Credits(o.giveBack(n, int64(d.amount), d.when))
	return nil
}

// meter takes a sample.
func (o *oracle) meter(x Sample) {
	n := o.liens[x.Lien]
	if n == nil || n.state != Open || x.Segment >= len(n.segments) {
		return
	}
	g := &n.segments[x.Segment]
	switch {
	case x.Epoch < g.Epoch, x.Epoch == g.Epoch && (x.Number <= g.Sample || x.Count < g.Count):
		return
	case x.Epoch > g.Epoch:
		g.Base, g.Count, g.Epoch = g.Base+g.Count, 0, x.Epoch
	}
	if most := o.believable(n, x.Segment) - g.Base; x.Count > g.Count && most > g.Count {
		g.Count = min(x.Count, most)
	}
	g.Sample, n.asked = x.Number, o.now
}

// pass advances the oracle's time.
func (o *oracle) pass(at cluster.Instant) {
	o.now = max(o.now+1, at)
	type event struct {
		at    cluster.Instant
		b     *oracleBucket
		begin bool
	}
	var events []event
	for _, b := range o.buckets {
		if b.waits && b.Effective <= o.now {
			events = append(events, event{b.Effective, b, true})
		}
		if b.Expires != 0 && !b.expired && b.Expires <= o.now {
			events = append(events, event{b.Expires, b, false})
		}
	}
	slices.SortFunc(events, func(x, y event) int { return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.b.id, y.b.id)) })
	for _, e := range events {
		if e.begin {
			e.b.waits = false
			o.repay(e.b)
			continue
		}
		e.b.expired = true
		o.move(movement{from: "avail", to: "gone", bucket: e.b.id, amount: o.inBucket(e.b.id, "avail")})
		if e.b.Cutoff {
			o.cutOff(e.b, e.at)
		}
	}
	for key, k := range o.keys {
		if o.now-k.at > cluster.Instant(32*24*time.Hour) {
			delete(o.keys, key)
		}
	}
}

// cutOff removes what liens hold of a bucket beyond what they consumed until it expired, and
// replaces it from others.
func (o *oracle) cutOff(b *oracleBucket, expired cluster.Instant) {
	var holding []*oracleLien
	for _, n := range o.liens {
		for _, p := range n.parts {
			if p.bucket == b.id && o.inPart(n.ID, p.number, "held") > 0 && !slices.Contains(holding, n) {
				holding = append(holding, n)
			}
		}
	}
	slices.SortFunc(holding, func(x, y *oracleLien) int {
		return cmp.Or(cmp.Compare(x.ID.Job, y.ID.Job), cmp.Compare(x.ID.Attempt, y.ID.Attempt))
	})
	for _, n := range holding {
		consumed := o.consumed(n, expired)
		var dropped int64
		n.parts = slices.DeleteFunc(n.parts, func(p oraclePart) bool {
			held := o.inPart(n.ID, p.number, "held")
			kept := min(held, consumed)
			consumed -= kept
			if p.bucket != b.id {
				return false
			}
			dropped += held - kept
			o.move(movement{from: "held", to: "gone", bucket: b.id, lien: n.ID, part: p.number, node: n.Chain[0], amount: held - kept})
			return kept+o.inPart(n.ID, p.number, "revenue")+o.refunded(n.ID, p.number) == 0
		})
		ids, sums, got := o.choose(n, dropped)
		o.hold(n, ids, sums)
		n.Amount -= Credits(dropped - got)
		n.cutShort = n.cutShort || got < dropped
	}
}

// consumed returns the cost of a lien's segments at an instant, the last one by elapsed time, less
// what was charged.
func (o *oracle) consumed(n *oracleLien, at cluster.Instant) int64 {
	last := len(n.segments) - 1
	if last < 0 {
		return 0
	}
	x := *n
	x.segments, x.asked = slices.Clone(n.segments), max(n.asked, at)
	g := &x.segments[last]
	ms := (max(0, int64(at-g.Since)) + 999_999) / 1_000_000
	g.Base, g.Count = max(g.Base+g.Count, ms*g.GPUs), 0
	return max(0, o.lacks(&x))
}
