package cluster

import (
	"cmp"
	"iter"
	"slices"
	"strings"
)

// AccountTree holds all accounts and their users as one immutable tree.
type AccountTree struct {
	// Nodes has parents before children; the first is the root.
	Nodes    []AccountNode
	accounts map[string]int32
	users    []userRange // of the account at the same index of Nodes
	// Limited reports whether any account or user has a limit.
	Limited bool
	// Granting reports whether any account or user has a list of QOS.
	Granting bool
	// Resources and Kinds are the resources and kinds of all limits in the tree.
	Resources map[string]bool
	Kinds     map[LimitKind]bool
}

// userRange is the range of an account's users in Nodes, sorted by name and partition. They are
// contiguous, so that finding one needs no table of all users.
type userRange struct{ first, after int32 }

// AccountNode is an account, or a user in one.
type AccountNode struct {
	Parent  int32 // -1 for the root
	Account *Account
	User    *Association // nil for an account
}

// Limits holds the limits of the node.
func (n *AccountNode) Limits() []Limit {
	if n.User != nil {
		return n.User.Limits
	}
	return n.Account.Limits
}

// NewAccountTree builds the tree from accounts and associations in any order. It leaves out nodes
// without a path to the root, and so cycles. O(n) when the associations are sorted by account, name
// and partition, else O(n log n).
func NewAccountTree(accounts iter.Seq[*Account], users iter.Seq[*Association]) *AccountTree {
	t := &AccountTree{Resources: map[string]bool{}, Kinds: map[LimitKind]bool{}, accounts: map[string]int32{}}
	root := &Account{Name: RootAccount, Shares: 1}
	below := map[string][]*Account{}
	for a := range accounts {
		if a.Name == RootAccount {
			root = a
			continue
		}
		below[a.Parent] = append(below[a.Parent], a)
	}
	t.add(AccountNode{Parent: -1, Account: root})
	for i := 0; i < len(t.Nodes); i++ { // grows during the loop
		for _, a := range below[t.Nodes[i].Account.Name] {
			t.add(AccountNode{Parent: int32(i), Account: a})
		}
	}
	t.addUsers(slices.SortedFunc(users, func(a, b *Association) int {
		return cmp.Or(strings.Compare(a.Account, b.Account), a.compare(b.User, b.Partition))
	}))
	return t
}

// addUsers adds the sorted users of the accounts in the tree.
func (t *AccountTree) addUsers(users []*Association) {
	t.users = make([]userRange, len(t.Nodes))
	t.Nodes = slices.Grow(t.Nodes, len(users))
	for _, u := range users {
		p, known := t.accounts[u.Account]
		if !known {
			continue
		}
		at := &t.users[p]
		if at.after == 0 {
			at.first = int32(len(t.Nodes))
		}
		t.add(AccountNode{Parent: p, Account: t.Nodes[p].Account, User: u})
		at.after = int32(len(t.Nodes))
	}
}

// compare orders associations of one account.
func (a *Association) compare(user, partition string) int {
	if c := strings.Compare(a.User, user); c != 0 {
		return c
	}
	return strings.Compare(a.Partition, partition)
}

// user returns the node of an association. O(log n) in the users of the account.
func (t *AccountTree) user(key AssociationKey) (int32, bool) {
	p, known := t.accounts[key.Account]
	if !known {
		return 0, false
	}
	at := t.users[p]
	i, found := slices.BinarySearchFunc(t.Nodes[at.first:at.after], key, func(n AccountNode, key AssociationKey) int {
		return n.User.compare(key.User, key.Partition)
	})
	return at.first + int32(i), found
}

func (t *AccountTree) add(n AccountNode) {
	i := int32(len(t.Nodes))
	t.Nodes = append(t.Nodes, n)
	if n.User == nil {
		t.accounts[n.Account.Name] = i
	}
	t.Granting = t.Granting || len(n.qos()) > 0
	for _, l := range n.Limits() {
		t.Limited, t.Kinds[l.Kind] = true, true
		if l.Resource != "" {
			t.Resources[l.Resource] = true
		}
	}
}

