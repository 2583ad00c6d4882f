package topology

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/greylag/greylag/pkg/cluster"
)

// Mismatch is a contradiction between the topology file and what nodes report.
type Mismatch struct {
	Kind  string   // one of the following words
	Nodes []string // sorted
	Text  string
}

// The kinds of disagreement.
const (
	Unplaced = "unplaced" // nodes that the file does not name
	Unknown  = "unknown"  // nodes that the file names and that never registered
	Split    = "split"    // an NVLink domain across nodes with different leaves
	Block    = "block"    // a block of the file that is not the reported NVLink domain
)

// Disagreements compares the fabric with what nodes report. A nil Fabric has none. O(GPUs + nodes
// log nodes).
func (f *Fabric) Disagreements(nodes []*cluster.Node) []Mismatch {
	if f == nil {
		return nil
	}
	var all []Mismatch
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
		all = append(all, Mismatch{Unplaced, slices.Sorted(slices.Values(unplaced)), "no switch of the file has these nodes: jobs that request a leaf or few switches cannot use them"})
	}
	if len(unknown) > 0 {
		all = append(all, Mismatch{Unknown, unknown, "the file names these nodes, and none of them has registered"})
	}
	return append(all, f.linkDisagreements(nodes)...)
}

// linkDisagreements checks the NVLink domains that span several nodes.
func (f *Fabric) linkDisagreements(nodes []*cluster.Node) []Mismatch {
	hosts := map[string][]string{}  // by reported domain
	blocks := map[string][]string{} // by reported domain: the blocks of its nodes
	reported := map[string][]string{}
	members := map[string][]string{} // by block: its nodes that report a domain
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
	var all []Mismatch
	for _, d := range slices.Sorted(maps.Keys(hosts)) {
		var leaves []string
		for _, h := range hosts[d] {
			if leaf, placed := f.Domain(0, h); placed {
				leaves = with(leaves, f.Name(0, leaf))
			}
		}
		on := slices.Sorted(slices.Values(hosts[d]))
		if len(leaves) > 1 {
			all = append(all, Mismatch{Split, on, fmt.Sprintf("NVLink domain %q is under several leaves: %s", d, listed(leaves))})
		}
		if len(blocks[d]) > 1 {
			all = append(all, Mismatch{Block, on, fmt.Sprintf("NVLink domain %q is in several blocks of the file: %s", d, listed(blocks[d]))})
		}
	}
	for _, b := range slices.Sorted(maps.Keys(reported)) {
		if len(reported[b]) > 1 {
			slices.Sort(members[b])
			all = append(all, Mismatch{Block, members[b], fmt.Sprintf("the nodes of block %q report several NVLink domains: %s", b, listed(reported[b]))})
		}
	}
	return all
}

// with adds a word unless the list has it.
func with(list []string, word string) []string {
	if slices.Contains(list, word) {
		return list
	}
	return append(list, word)
}

// listed joins words in order; of many only the first few.
func listed(words []string) string {
	slices.Sort(words)
	const few = 8
	if len(words) > few {
		return strings.Join(words[:few], ", ") + fmt.Sprintf(" and %d more", len(words)-few)
	}
	return strings.Join(words, ", ")
}
