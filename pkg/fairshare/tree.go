package fairshare

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrTree is wrapped by the errors of [NewTree].
var ErrTree = errors.New("not a tree of shares")

// Member is an account or a user, or with parent -1 the root of all.
type Member struct {
	Parent int32 // index of another node, less than its own
	User   bool  // has a factor of its own, and nothing below it
	Shares int64 // among the nodes of the same parent
	Usage  int64 // at least 0; after Sum with the usage of all below
	// OfParent marks a node without shares of its own, Slurm's FairShare=parent. A user ranks as
	// the account above; the children of an account compete as if it did not exist. Shares is not
	// read then.
	OfParent bool
}

// Factor is the result for one node. Which fields are set with FairShare depends on the algorithm.
type Factor struct {
	NormShares float64 // Fair Tree: its share among its siblings; classic: of the whole
	NormUsage  float64 // its usage divided by that of the root
	Effective  float64 // Fair Tree: usage divided by the parent's; classic: the effective usage
	LevelFS    float64 // Fair Tree: share among its siblings divided by Effective; +Inf without usage
	FairShare  float64 // 0 to 1; of accounts in Fair Tree, 0
}

// Tree is nodes with their structure. Only its owner may use it. Computing factors leaves siblings
// in their order, from which the next computation begins.
type Tree struct {
	nodes    []Member
	up       []int32 // the node whose children it competes with; -1 for the root
	children []int32 // those of node i are children[first[i]:first[i+1]]
	first    []int32
	sums     []int64 // shares of the children of a node
	users    int
}

// NewTree makes a tree of nodes, parents before children, the root first. It keeps the slice; only
// usage may change in it. O(nodes).
func NewTree(nodes []Member) (*Tree, error) {
	t := &Tree{nodes: nodes, up: make([]int32, len(nodes)), first: make([]int32, len(nodes)+1), sums: make([]int64, len(nodes))}
	for i := range nodes {
		n := &nodes[i]
		switch {
		case i == 0 && (n.Parent != -1 || n.User || n.OfParent):
			return nil, fmt.Errorf("%w: the first node is not the root", ErrTree)
		case i > 0 && (n.Parent < 0 || int(n.Parent) >= i):
			return nil, fmt.Errorf("%w: node %d comes before its parent %d", ErrTree, i, n.Parent)
		case i > 0 && nodes[n.Parent].User:
			return nil, fmt.Errorf("%w: node %d is below a user", ErrTree, i)
		case n.Shares < 0 || n.Usage < 0:
			return nil, fmt.Errorf("%w: node %d has %d shares and usage %d", ErrTree, i, n.Shares, n.Usage)
		}
		if n.User {
			t.users++
		}
		if t.up[i] = n.Parent; i == 0 {
			continue
		}
		if nodes[n.Parent].OfParent {
			t.up[i] = t.up[n.Parent]
		}
		if t.competes(int32(i)) {
			t.first[t.up[i]+1]++
		}
		if !n.OfParent {
			t.sums[t.up[i]] = added(t.sums[t.up[i]], n.Shares)
		}
	}
	for i := range nodes {
		t.first[i+1] += t.first[i]
	}
	t.children = make([]int32, t.first[len(nodes)])
	next := append([]int32(nil), t.first...)
	for i := 1; i < len(nodes); i++ {
		if p := t.up[i]; t.competes(int32(i)) {
			t.children[next[p]] = int32(i)
			next[p]++
		}
	}
	return t, nil
}

// competes reports whether a node has a place among siblings: all do, except accounts whose
// children stand in for them.
func (t *Tree) competes(i int32) bool { return t.nodes[i].User || !t.nodes[i].OfParent }

// Sum adds the usage of every node to all above it. Call it once, while each node has its own usage
// alone. O(nodes).
func (t *Tree) Sum() {
	for i := len(t.nodes) - 1; i > 0; i-- {
		p := &t.nodes[t.nodes[i].Parent]
		p.Usage = added(p.Usage, t.nodes[i].Usage)
	}
}

// added returns a + b for numbers that are not negative, saturating.
func added(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// below returns the nodes that compete under a node.
func (t *Tree) below(i int32) []int32 { return t.children[t.first[i]:t.first[i+1]] }

// ratio returns a/b, and 0 when b is 0.
func ratio(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// normal sets the fields that both algorithms share.
func (t *Tree) normal(buffer []Factor) []Factor {
	out := slices.Grow(buffer[:0], len(t.nodes))[:len(t.nodes)]
	clear(out)
	for i := range t.nodes {
		n := &t.nodes[i]
		if n.Parent < 0 {
			out[i] = Factor{NormShares: 1, NormUsage: ratio(n.Usage, n.Usage)}
			continue
		}
		p := t.up[i]
		if out[i].NormShares = out[p].NormShares; !n.OfParent {
			out[i].NormShares *= ratio(n.Shares, t.sums[p])
		}
		out[i].NormUsage = ratio(n.Usage, t.nodes[0].Usage)
	}
	return out
}
