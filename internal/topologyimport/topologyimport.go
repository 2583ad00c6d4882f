// Package topologyimport reads the switches of a fabric from files of other programs: Slurm's
// topology.yaml and topology.conf, CSV, and the output of ibnetdiscover.
package topologyimport

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/greylag/greylag/internal/config/strict"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/pkg/cluster"
)

// Topology is the fabric that a file describes.
type Topology struct {
	Switches []cluster.Switch // nodes and children by name
	Warnings []strict.Fault   // settings that were left out, or look wrong
	Lines    map[string]int   // the first line of each node
	Name     string           // of the file
}

// MaxSize is the largest size of a topology file in bytes.
const MaxSize = 64 << 20

// maxAttached is the most nodes on switches in a file: every node of a very large cluster on
// sixteen rails.
const maxAttached = 2_000_000

// Read reads the fabric from a file's text; faults contain name. The ending of name gives the form:
// Slurm's topology.yaml (.yaml, .yml), a table with a column for the node and one for each level
// from the top down (.csv), otherwise Slurm's topology.conf. The error is strict.Faults, with
// lines. O(size).
func Read(name string, text []byte) (Topology, error) {
	r := &fabricReader{file: name, at: map[string]int{}}
	switch filepath.Ext(name) {
	case ".yaml", ".yml":
		r.yaml(text)
	case ".csv":
		r.csv(string(text))
	default:
		r.conf(string(text))
	}
	return r.finish()
}

// fabricReader collects switches and faults.
type fabricReader struct {
	file     string
	switches []placedSwitch
	at       map[string]int // name to index in switches
	attached int
	measured bool // not written by hand: an inconsistency is the state of the cables
	faults   []strict.Fault
	warnings []strict.Fault
}

// placedSwitch is a switch and the line that names it.
type placedSwitch struct {
	cluster.Switch
	line int
}

func (r *fabricReader) fault(line int, format string, args ...any) {
	r.faults = append(r.faults, strict.Fault{File: r.file, Line: line, Problem: fmt.Sprintf(format, args...)})
}

func (r *fabricReader) warn(line int, format string, args ...any) {
	r.warnings = append(r.warnings, strict.Fault{File: r.file, Line: line, Problem: fmt.Sprintf(format, args...)})
}

// names expands a host list, or reports its fault.
func (r *fabricReader) names(line int, what, expr string) []string {
	list, err := hostlist.Expand(expr)
	if r.attached += len(list); err != nil || r.attached > maxAttached {
		if err == nil {
			err = fmt.Errorf("more than %d nodes in total", maxAttached)
		}
		r.fault(line, "%s: %v", what, err)
		return nil
	}
	return list
}

func (r *fabricReader) speed(line int, word string) int64 {
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil || n < 0 || n > cluster.MaxSwitchSpeed {
		r.fault(line, "LinkSpeed: %q is not a number from 0 to %d", word, cluster.MaxSwitchSpeed)
		return 0
	}
	return n
}

// inconsistent reports a fault of a written file, and a warning of a measured one.
func (r *fabricReader) inconsistent(line int, format string, args ...any) {
	if r.measured {
		r.warn(line, format, args...)
		return
	}
	r.fault(line, format, args...)
}

// add adds a switch.
func (r *fabricReader) add(s cluster.Switch, line int) {
	what := "switch"
	if s.Block {
		what = "block"
	}
	if before, duplicate := r.at[s.Name]; duplicate {
		r.fault(line, "%s %q is on line %d already", what, s.Name, r.switches[before].line)
		return
	}
	if s.Name == "" || strings.ContainsAny(s.Name, ", []") {
		r.fault(line, "%q is not a name for a %s", s.Name, what)
		return
	}
	for _, list := range []struct {
		what  string
		names *[]string
	}{{"node", &s.Nodes}, {"switch", &s.Children}} {
		sorted := slices.Sorted(slices.Values(*list.names))
		for i := 1; i < len(sorted); i++ {
			if sorted[i] == sorted[i-1] {
				r.fault(line, "%s %q names %s %q twice", what, s.Name, list.what, sorted[i])
			}
		}
		*list.names = slices.Compact(sorted)
	}
	if len(s.Nodes) == 0 && len(s.Children) == 0 {
		r.fault(line, "%s %q has no nodes and no children", what, s.Name)
	}
	r.at[s.Name] = len(r.switches)
	r.switches = append(r.switches, placedSwitch{s, line})
}

