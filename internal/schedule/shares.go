package schedule

import (
	"slices"

	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/fairshare"
)

// Share is one account or user with what it may expect and what it had.
type Share struct {
	Account string
	User    string // "" for an account
	Part    string // the partition that an association is for; "" for one without
	Depth   int32  // below the root, whose is 0
	Shares  int64  // or cluster.SharesOfParent
	Usage   int64  // thousandths of billing seconds, decayed, of all below it too
	fairshare.Factor
}

// Shares is every account and user, parents before children, with the factors that
// priorities are made of at an instant. Users who have used something and are in no
// account stand beside the accounts at the top with one share each. O(n log n).
func Shares(view *cluster.AccountView, policy *cluster.FairSharePolicy, now cluster.Instant) []Share {
	f := newFairness(view, policy, now, nil)
	out := make([]Share, len(f.nodes))
	for i := range f.nodes {
		n := &f.nodes[i]
		out[i] = Share{Shares: n.Shares, Usage: n.Usage, Factor: f.factors[i]}
		if n.OfParent {
			out[i].Shares = cluster.SharesOfParent
		}
		if n.Parent >= 0 {
			out[i].Depth = out[n.Parent].Depth + 1
		}
		if i >= f.known {
			out[i].Account, out[i].User = f.strangers[i-f.known].Account, f.strangers[i-f.known].User
			continue
		}
		if view == nil || view.Tree == nil {
			out[i].Account = cluster.RootAccount
			continue
		}
		t := &view.Tree.Nodes[i]
		out[i].Account = t.Account.Name
		if t.User != nil {
			out[i].User, out[i].Part = t.User.User, t.User.Partition
		}
	}
	return out
}

// fairness is the tree of shares with its factors.
type fairness struct {
	view      *cluster.AccountView
	nodes     []fairshare.Node
	factors   []fairshare.Factor
	known     int                      // nodes that are those of the view's tree, in its order
	strangers []cluster.AssociationKey // the nodes after those
	places    map[cluster.AssociationKey]int32
}

// newFairness computes the factors of an instant. What it was before, nil at first,
// saves finding room and places for those that are the same.
func newFairness(view *cluster.AccountView, policy *cluster.FairSharePolicy, now cluster.Instant, before *fairness) *fairness {
	f := &fairness{view: view, known: 1}
	more := 16
	if before != nil {
		more += len(before.strangers)
		f.strangers = make([]cluster.AssociationKey, 0, more)
	}
	var tree *cluster.AccountTree
	if view != nil {
		tree = view.Tree
	}
	if tree == nil {
		f.nodes = append(make([]fairshare.Node, 0, more), fairshare.Node{Parent: -1, Shares: 1})
	} else {
		f.known = len(tree.Nodes)
		f.nodes = make([]fairshare.Node, f.known, f.known+more)
		for i := range tree.Nodes {
			n := &tree.Nodes[i]
			f.nodes[i] = fairshare.Node{Parent: n.Parent, Shares: n.Account.Shares}
			if n.User != nil {
				f.nodes[i].User, f.nodes[i].Shares = true, n.User.Shares
			}
			if f.nodes[i].Shares == cluster.SharesOfParent {
				f.nodes[i].OfParent, f.nodes[i].Shares = true, 0
			}
		}
	}
	if view != nil {
		for u := range view.Used {
			f.used(u, fairshare.At(u.Billed, now, policy.HalfLife))
		}
	}
	f.settle(before)
	t, err := fairshare.NewTree(f.nodes)
	if err != nil { // the view's tree is one
		f.factors = make([]fairshare.Factor, len(f.nodes))
		return f
	}
	t.Sum()
	if policy.Classic {
		f.factors = t.Classic(1)
	} else {
		f.factors = t.FairTree()
	}
	return f
}

// used adds what somebody has used.
func (f *fairness) used(u *cluster.AccountUsage, usage int64) {
	if tree := f.view.Tree; tree != nil {
		i := tree.Find(u.AssociationKey)
		if i >= 0 && (u.User == "" || tree.Nodes[i].User != nil) {
			f.nodes[i].Usage += usage
			return
		}
	}
	f.strangers = append(f.strangers, u.AssociationKey)
	f.nodes = append(f.nodes, fairshare.Node{Parent: 0, User: true, Shares: 1, Usage: usage})
}

// settle notes where the strangers are.
func (f *fairness) settle(before *fairness) {
	if before != nil && f.known == before.known && slices.Equal(f.strangers, before.strangers) {
		f.strangers, f.places = before.strangers, before.places
		return
	}
	f.places = make(map[cluster.AssociationKey]int32, len(f.strangers))
	for i, key := range f.strangers {
		f.places[key] = int32(f.known + i)
	}
}

// of is the factor of a user's jobs in an account. Who is unknown and has used nothing
// is ahead of all who have.
func (f *fairness) of(key cluster.AssociationKey) float64 {
	if i, known := f.places[key.Everywhere()]; known {
		return f.factors[i].FairShare
	}
	if f.view != nil && f.view.Tree != nil {
		if i := f.view.Tree.Find(key); i >= 0 && f.view.Tree.Nodes[i].User != nil {
			return f.factors[i].FairShare
		}
	}
	return 1
}
