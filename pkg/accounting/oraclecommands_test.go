package accounting

import (
	"maps"
	"slices"
)

func no(why error) *want { return &want{why: why} }

// does returns the oracle's answer to a new command.
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
		return o.rehang(d.chains)
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

// chainKnown checks a path against the recorded parents.
func (o *oracle) chainKnown(c PayerPath) *want {
	for i, id := range c {
		parent := PayerID("")
		if i+1 < len(c) {
			parent = c[i+1]
		}
		if n := o.nodes[id]; n != nil && n.parent != parent {
			return no(ErrParent)
		}
	}
	return nil
}

func (o *oracle) openChain(c PayerPath) {
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
		if o.codes[g.Code] >= g.MaxRedemptions {
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
	o.nodes[d.chain[0]].budget = d.budget
	return nil
}

// affords checks debts and budgets from the leaf up, then the credits.
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

// rehang moves accounts to other ancestors, if the resulting paths agree.
func (o *oracle) rehang(chains []PayerPath) *want {
	parents, moves := map[PayerID]PayerID{}, map[PayerID]PayerID{}
	for id, n := range o.nodes {
		parents[id] = n.parent
	}
	over := func(c PayerPath, i int) PayerID {
		if i+1 < len(c) {
			return c[i+1]
		}
		return ""
	}
	for _, c := range chains {
		moves[c[0]] = over(c, 0)
	}
	maps.Copy(parents, moves)
	for _, c := range chains {
		for i, id := range c {
			if slices.Contains(c[:i], id) {
				return no(ErrInvalid)
			}
			if parent, known := parents[id]; known && parent != over(c, i) {
				return no(ErrParent)
			}
		}
	}
	for _, c := range chains {
		if n := o.nodes[c[0]]; n != nil && n.parent != moves[c[0]] {
			o.openChain(c[1:])
			n.parent = moves[c[0]]
		}
	}
	for _, x := range o.liens {
		x.Chain = PayerPath{x.Chain[0]}
		for id := o.nodes[x.Chain[0]].parent; id != ""; id = o.nodes[id].parent {
			x.Chain = append(x.Chain, id)
		}
	}
	return nil
}