// finish checks the fabric and returns it.
func (r *fabricReader) finish() (Topology, error) {
	if len(r.switches) == 0 && len(r.faults) == 0 {
		r.fault(0, "contains no switch and no block")
	}
	parents := r.checkChildren()
	r.checkCycles(parents)
	r.checkOrphans(parents)
	r.checkNodes()
	if len(r.faults) > 0 {
		slices.SortStableFunc(r.faults, func(a, b strict.Fault) int { return a.Line - b.Line })
		return Topology{}, strict.Faults(r.faults)
	}
	slices.SortStableFunc(r.warnings, func(a, b strict.Fault) int { return a.Line - b.Line })
	t := Topology{Warnings: r.warnings, Lines: map[string]int{}, Name: r.file}
	for _, s := range r.switches {
		t.Switches = append(t.Switches, s.Switch)
		for _, n := range s.Nodes {
			if _, known := t.Lines[n]; !known {
				t.Lines[n] = s.line
			}
		}
	}
	if err := cluster.CheckFabric(t.Switches); err != nil { // faults that only the cluster knows
		return Topology{}, strict.Faults{{File: r.file, Problem: err.Error()}}
	}
	return t, nil
}

// checkChildren finds children that are no switches or have two parents.
func (r *fabricReader) checkChildren() map[string]string {
	parents := map[string]string{}
	for _, s := range r.switches {
		for _, child := range s.Children {
			at, known := r.at[child]
			other, taken := parents[child]
			switch {
			case !known:
				r.fault(s.line, "switch %q has the child %q, which no line defines", s.Name, child)
				continue
			case r.switches[at].Block:
				r.fault(s.line, "switch %q has the child %q, which is a block", s.Name, child)
				continue
			case taken && other != s.Name:
				r.fault(s.line, "switch %q is a child of %q and of %q", child, other, s.Name)
				continue
			}
			parents[child] = s.Name
		}
	}
	return parents
}

// checkCycles finds switches that are their own ancestors. O(switches).
func (r *fabricReader) checkCycles(parents map[string]string) {
	done := map[string]bool{}
	for _, s := range r.switches {
		var path []string
		on := map[string]bool{}
		name := s.Name
		for name != "" && !done[name] && !on[name] {
			on[name] = true
			path = append(path, name)
			name = parents[name]
		}
		if from := slices.Index(path, name); from >= 0 {
			cycle := append(path[from:], name)
			slices.Reverse(cycle)
			r.fault(r.switches[r.at[name]].line, "switch %q is its own ancestor: %s", name, strings.Join(cycle, " > "))
		}
		for _, p := range path {
			done[p] = true
		}
	}
}

// checkOrphans finds switches with only nodes that have no parent while others have one: a line was
// forgotten.
func (r *fabricReader) checkOrphans(parents map[string]string) {
	if len(parents) == 0 {
		return
	}
	for _, s := range r.switches {
		if parents[s.Name] == "" && len(s.Children) == 0 && !s.Block {
			r.inconsistent(s.line, "switch %q is an orphan: it is a child of no switch", s.Name)
		}
	}
}

// checkNodes finds nodes under two switches that do not share the same nodes (those that do are
// rails), and nodes in two blocks. O(nodes × rails).
func (r *fabricReader) checkNodes() {
	type pair struct{ a, b string }
	reported := map[pair]bool{}
	first := map[string]int{} // the first switch of a node
	block := map[string]int{}
	for i, s := range r.switches {
		seen := first
		if s.Block {
			seen = block
		}
		for _, n := range s.Nodes {
			at, known := seen[n]
			if !known {
				seen[n] = i
				continue
			}
			other := r.switches[at]
			p := pair{other.Name, s.Name}
			if reported[p] || !s.Block && slices.Equal(other.Nodes, s.Nodes) {
				continue
			}
			reported[p] = true
			if s.Block {
				r.fault(s.line, "node %q is in block %q, and in block %q of line %d", n, s.Name, other.Name, other.line)
				continue
			}
			r.inconsistent(s.line, "node %q is under switch %q, and under switch %q of line %d, which does not share the same nodes", n, s.Name, other.Name, other.line)
		}
	}
}
