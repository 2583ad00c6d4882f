package topology

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/greylag/greylag/pkg/cluster"
)

// Disagreement is something that cannot be as both the file and the nodes say.
type Disagreement struct {
	Kind  string   // one of the following words
	Nodes []string // whom it concerns, sorted
	Text  string
}

// The kinds of disagreement.
const (
	Unplaced = "unplaced" // nodes that the file does not name
	Unknown  = "unknown"  // nodes that the file names and nobody knows
	Split    = "split"    // an NVLink domain across nodes that hang on different leaves
	Block    = "block"    // a block of the file that is not the NVLink domain that is reported
)

// Disagreements compares the fabric with what nodes report. A nil Fabric disagrees with
// nothing. O(GPUs + nodes log nodes).
func (f *Fabric) Disagreements(nodes []*cluster.Node) []Disagreement {
	if f == nil {
		return nil
	}
	var all []Disagreement
	known := make(map[string]bool, len(nodes))
	var unplaced, unknown []string
	for _, n := range nodes {
		known[n.Name] = true
		if _, placed := f.hosts[n.Name]; !placed {
			unplaced = append(unplaced, n.Name)
		}
	}
	named := maps.Clone(f.hosts)
	for n := range f.blocks {
		named[n] = 0
	}
	for _, h := range slices.Sorted(maps.Keys(named)) {
		if !known[h] {
			unknown = append(unknown, h)
		}
	}
	if len(unplaced) > 0 {
		all = append(all, Disagreement{Unplaced, slices.Sorted(slices.Values(unplaced)), "no switch of the file has these nodes: what asks for a leaf or for few switches is not placed on them"})
	}
	if len(unknown) > 0 {
		all = append(all, Disagreement{Unknown, unknown, "the file names these nodes, and none of them has registered"})
	}
	return append(all, f.linkDisagreements(nodes)...)
}

// linkDisagreements looks at the NVLink domains that reach beyond one node.
func (f *Fabric) linkDisagreements(nodes []*cluster.Node) []Disagreement {
	hosts := map[string][]string{}  // of a domain that is reported
	blocks := map[string][]string{} // of its nodes
	reported := map[string][]string{}
	members := map[string][]string{} // nodes of a block that report something
	for _, n := range nodes {
		for i := range n.GPUs {
			d := n.GPUs[i].Domain
			if Local(n.Name, d) || slices.Contains(hosts[d], n.Name) {
				continue
			}
			hosts[d] = append(hosts[d], n.Name)
			if b := f.Block(n.Name); b != "" {
				blocks[d], reported[b] = with(blocks[d], b), with(reported[b], d)
				members[b] = with(members[b], n.Name)
			}
		}
	}
	var all []Disagreement
	for _, d := range slices.Sorted(maps.Keys(hosts)) {
		var leaves []string
		for _, h := range hosts[d] {
			if leaf, placed := f.Domain(0, h); placed {
				leaves = with(leaves, f.Name(0, leaf))
			}
		}
		on := slices.Sorted(slices.Values(hosts[d]))
		if len(leaves) > 1 {
			all = append(all, Disagreement{Split, on, fmt.Sprintf("NVLink domain %q is under several leaves: %s", d, listed(leaves))})
		}
		if len(blocks[d]) > 1 {
			all = append(all, Disagreement{Block, on, fmt.Sprintf("NVLink domain %q is in several blocks of the file: %s", d, listed(blocks[d]))})
		}
	}
	for _, b := range slices.Sorted(maps.Keys(reported)) {
		if len(reported[b]) > 1 {
			slices.Sort(members[b])
			all = append(all, Disagreement{Block, members[b], fmt.Sprintf("the nodes of block %q report several NVLink domains: %s", b, listed(reported[b]))})
		}
	}
	return all
}

// with adds a word once.
func with(list []string, word string) []string {
	if slices.Contains(list, word) {
		return list
	}
	return append(list, word)
}

// listed joins words in order, of many the first few.
func listed(words []string) string {
	slices.Sort(words)
	const few = 8
	if len(words) > few {
		return strings.Join(words[:few], ", ") + fmt.Sprintf(" and %d more", len(words)-few)
	}
	return strings.Join(words, ", ")
}
