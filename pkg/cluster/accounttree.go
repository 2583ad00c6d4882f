package cluster

import (
	"cmp"
	"iter"
	"slices"
	"strings"
)

// AccountTree is all accounts and their users as one tree. It never changes.
type AccountTree struct {
	// Nodes has parents before children; the first is the root.
	Nodes    []AccountNode
	accounts map[string]int32
	users    []userRange // of the account in the same place of Nodes
	// Limited reports whether any account or user has a limit.
	Limited bool
	// Granting reports whether any account or user has a list of QOS.
	Granting bool
	// Resources and Kinds are what limits are on, and of which kinds they are.
	Resources map[string]bool
	Kinds     map[LimitKind]bool
}

// userRange is where the users of an account are, by name and partition: they stand
// together, so that a search among them needs no table of them all.
type userRange struct{ first, after int32 }

// AccountNode is an account, or a user in one.
type AccountNode struct {
	Parent  int32 // -1 for the root
	Account *Account
	User    *Association // nil for an account
}

// Limits are the limits of the node.
func (n *AccountNode) Limits() []Limit {
	if n.User != nil {
		return n.User.Limits
	}
	return n.Account.Limits
}

// NewAccountTree builds the tree of accounts and associations in any order. What is
// below an account that is not there is left out; so is a circle. O(n) when the users come
// by account, name and partition, else O(n log n).
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
	for i := 0; i < len(t.Nodes); i++ { // grows
		for _, a := range below[t.Nodes[i].Account.Name] {
			t.add(AccountNode{Parent: int32(i), Account: a})
		}
	}
	t.addUsers(slices.SortedFunc(users, func(a, b *Association) int {
		return cmp.Or(strings.Compare(a.Account, b.Account), a.compare(b.User, b.Partition))
	}))
	return t
}

// addUsers adds the users, which are in order, of the accounts that are there.
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

// user is the node of an association. O(log n) in the users of the account.
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

// Find is the node that a job of the user in the account belongs to: the user's there
// in the partition, else the user's, else the account's, else -1. O(log n) in the users of
// the account.
func (t *AccountTree) Find(key AssociationKey) int32 {
	if i, known := t.user(key); known {
		return i
	}
	if key.Partition != "" {
		if i, known := t.user(key.Everywhere()); known {
			return i
		}
	}
	return t.Account(key.Account)
}

// Resolve is the key of the association that a key means: with the partition where the
// user has one for that, else without. A nil tree has none. As [AccountTree.Find].
func (t *AccountTree) Resolve(key AssociationKey) AssociationKey {
	if t != nil && key.Partition != "" {
		if _, known := t.user(key); known {
			return key
		}
	}
	return key.Everywhere()
}

// Account is the node of an account; -1 when there is none. O(1).
func (t *AccountTree) Account(name string) int32 {
	if i, known := t.accounts[name]; known {
		return i
	}
	return -1
}

// Up yields a node and all above it, the root last.
func (t *AccountTree) Up(i int32) iter.Seq2[int32, *AccountNode] {
	return func(yield func(int32, *AccountNode) bool) {
		for ; i >= 0; i = t.Nodes[i].Parent {
			if !yield(i, &t.Nodes[i]) {
				return
			}
		}
	}
}

// Depth is how far a node is below the root.
func (t *AccountTree) Depth(i int32) int32 {
	depth := int32(0)
	for i = t.Nodes[i].Parent; i >= 0; i = t.Nodes[i].Parent {
		depth++
	}
	return depth
}

// Walk is the nodes in the order of a listing: each before what is below it, the users
// of an account before the accounts below, both by name. O(n log n).
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
		slices.SortFunc(stack[len(stack)-len(below[at]):], func(a, b int32) int { // the last goes first
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

// AccountUsage is what a user of an account, or with no user an account itself, has
// used.
type AccountUsage struct {
	AssociationKey
	Billed Usage           // in thousandths of billing seconds
	Raw    []ResourceUsage // by resource, ascending
}

// ResourceUsage is use of one resource in units × seconds; of [ResourceWall] it is
// seconds that jobs ran.
type ResourceUsage struct {
	Resource string
	Usage    Usage
}

// ResourceWall counts the time that jobs run.
const ResourceWall = "wall"

// Charge is what one running job counts for, from its start to its end.
type Charge struct {
	AssociationKey
	QOS     string
	Rate    int64    // thousandths a second
	Amounts []Amount // by resource, ascending
}

// AccountView is accounts, usage and what runs at one instant.
type AccountView struct {
	Tree *AccountTree
	// Used yields what was used, by account and user. Evaluate it at the snapshot's
	// instant.
	Used iter.Seq[*AccountUsage]
	// Usage is what one user of an account has used; nil for nothing. O(log n).
	Usage func(AssociationKey) *AccountUsage
	// Running yields what each job counts for that runs, by id.
	Running iter.Seq2[JobID, *Charge]
}
