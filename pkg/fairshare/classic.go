package fairshare

import "math"

// Classic computes 2^(-U/S/d) for every account and user, where U is the effective usage, S the
// share of the whole, and d a dampening of at least 1 (slurm.schedmd.com/classic_fair_share.html).
//
// The effective usage of a node lies between its own and that of its account, by the node's shares
// among its siblings: users pay for what their account used. The factor is 0 without shares. It is
// 1 with shares, when neither the node nor its account has usage. A node whose shares are the
// parent's has the factor of its account. The result is in buffer where that is large enough. O(n).
func (t *Tree) Classic(dampening int64, buffer []Factor) []Factor {
	out := t.normal(buffer)
	d := float64(max(1, dampening))
	for i := range t.nodes {
		f, p := &out[i], t.up[i]
		if t.nodes[i].OfParent {
			f.Effective, f.FairShare = out[p].Effective, out[p].FairShare
			continue
		}
		f.Effective = f.NormUsage
		if p > 0 {
			lean := ratio(t.nodes[i].Shares, t.sums[p])
			// The conversion makes every processor round twice, like those without a fused
			// operation.
			f.Effective += float64((out[p].Effective - f.NormUsage) * lean)
		}
		if f.NormShares > 0 {
			f.FairShare = exp2Minus(f.Effective / f.NormShares / d)
		}
	}
	return out
}

// exp2Minus returns 2^-x for x at least 0, the same on every machine, which math.Exp2 does not
// guarantee.
func exp2Minus(x float64) float64 {
	if x >= 1000 {
		return 0
	}
	whole := math.Floor(x)
	rest := power(uint64((x-whole)*(1<<63)) << 1)
	if rest == 0 {
		return math.Ldexp(1, -int(whole))
	}
	return math.Ldexp(float64(rest), -64-int(whole))
}
