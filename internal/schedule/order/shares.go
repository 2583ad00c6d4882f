package order

import (
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/fairshare"
)

// ShareRow is the fair share and the usage of one account or user.
type ShareRow struct {
	Account string
	User    string // "" for an account
	Part    string // the partition that an association is for; "" for one without
	Depth   int32  // of the root 0
	Shares  int64  // or cluster.SharesOfParent
	Usage   int64  // thousandths of billing seconds, decayed, its children included
	fairshare.Factor
}

// ShareRows returns every account and user, parents before children, with the fair-share factors at
// an instant. Users with usage but without an account are children of the root with one share each.
// O(n log n).
func ShareRows(view *cluster.AccountView, policy *cluster.FairSharePolicy, now cluster.Instant) []ShareRow {
	f := newFairness(view, policy, now)
	out := make([]ShareRow, len(f.nodes))
	for i := range f.nodes {
		n := &f.nodes[i]
		out[i] = ShareRow{Shares: n.Shares, Usage: n.Usage, Factor: f.factors[i]}
		if n.OfParent {
			out[i].Shares = cluster.SharesOfParent
		}
		if n.Parent >= 0 {
			out[i].Depth = out[n.Parent].Depth + 1
		}
		if i >= f.known {
			out[i].Account, out[i].User = f.unknown[i-f.known].Account, f.unknown[i-f.known].User
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

// fairness is the tree of shares with their factors.
type fairness struct {
	view    *cluster.AccountView
	nodes   []fairshare.Member
	tree    *fairshare.Tree
	factors []fairshare.Factor       // by node
	known   int                      // the first nodes are those of the view's tree, in its order
	unknown []cluster.AssociationKey // the other nodes: users without an account
	nodeOf  map[cluster.AssociationKey]int32
}

// newFairness computes the factors of an instant. O(n log n).
func newFairness(view *cluster.AccountView, policy *cluster.FairSharePolicy, now cluster.Instant) *fairness {
	f := &fairness{view: view, nodeOf: map[cluster.AssociationKey]int32{}}
	if view == nil || view.Tree == nil {
		f.nodes = []fairshare.Member{{Parent: -1, Shares: 1}}
	} else {
		f.nodes = make([]fairshare.Member, len(view.Tree.Nodes))
		for i := range view.Tree.Nodes {
			n := &view.Tree.Nodes[i]
			f.nodes[i] = fairshare.Member{Parent: n.Parent, Shares: n.Account.Shares}
			if n.User != nil {
				f.nodes[i].User, f.nodes[i].Shares = true, n.User.Shares
			}
			if f.nodes[i].Shares == cluster.SharesOfParent {
				f.nodes[i].OfParent, f.nodes[i].Shares = true, 0
			}
		}
	}
	f.known = len(f.nodes)
	if view != nil {
		for u := range view.Used {
			usage := fairshare.UsageAt(u.Billed, now, policy.HalfLife)
			if i := f.member(u); i >= 0 {
				f.nodes[i].Usage += usage
				continue
			}
			f.nodeOf[u.AssociationKey] = int32(len(f.nodes))
			f.unknown = append(f.unknown, u.AssociationKey)
			f.nodes = append(f.nodes, fairshare.Member{Parent: 0, User: true, Shares: 1, Usage: usage})
		}
	}
	f.rank(policy)
	return f
}

// update computes the factors of a later instant in place, if the accounts are the same, and so are
// the users without one. Else it returns false, and f is invalid.
func (f *fairness) update(view *cluster.AccountView, policy *cluster.FairSharePolicy, now cluster.Instant) bool {
	if view == nil || f.view == nil || view.Tree != f.view.Tree {
		return false
	}
	for i := range f.nodes {
		f.nodes[i].Usage = 0
	}
	f.view = view
	met := 0
	for u := range view.Used {
		i := f.member(u)
		if i < 0 {
			if met == len(f.unknown) || f.unknown[met] != u.AssociationKey {
				return false
			}
			i = int32(f.known + met)
			met++
		}
		f.nodes[i].Usage += fairshare.UsageAt(u.Billed, now, policy.HalfLife)
	}
	if met < len(f.unknown) {
		return false
	}
	f.rank(policy)
	return true
}

// member returns the node of an account or user of the view's tree; -1 for others.
func (f *fairness) member(u *cluster.AccountUsage) int32 {
	tree := f.view.Tree
	if tree == nil {
		return -1
	}
	i := tree.Find(u.AssociationKey)
	if i >= 0 && u.User != "" && tree.Nodes[i].User == nil {
		return -1
	}
	return i
}

// rank computes the factors from the usage of each node alone.
func (f *fairness) rank(policy *cluster.FairSharePolicy) {
	if f.tree == nil {
		t, err := fairshare.NewTree(f.nodes)
		if err != nil { // the view's tree is one
			f.factors = make([]fairshare.Factor, len(f.nodes))
			return
		}
		f.tree = t
	}
	f.tree.Sum()
	if policy.Classic {
		f.factors = f.tree.Classic(1, f.factors)
	} else {
		f.factors = f.tree.FairTree(f.factors)
	}
}

// of returns the factor of a user's jobs in an account. An unknown user without usage comes before all
// users with usage.
func (f *fairness) of(key cluster.AssociationKey) float64 {
	if i, known := f.nodeOf[key.WithoutPartition()]; known {
		return f.factors[i].FairShare
	}
	if f.view != nil && f.view.Tree != nil {
		if i := f.view.Tree.Find(key); i >= 0 && f.view.Tree.Nodes[i].User != nil {
			return f.factors[i].FairShare
		}
	}
	return 1
}
