package gsim

import (
	"cmp"
	"fmt"
	"os"
	"slices"

	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/config/strict"
	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/internal/topologyimport"
	"github.com/greylag/greylag/pkg/cluster"
)

// fabric attaches the nodes to the switches of a topology file. If the options name no nodes, they
// are the first ones of the file, switch by switch.
func (m *machine) fabric(f *sim.Machine, name string) error {
	if name == "" {
		return nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return &ui.UsageError{Problem: err.Error()}
	}
	topology, err := topologyimport.Read(name, text)
	if err != nil {
		return err
	}
	f.Switches = topology.Switches
	for _, w := range topology.Warnings {
		m.warnings = append(m.warnings, w.String())
	}
	if m.file != "" {
		return missingNodes(f, &topology)
	}
	names := attached(f.Switches)
	if m.nodes > len(names) {
		return &ui.UsageError{Problem: fmt.Sprintf("%s names %d nodes, fewer than --nodes %d", name, len(names), m.nodes), Advice: "leave --nodes out to take all of them"}
	}
	if m.nodes > 0 {
		names = names[:min(m.nodes, len(names))]
		f.Switches = only(f.Switches, names)
	}
	uniform, err := m.uniform(len(names))
	if err != nil {
		return err
	}
	f.Nodes = uniform.Nodes
	for i := range f.Nodes {
		sim.Rename(&f.Nodes[i], names[i])
	}
	return nil
}

// missingNodes returns the nodes of the fabric that the machine does not have.
func missingNodes(f *sim.Machine, topology *topologyimport.Topology) error {
	known := map[string]bool{}
	for i := range f.Nodes {
		known[f.Nodes[i].Name] = true
	}
	var faults strict.Faults
	for name, line := range topology.Lines {
		if !known[name] {
			faults = append(faults, strict.Fault{File: topology.Name, Line: line, Problem: fmt.Sprintf("node %q is not among the nodes of the machine", name)})
		}
	}
	if len(faults) == 0 {
		return nil
	}
	slices.SortFunc(faults, func(a, b strict.Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Problem, b.Problem))
	})
	return faults
}

// attached returns the nodes on switches, in order of the tree from its roots.
func attached(switches []cluster.Switch) []string {
	at, child := map[string]int{}, map[string]bool{}
	for i, s := range switches {
		at[s.Name] = i
		for _, c := range s.Children {
			child[c] = true
		}
	}
	var names []string
	seen := map[string]bool{}
	var walk func(i int)
	walk = func(i int) {
		s := &switches[i]
		for _, n := range s.Nodes {
			if !seen[n] {
				seen[n] = true
				names = append(names, n)
			}
		}
		for _, c := range slices.Sorted(slices.Values(s.Children)) {
			walk(at[c])
		}
	}
	for i, s := range switches {
		if !child[s.Name] {
			walk(i)
		}
	}
	return names
}

// only returns the switches with the given nodes, without those that have none left.
func only(switches []cluster.Switch, names []string) []cluster.Switch {
	keep := map[string]bool{}
	for _, n := range names {
		keep[n] = true
	}
	out := slices.Clone(switches)
	for i := range out {
		out[i].Nodes = slices.DeleteFunc(slices.Clone(out[i].Nodes), func(n string) bool { return !keep[n] })
	}
	for {
		left := map[string]bool{}
		for _, s := range out {
			left[s.Name] = true
		}
		before := len(out)
		out = slices.DeleteFunc(out, func(s cluster.Switch) bool { return len(s.Nodes)+len(s.Children) == 0 })
		if len(out) == before {
			return out
		}
		clear(left)
		for _, s := range out {
			left[s.Name] = true
		}
		for i := range out {
			out[i].Children = slices.DeleteFunc(slices.Clone(out[i].Children), func(c string) bool { return !left[c] })
		}
	}
}
