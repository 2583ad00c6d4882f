// Package words formats numbers, instants and requests for messages of the scheduler.
package words

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// Count writes a number with its noun, whose plural adds an s or is given.
func Count[N int | int32 | int64](n N, noun string, plural ...string) string {
	if n != 1 {
		noun = slices.Concat(plural, []string{noun + "s"})[0]
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// And joins words with commas and an "and".
func And(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// Instant writes an instant in UTC.
func Instant(at cluster.Instant) string { return at.Time().UTC().Format("2006-01-02T15:04:05Z") }

// GPUType writes the GPU types that a need accepts, with a space after them; "" when it accepts any.
func GPUType(n *topology.NodeRequest) string {
	if n.Total > 0 && n.Types[0] != "" {
		return strings.Join(n.Types, " or ") + " "
	}
	return ""
}

// scratchSpace is the generic resource cluster.GresTmp in words.
const scratchSpace = "scratch space"

func isScratch(name string) bool { return name == cluster.GresTmp }

// GresCount writes the count of a generic resource: "2", or "10G" of scratch space.
func GresCount(g *cluster.Gres) string {
	if isScratch(g.Name) {
		return (cluster.Bytes(g.Count) * cluster.MiB).String()
	}
	return strconv.FormatInt(g.Count, 10)
}

// GresName writes the name of a generic resource: "the resource nvme", or "scratch space".
func GresName(name string) string {
	if isScratch(name) {
		return scratchSpace
	}
	return "the resource " + name
}

// GresShortage returns why nodes lack a requested generic resource: "no nvme", "fewer than 2
// nvme", "less than 10G of scratch space".
func GresShortage(name string, have, want int64) string {
	text := Gres(&cluster.Gres{Name: name, Count: want})
	switch {
	case have == 0 && isScratch(name):
		return "no " + scratchSpace
	case have == 0:
		return "no " + name
	case isScratch(name):
		return "less than " + text
	}
	return "fewer than " + text
}

// Gres writes a requested generic resource: "2 nvme", "1 fpga (u250)", or "10G of scratch space".
func Gres(g *cluster.Gres) string {
	if isScratch(g.Name) && g.Type == "" {
		return GresCount(g) + " of " + scratchSpace
	}
	text := fmt.Sprintf("%d %s", g.Count, g.Name)
	if g.Type != "" {
		text += " (" + g.Type + ")"
	}
	return text
}

// Need writes what a request needs: "needs 8 h100 GPUs and 8 CPUs on each of 2 nodes".
func Need(n *topology.NodeRequest) string {
	kind := GPUType(n)
	var what []string
	if n.PerNode > 0 {
		what = append(what, Count(n.PerNode, kind+"GPU"))
	}
	if n.CPUs > 1 || n.PerNode < 1 {
		what = append(what, Count(n.CPUs, "CPU"))
	}
	if m := n.Memory.On(cluster.NodeSize{}, n.PerNode); m > 0 {
		what = append(what, m.String()+" of memory")
	}
	if n.Memory.From == cluster.MemoryAll && !n.Exclusive {
		what = append(what, "all memory")
	}
	for i := range n.Gres {
		what = append(what, Gres(&n.Gres[i]))
	}
	where, alone := " on one node", ""
	if n.Exclusive {
		alone = " to itself"
	}
	switch {
	case n.PerNode < 0 && n.Nodes == 0:
		return "needs " + Count(n.Total, kind+"GPU") + " in all, and " + And(what) + " on each node" + alone
	case n.PerNode < 0:
		return fmt.Sprintf("needs %s on %d nodes%s, and %s on each", Count(n.Total, kind+"GPU"), n.Nodes, alone, And(what))
	case n.Nodes > 1:
		where = fmt.Sprintf(" on each of %d nodes", n.Nodes)
	}
	return "needs " + And(what) + where + alone
}

// Request writes what a request needs, with features that all its nodes must share.
func Request(q *cluster.Request) string {
	need := topology.NeedOf(q)
	text := Need(&need)
	if len(cluster.FeatureSets(q.Features)) > 1 && q.Nodes != 1 {
		text += ", all with the same one of the features " + cluster.FormatFeatures(q.Features)
	}
	if q.IncludesList() {
		text += ", with " + And(q.NodeList) + " among them"
	}
	if q.Share.On() {
		text += fmt.Sprintf(", or a place on a GPU that its user shares among at most %d jobs", q.Share.Jobs)
	}
	return text
}

// SearchBounded is the note of a job that may start later than possible, since a bounded search did not try
// every set of nodes.
const SearchBounded = "; the search with this --nodes and --switches is bounded: it may miss a place that it would find with --gpus-per-node"