// Find returns the node that the user's jobs in the account and partition belong to: the user's
// node for the partition, else the user's, else the account's, else -1. O(log n) in the users of
// the account.
func (t *AccountTree) Find(key AssociationKey) int32 {
	if i, known := t.user(key); known {
		return i
	}
	if key.Partition != "" {
		if i, known := t.user(key.WithoutPartition()); known {
			return i
		}
	}
	return t.Account(key.Account)
}

// Resolve returns the key of the association that applies to key: with the partition if the user
// has one for it, else without. A nil tree has none. Cost as [AccountTree.Find].
func (t *AccountTree) Resolve(key AssociationKey) AssociationKey {
	if t != nil && key.Partition != "" {
		if _, known := t.user(key); known {
			return key
		}
	}
	return key.WithoutPartition()
}

// Account returns the node of an account, or -1. O(1).
func (t *AccountTree) Account(name string) int32 {
	if i, known := t.accounts[name]; known {
		return i
	}
	return -1
}

// Up yields a node and its ancestors, the root last.
func (t *AccountTree) Up(i int32) iter.Seq2[int32, *AccountNode] {
	return func(yield func(int32, *AccountNode) bool) {
		for ; i >= 0; i = t.Nodes[i].Parent {
			if !yield(i, &t.Nodes[i]) {
				return
			}
		}
	}
}

// Depth returns the number of ancestors of a node.
func (t *AccountTree) Depth(i int32) int32 {
	depth := int32(0)
	for i = t.Nodes[i].Parent; i >= 0; i = t.Nodes[i].Parent {
		depth++
	}
	return depth
}

// Walk returns the nodes in listing order: each before its children, the users of an account before
// its sub-accounts, both by name. O(n log n).
func (t *AccountTree) Walk() []int32 {
	below := make([][]int32, len(t.Nodes))
	for i := range t.Nodes {
		if p := t.Nodes[i].Parent; p >= 0 {
			below[p] = append(below[p], int32(i))
		}
	}
	name := func(i int32) (string, string) {
		if n := &t.Nodes[i]; n.User != nil {
			return n.User.User, n.User.Partition
		}
		return t.Nodes[i].Account.Name, ""
	}
	out := make([]int32, 0, len(t.Nodes))
	for stack := []int32{0}; len(stack) > 0; {
		at := stack[len(stack)-1]
		stack = append(stack[:len(stack)-1], below[at]...)
		out = append(out, at)
		slices.SortFunc(stack[len(stack)-len(below[at]):], func(a, b int32) int { // a stack: the last one is popped first
			if ua, ub := t.Nodes[a].User != nil, t.Nodes[b].User != nil; ua != ub {
				if ua {
					return 1
				}
				return -1
			}
			nameA, partA := name(a)
			nameB, partB := name(b)
			return cmp.Or(strings.Compare(nameB, nameA), strings.Compare(partB, partA))
		})
	}
	return out
}

// AccountUsage is the usage of one user of an account, or without a user of an account itself.
type AccountUsage struct {
	AssociationKey
	Billed Usage           // in thousandths of billing seconds
	Raw    []ResourceUsage // by resource, ascending
}

// ResourceUsage is the usage of one resource in units × seconds; of [ResourceWall] it is seconds
// of job run time.
type ResourceUsage struct {
	Resource string
	Usage    Usage
}

// ResourceWall is the resource that counts job run time.
const ResourceWall = "wall"

// Charge is the billing rate of one running job.
type Charge struct {
	AssociationKey
	QOS     string
	Rate    int64    // thousandths a second
	Amounts []Amount // by resource, ascending
}

// AccountView is accounts, usage and running jobs at one instant.
type AccountView struct {
	Tree *AccountTree
	// Used yields usage by account and user. Evaluate it at the snapshot's instant.
	Used iter.Seq[*AccountUsage]
	// Usage returns the usage of one user of an account; nil for none. O(log n).
	Usage func(AssociationKey) *AccountUsage
	// Running yields the charge of each running job, by ID.
	Running iter.Seq2[JobID, *Charge]
}
