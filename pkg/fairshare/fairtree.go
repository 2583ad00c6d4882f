package fairshare

import (
	"cmp"
	"math"
	"slices"
)

// FairTree ranks all users (Ryan Cox and Levi Morrison, 2014; slurm.schedmd.com/fair_tree.html). At
// each level the sibling with the largest share by usage comes first, with all below it: every user
// of an account comes before every user of a sibling with a lower rank. A user's factor is the rank
// from the end divided by the number of users: the first has 1.
//
// Equal siblings share what follows: users have the same rank, accounts are ranked as if their
// children were siblings, and a user equal to an account ranks with the best below it. A user with
// shares and no usage comes before all with usage. A user without shares comes last, with or
// without usage. A user whose shares are the parent's is the first of its account, as in Slurm.
//
// The result is in buffer where that is large enough. O(n log n), and O(n) when hardly any order
// has changed since the last call.
func (t *Tree) FairTree(buffer []Factor) []Factor {
	out := t.normal(buffer)
	for i := range t.nodes {
		n, p := &t.nodes[i], t.up[i]
		if p < 0 {
			out[i].Effective = out[i].NormUsage
			continue
		}
		out[i].Effective = ratio(n.Usage, t.nodes[p].Usage)
		switch {
		case !n.OfParent:
			out[i].NormShares = ratio(n.Shares, t.sums[p])
			out[i].LevelFS = level(out[i].NormShares, out[i].Effective)
			continue
		case n.User:
			out[i].LevelFS = math.Inf(1)
		}
		out[i].NormShares = out[p].NormShares
	}
	if len(t.nodes) > 0 {
		r := ranking{Tree: t, factors: out, next: t.users}
		r.visit(t.below(0), false)
	}
	return out
}

// level returns share divided by usage, without 0/0.
func level(share, usage float64) float64 {
	switch {
	case share == 0:
		return 0
	case usage == 0:
		return math.Inf(1)
	}
	return share / usage
}

// ranking is one walk over the tree, the best first.
type ranking struct {
	*Tree
	factors []Factor
	next    int // rank of the next user that equals no other
	rank    int // of the last user
}

// visit ranks siblings and all below them. It sorts the slice. tied says that the first of them
// equals the user ranked last.
func (r *ranking) visit(siblings []int32, tied bool) {
	slices.SortFunc(siblings, func(a, b int32) int {
		if c := r.order(a, b); c != 0 {
			return c
		}
		switch ua, ub := r.nodes[a].User, r.nodes[b].User; {
		case ua && !ub:
			return -1
		case ub && !ua:
			return 1
		}
		return cmp.Compare(a, b)
	})
	before := r.next
	for i := 0; i < len(siblings); {
		at := siblings[i]
		if r.next != before { // accounts without users change nothing
			tied = r.nodes[siblings[i-1]].User && r.order(siblings[i-1], at) == 0
		}
		if r.nodes[at].User {
			r.place(at, tied)
			i++
			continue
		}
		first := i
		for i < len(siblings) && r.order(siblings[i], at) == 0 {
			i++
		}
		if children := r.merged(siblings[first:i]); len(children) > 0 {
			r.visit(children, tied)
		}
	}
}

// merged returns the children of accounts that are equal.
func (r *ranking) merged(accounts []int32) []int32 {
	if len(accounts) == 1 {
		return r.below(accounts[0])
	}
	var all []int32
	for _, a := range accounts {
		all = append(all, r.below(a)...)
	}
	return all
}

// place gives a user their factor.
func (r *ranking) place(user int32, tied bool) {
	if !tied {
		r.rank = r.next
	}
	r.next--
	r.factors[user].FairShare = float64(r.rank) / float64(r.users)
}
