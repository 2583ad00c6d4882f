package accounting

import (
	"cmp"
	"math/big"
	"slices"

	"github.com/greylag/greylag/pkg/cluster"
)

// How the oracle moves money: where an amount comes from, and where it returns.

// choose finds buckets for an amount in spending order.
func (o *oracle) choose(n *oracleLien, amount int64) (ids []BucketID, sums []int64, got int64) {
	type candidate struct {
		b     *oracleBucket
		depth int
	}
	var all []candidate
	for _, b := range o.buckets {
		if depth := slices.Index(n.Chain, b.Owner[0]); depth >= 0 && o.valid(b) {
			all = append(all, candidate{b, depth})
		}
	}
	last := func(at cluster.Instant) cluster.Instant {
		if at == 0 {
			return cluster.Never
		}
		return at
	}
	slices.SortFunc(all, func(x, y candidate) int {
		return cmp.Or(int(x.b.Priority-y.b.Priority), cmp.Compare(last(x.b.Expires), last(y.b.Expires)),
			int(x.b.Class)-int(y.b.Class), cmp.Compare(x.b.Effective, y.b.Effective),
			x.depth-y.depth, cmp.Compare(x.b.id, y.b.id))
	})
	for _, c := range all {
		if x := min(o.payable(c.b, n), amount-got); x > 0 {
			ids, sums, got = append(ids, c.b.id), append(sums, x), got+x
		}
	}
	return ids, sums, got
}

// payable returns how much more of a bucket a lien may take.
func (o *oracle) payable(b *oracleBucket, n *oracleLien) int64 {
	s := b.Scope
	if len(s.QOS) > 0 && !slices.Contains(s.QOS, n.QOS) {
		return 0
	}
	in, on := slices.Clone(n.Partitions), []string{}
	if len(in) == 0 {
		in = []string{n.Partition}
	}
	for _, r := range n.Rates {
		on = append(on, r.GPUType)
	}
	for _, g := range n.segments {
		for _, x := range g.Mix {
			on = append(on, x.Type)
		}
	}
	beyond := func(allowed, all []string) bool {
		return len(allowed) > 0 && slices.ContainsFunc(all, func(x string) bool { return !slices.Contains(allowed, x) })
	}
	if beyond(s.Partitions, in) || beyond(s.GPUTypes, on) {
		return 0
	}
	most := o.inBucket(b.id, "avail")
	var put int64
	for _, p := range n.parts {
		if p.bucket == b.id {
			put += o.inPart(n.ID, p.number, "held") + o.inPart(n.ID, p.number, "revenue")
		}
	}
	if s.PerJob > 0 {
		most = min(most, int64(s.PerJob)-put)
	}
	if s.Permille > 0 {
		share := new(big.Int).Mul(big.NewInt(int64(n.Amount)), big.NewInt(s.Permille))
		most = min(most, share.Quo(share, big.NewInt(1000)).Int64()-put)
	}
	return max(0, most)
}

// hold moves the chosen amounts into the lien.
func (o *oracle) hold(n *oracleLien, ids []BucketID, sums []int64) {
	for i, id := range ids {
		if len(n.parts) == 0 || n.parts[len(n.parts)-1].bucket != id {
			n.add(id)
		}
		o.move(movement{from: "avail", to: "held", bucket: id, lien: n.ID, part: n.parts[len(n.parts)-1].number, node: n.Chain[0], amount: sums[i]})
	}
}

// charge takes from what is held, then from other buckets, then on credit.
func (o *oracle) charge(n *oracleLien, amount int64, r *Receipt) {
	r.Charged += Credits(amount)
	for _, p := range n.parts {
		x := min(o.inPart(n.ID, p.number, "held"), amount)
		o.move(movement{from: "held", to: "revenue", bucket: p.bucket, lien: n.ID, part: p.number, node: n.Chain[0], amount: x})
		amount -= x
	}
	ids, sums, got := o.choose(n, amount)
	for i, id := range ids {
		o.move(movement{from: "avail", to: "revenue", bucket: id, lien: n.ID, part: n.add(id), node: n.Chain[0], amount: sums[i]})
	}
	if amount -= got; amount > 0 {
		o.move(movement{from: "debt", to: "revenue", lien: n.ID, part: n.add(0), node: n.Chain[0], amount: amount})
		r.Debt += Credits(amount)
	}
}

