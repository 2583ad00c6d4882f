package fairshare

import "math"

// Classic gives every account and user 2^(-U/S/d) for their effective usage U, their
// share of the whole S and a dampening d of at least 1 (slurm.schedmd.com/classic_fair_share.html).
// The effective usage of a node leans towards that of its account as far as its
// shares among its siblings go, so that users pay for what their account used. Who
// has no shares has 0; who has shares and neither used anything nor has an account
// that did, 1. Whose shares are the parent's has what the account above has. The answer
// is in room where that is large enough. O(n).
func (t *Tree) Classic(dampening int64, room []Factor) []Factor {
	out := t.normal(room)
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
			// The conversion keeps a processor from rounding once where others round twice.
			f.Effective += float64((out[p].Effective - f.NormUsage) * lean)
		}
		if f.NormShares > 0 {
			f.FairShare = exp2Minus(f.Effective / f.NormShares / d)
		}
	}
	return out
}

// exp2Minus is 2^-x for x at least 0, the same on every machine, which math.Exp2
// does not promise.
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
