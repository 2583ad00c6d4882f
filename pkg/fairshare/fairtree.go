package fairshare

import (
	"cmp"
	"math"
	"slices"
)

// FairTree ranks all users (Ryan Cox and Levi Morrison, 2014; slurm.schedmd.com/fair_tree.html):
// at each level whoever has the largest share by usage among their siblings goes
// first, with all below them, so that every user of an account that is ahead is
// ahead of every user of its siblings. A user's factor is their rank from the end by
// the number of users: the first has 1.
//
// Siblings that are level share what follows: users have the same rank, accounts
// are ranked as if their children were siblings, and a user level with an account
// ranks with the best below it. Who has shares and no usage is ahead of all who have
// usage; who has no shares comes last, whether there is usage or not. Users that
// nobody ordered are level. A user whose shares are the parent's is the first of its
// account, as Slurm has it: what an account's rank is, if it were one's. The answer is in
// room where that is large enough. O(n log n), and O(n) when hardly any order has changed
// since the tree was asked last.
func (t *Tree) FairTree(room []Factor) []Factor {
	out := t.normal(room)
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

// level is share by usage without 0/0.
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
	next    int // rank of the next user that is level with nobody
	rank    int // of the last user
}

// visit ranks siblings and all below them. It sorts the slice. tied says that the
// first of them is level with the user ranked last.
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
		if r.next != before { // those that hold no user leave things as they were
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

// merged is the children of accounts that are level with each other.
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
