package fairshare

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrTree is wrapped by the errors of [NewTree].
var ErrTree = errors.New("not a tree of shares")

// Node is an account or a user, or with parent -1 the root of all.
type Node struct {
	Parent int32 // index of another node, less than its own
	User   bool  // has a factor of its own, and nothing below it
	Shares int64 // among the nodes of the same parent
	Usage  int64 // at least 0; of all below it as well, once they are summed up
	// OfParent has no shares of its own, Slurm's FairShare=parent: a user ranks as the
	// account above does, and what is below an account competes as if that were not
	// there. Shares is not read then.
	OfParent bool
}

// Factor is what comes out for one node. Which numbers there are beside FairShare
// depends on the algorithm.
type Factor struct {
	NormShares float64 // Fair Tree: its share among its siblings; classic: of the whole
	NormUsage  float64 // its usage by that of the root
	Effective  float64 // Fair Tree: usage by the parent's; classic: the effective usage
	LevelFS    float64 // Fair Tree: share among its siblings by Effective; +Inf when unused
	FairShare  float64 // 0 to 1; of accounts in Fair Tree, 0
}

// Tree is nodes with what belongs to whom. Only its owner may use it. Asking for factors
// leaves siblings in their order, from which the next time begins.
type Tree struct {
	nodes    []Node
	up       []int32 // with whose children a node competes; -1 for the root
	children []int32 // those of node i are children[first[i]:first[i+1]]
	first    []int32
	sums     []int64 // shares of the children of a node
	users    int
}

// NewTree makes a tree of nodes, parents before children, the root first. It keeps
// the slice, in which only usage may be changed. O(nodes).
func NewTree(nodes []Node) (*Tree, error) {
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

// competes reports whether a node has a place among siblings: all but accounts whose
// children stand in for them.
func (t *Tree) competes(i int32) bool { return t.nodes[i].User || !t.nodes[i].OfParent }

// Sum adds the usage of every node to all above it. Call it once, when each node's
// usage is its own alone. O(nodes).
func (t *Tree) Sum() {
	for i := len(t.nodes) - 1; i > 0; i-- {
		p := &t.nodes[t.nodes[i].Parent]
		p.Usage = added(p.Usage, t.nodes[i].Usage)
	}
}

// added is a + b of numbers that are not negative, saturating.
func added(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// below are those who compete under a node.
func (t *Tree) below(i int32) []int32 { return t.children[t.first[i]:t.first[i+1]] }

// ratio is a/b, and 0 when b is 0: nobody has a part of nothing.
func ratio(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// normal fills in what both algorithms have in common.
func (t *Tree) normal(room []Factor) []Factor {
	out := slices.Grow(room[:0], len(t.nodes))[:len(t.nodes)]
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