// release returns what is held, the last part first.
func (o *oracle) release(n *oracleLien, amount int64) {
	for i := len(n.parts) - 1; i >= 0; i-- {
		p := n.parts[i]
		x := min(o.inPart(n.ID, p.number, "held"), amount)
		if x == 0 {
			continue
		}
		amount -= x
		o.move(movement{from: "held", to: "avail", bucket: p.bucket, lien: n.ID, part: p.number, node: n.Chain[0], amount: x})
		o.arrive(o.bucket(p.bucket), x)
	}
}

// giveBack refunds, the last part first.
func (o *oracle) giveBack(n *oracleLien, amount int64, about cluster.Instant) (given int64) {
	for i := len(n.parts) - 1; i >= 0; i-- {
		p := n.parts[i]
		x := min(o.inPart(n.ID, p.number, "revenue"), amount-given)
		if x == 0 {
			continue
		}
		given += x
		back := movement{from: "revenue", to: "avail", bucket: p.bucket, lien: n.ID, part: p.number, node: n.Chain[0], amount: x, about: about}
		if p.bucket != 0 {
			o.move(back)
			o.arrive(o.bucket(p.bucket), x)
			continue
		}
		_, _, _, owes := o.sums(n.Chain[0])
		back.to, back.amount = "debt", min(x, owes)
		o.move(back)
		if x > owes {
			b := o.mint(Grant{Owner: n.Chain, Class: RefundClass, Amount: Credits(x - owes), Effective: o.now})
			back.to, back.amount = "new bucket", x-owes
			o.move(back)
			o.move(movement{from: "new bucket", to: "avail", bucket: b.id, amount: x - owes})
			o.repay(b)
		}
	}
	return given
}

func (o *oracle) mint(g Grant) *oracleBucket {
	g.Owner = slices.Clone(g.Owner)
	b := &oracleBucket{Grant: g, id: BucketID(len(o.buckets) + 1), waits: g.Effective > o.now}
	o.buckets = append(o.buckets, b)
	return b
}

// due returns the cost of the counters.
func (o *oracle) due(n *oracleLien) (sum int64) {
	for i, g := range n.segments {
		left, since := g.Base+g.Count, g.Since
		for left > 0 { // as long as no price changes
			until, ms := o.nextPrice(n, i, since), left
			if until != 0 {
				ms = min(left, (nearest(until-g.Since)-nearest(since-g.Since))*g.GPUs)
			}
			for _, p := range g.Mix {
				time := ms // all of it if there is one type
				if len(g.Mix) > 1 {
					time = ms / g.GPUs * p.Count
				}
				x := new(big.Int).Mul(big.NewInt(int64(o.costs(n, p.Type, since))), big.NewInt(time))
				sum += x.Quo(x, big.NewInt(3_600_000)).Int64()
			}
			left, since = left-ms, until
		}
	}
	return sum
}

// nearest rounds to milliseconds.
func nearest(d cluster.Instant) int64 { return (int64(d) + 500_000) / 1_000_000 }

// nextPrice returns when the price of a segment's GPU next changes after an instant, as far as the
// lien was asked; 0 when it does not.
func (o *oracle) nextPrice(n *oracleLien, i int, since cluster.Instant) (next cluster.Instant) {
	end := n.asked
	if i+1 < len(n.segments) {
		end = n.segments[i+1].Since
	}
	for _, p := range o.prices {
		changes := n.Floating && p.from > since && p.from <= end && (next == 0 || p.from < next)
		if changes && slices.ContainsFunc(n.segments[i].Mix, func(x Priced) bool { return o.costs(n, x.Type, p.from) != o.costs(n, x.Type, since) }) {
			next = p.from
		}
	}
	return next
}

// costs returns the price of a type for a lien at an instant.
func (o *oracle) costs(n *oracleLien, gpuType string, at cluster.Instant) (price Credits) {
	if n.Floating {
		return cmp.Or(o.priceOf(gpuType, at), o.priceOf(n.Rates[0].GPUType, at)).Price
	}
	for _, r := range n.Rates {
		if r.GPUType == gpuType {
			return r.Price
		}
	}
	return n.Rates[0].Price
}

// lacks returns the cost of the counters less what was charged for them.
func (o *oracle) lacks(n *oracleLien) int64 {
	return o.due(n) - (o.inLien(n.ID, "revenue") + o.refunded(n.ID, -1) - n.adjusted)
}

func (o *oracle) catchUp(n *oracleLien, r *Receipt) {
	if more := o.lacks(n); more > 0 {
		o.charge(n, more, r)
	} else if more < 0 {
		given := o.giveBack(n, min(-more, o.inLien(n.ID, "revenue")), 0)
		r.Returned, n.adjusted = r.Returned+Credits(given), n.adjusted+given
	}
}
