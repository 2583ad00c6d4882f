package accounting

import (
	"cmp"
	"slices"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

func no(why error) *want { return &want{why: why} }

// does is what the oracle makes of a command that was not done before.
func (o *oracle) does(d *deed, r *Receipt) *want {
	switch d.verb {
	case "grant":
		return o.grant(d.grant, r)
	case "void":
		return o.void(d.bucket, r)
	case "budget":
		return o.setBudget(d)
	case "price":
		if d.when != 0 && d.when < o.now {
			return no(ErrInvalid)
		}
		o.prices = append(o.prices, priceSet{Rate{d.gpuType, d.amount}, max(d.when, o.now)})
	case "place":
		return o.place(d.claim, r)
	case "move":
		return o.rehang(d.chain)
	case "close":
		if d.when <= o.closed || d.when > o.now || o.periods[d.name] {
			return no(ErrPeriod)
		}
		o.closed, o.periods[d.name] = d.when, true
	case "refund", "correct":
		return o.adjust(d, r)
	case "amend":
		return o.amend(d, r)
	default:
		return o.onOpen(d, r)
	}
	return nil
}

// chainKnown checks a chain against the parents there are.
func (o *oracle) chainKnown(c Chain) *want {
	for i, id := range c {
		parent := NodeID("")
		if i+1 < len(c) {
			parent = c[i+1]
		}
		if n := o.nodes[id]; n != nil && n.parent != parent {
			return no(ErrChain)
		}
	}
	return nil
}

func (o *oracle) openChain(c Chain) {
	for i, id := range c {
		if o.nodes[id] == nil {
			o.nodes[id] = &oracleNode{}
			if i+1 < len(c) {
				o.nodes[id].parent = c[i+1]
			}
		}
	}
}

func (o *oracle) grant(g Grant, r *Receipt) *want {
	if g.Amount <= 0 {
		return no(ErrAmount)
	}
	if g.Expires != 0 && (g.Expires <= g.Effective || g.Expires <= o.now) {
		return no(ErrInvalid)
	}
	if w := o.chainKnown(g.Owner); w != nil {
		return w
	}
	if g.Code != "" {
		if o.codes[g.Code] >= g.Redeems {
			return no(ErrExhausted)
		}
		o.codes[g.Code]++
	}
	if g.Effective == 0 {
		g.Effective = o.now
	}
	o.openChain(g.Owner)
	b := o.mint(g)
	o.move(movement{from: "source", to: "avail", bucket: b.id, amount: int64(g.Amount)})
	o.repay(b)
	r.Bucket = b.id
	return nil
}

func (o *oracle) void(id BucketID, r *Receipt) *want {
	if id == 0 || int(id) > len(o.buckets) {
		return no(ErrNoBucket)
	}
	b, left := o.bucket(id), o.inBucket(id, "avail")
	b.voided = true
	o.move(movement{from: "avail", to: "gone", bucket: id, amount: left})
	r.Bucket, r.Released = id, Credits(left)
	return nil
}

func (o *oracle) setBudget(d *deed) *want {
	if w := o.chainKnown(d.chain); w != nil {
		return w
	}
	o.openChain(d.chain)
	n := o.nodes[d.chain[0]]
	if n.budget.Window != d.budget.Window {
		n.since = len(o.movements)
	}
	n.budget = d.budget
	return nil
}

// affords checks debts and budgets from the leaf up, then whether there are credits.
func (o *oracle) affords(n *oracleLien, amount int64, r *Receipt) *want {
	for _, id := range n.Chain {
		node := o.nodes[id]
		if node == nil {
			continue
		}
		if _, _, _, owes := o.sums(id); owes > 0 {
			return &want{ErrDebt, id, amount, -owes, 0}
		}
		used, limit := o.used(id), int64(node.budget.Limit)
		if limit == 0 || used+amount <= limit {
			continue
		}
		if node.budget.Hard {
			return &want{ErrBudget, id, amount, limit - used, limit}
		}
		r.Warnings = append(r.Warnings, Warning{id, Credits(used + amount), Credits(limit)})
	}
	ids, sums, got := o.choose(n, amount)
	if got < amount {
		return &want{ErrCredits, n.Chain[0], amount, got, 0}
	}
	o.openChain(n.Chain)
	o.hold(n, ids, sums)
	return nil
}

func (o *oracle) place(c Claim, r *Receipt) *want {
	switch {
	case c.Amount <= 0:
		return no(ErrAmount)
	case o.liens[c.ID] != nil:
		return no(ErrLien)
	}
	if w := o.chainKnown(c.Chain); w != nil {
		return w
	}
	n := &oracleLien{Claim: c}
	if w := o.affords(n, int64(c.Amount), r); w != nil {
		return w
	}
	o.liens[c.ID], r.Lien, r.Held = n, c.ID, c.Amount
	return nil
}

// rehang moves an account to other ancestors.
func (o *oracle) rehang(c Chain) *want {
	n := o.nodes[c[0]]
	if slices.Contains(c[1:], c[0]) {
		return no(ErrInvalid)
	}
	if n == nil || len(c) == 1 && n.parent == "" || len(c) > 1 && n.parent == c[1] {
		return nil
	}
	if w := o.chainKnown(c[1:]); w != nil {
		return w
	}
	o.openChain(c[1:])
	n.parent = ""
	if len(c) > 1 {
		n.parent = c[1]
	}
	for _, x := range o.liens {
		if at := slices.Index(x.Chain, c[0]); at >= 0 {
			x.Chain = slices.Concat(x.Chain[:at], c)
		}
	}
	return nil
}

// onOpen does what only open liens take.
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
	r.Lien = d.lien
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
	price := n.Rates[0].Price
	for _, x := range n.Rates {
		if x.GPUType == d.gpuType {
			price = min(price, x.Price)
		}
	}
	if n.Floating {
		var best *priceSet
		for i := range o.prices {
			p := &o.prices[i]
			if p.GPUType == d.gpuType && p.from <= o.now && (best == nil || p.from >= best.from) {
				best = p
			}
		}
		if best == nil {
			return no(ErrNoPrice)
		}
		price = best.Price
	}
	n.segments = append(n.segments, Segment{GPUs: d.gpus, Price: price, Since: o.now})
	return nil
}

// believable is the longest that a segment's counter can have run.
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
		if p.bucket == 0 || !o.valid(o.bucket(p.bucket)) {
			continue
		}
		x := min(lacks, o.inBucket(p.bucket, "avail"))
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
	r.Returned = Credits(o.giveBack(n, int64(d.amount)))
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
	g.Sample = x.Number
}

// pass moves the oracle's time on.
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
			o.cutOff(e.b)
		}
	}
	for key, k := range o.keys {
		if o.now-k.at > cluster.Instant(32*24*time.Hour) {
			delete(o.keys, key)
		}
	}
}

// cutOff takes what liens hold of a bucket and gives them as much of others.
func (o *oracle) cutOff(b *oracleBucket) {
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
		o.catchUp(n, &Receipt{})
		var dropped int64
		n.parts = slices.DeleteFunc(n.parts, func(p oraclePart) bool {
			held := o.inPart(n.ID, p.number, "held")
			if p.bucket != b.id {
				return false
			}
			dropped += held
			o.move(movement{from: "held", to: "gone", bucket: b.id, lien: n.ID, part: p.number, node: n.Chain[0], amount: held})
			return o.inPart(n.ID, p.number, "revenue")+o.refunded(n.ID, p.number) == 0
		})
		ids, sums, got := o.choose(n, dropped)
		o.hold(n, ids, sums)
		n.Amount -= Credits(dropped - got)
	}
}
