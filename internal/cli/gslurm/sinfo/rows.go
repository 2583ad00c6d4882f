package sinfo

import (
	"cmp"
	"slices"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gslurm/slurmcmd"
	"github.com/greylag/greylag/pkg/cluster"
)

// row is one line: nodes that agree in what the format shows of a node.
type row struct {
	part  *cluster.Partition // nil where the format shows no partition
	order int                // of the partition in the policy
	nodes []*greylagv1.Node
}

// rows groups the selected nodes into lines. O(partitions × nodes).
func (l *listing) rows(nodes []*greylagv1.Node, columns []slurmcmd.Column) []*row {
	byPart, perNode := l.byNode, []*field{}
	for _, c := range columns {
		switch f := fieldFor(c); {
		case f.kind == ofPartition:
			byPart = true
		case f.kind == ofNode, f.kind == ofSize && l.exact:
			perNode = append(perNode, f)
		}
	}
	var all []*row
	known := map[string]*row{}
	for i := range l.policy.Partitions {
		part := &l.policy.Partitions[i]
		if len(l.partitions) > 0 && !slices.Contains(l.partitions, part.Name) {
			continue
		}
		members := slices.DeleteFunc(slurmcmd.Members(nodes, part.Name), func(n *greylagv1.Node) bool { return !l.keep(n) })
		for _, n := range members {
			one := &row{part: part, order: i, nodes: []*greylagv1.Node{n}}
			var key strings.Builder
			if byPart {
				key.WriteString(part.Name)
			}
			if l.byNode {
				key.WriteString("\x00" + n.Name)
			}
			for _, f := range perNode {
				key.WriteString("\x00" + f.write(l, one))
			}
			r := known[key.String()]
			switch {
			case r == nil:
				known[key.String()] = one
				all = append(all, one)
			case !slices.Contains(r.nodes, n):
				r.nodes = append(r.nodes, n)
			}
		}
		if len(members) == 0 && byPart && !l.byNode && len(l.nodes)+len(l.states) == 0 && !l.reasons {
			all = append(all, &row{part: part, order: i})
		}
	}
	l.sortRows(all)
	return all
}

// keep reports whether a node is listed.
func (l *listing) keep(n *greylagv1.Node) bool {
	state := slurmcmd.StateOf(n)
	switch {
	case len(l.nodes) > 0 && !slices.Contains(l.nodes, n.Name),
		l.dead && !state.Silent, l.alive && state.Silent,
		l.reasons && (state.Available() || state.Completing && !state.Silent):
		return false
	}
	if len(l.states) == 0 {
		return true
	}
	short, long := strings.TrimRight(state.Short(), "*@^"), strings.TrimRight(state.Long(), "*@^")
	return slices.ContainsFunc(l.states, func(word string) bool {
		return word == short || word == long || word == "drain" && state.Drain || word == "reboot" && (state.Reboot || state.Rebooting) || word == "no_respond" && state.Silent || (word == "unk" || word == "unknown") && state.Silent && state.Base != "DOWN"
	})
}

// sortRows sorts lines by the keys of -S; usually by partition and state, by node with -N.
func (l *listing) sortRows(rows []*row) {
	keys := l.sort
	switch {
	case keys == "" && l.byNode:
		keys = "N"
	case keys == "":
		keys = "P,-t"
	}
	terms := strings.Split(keys, ",")
	slices.SortStableFunc(rows, func(a, b *row) int {
		for _, term := range terms {
			letter := strings.TrimLeft(term, "+-#")
			order := 0
			switch f := fieldFor(slurmcmd.Column{Letter: append([]byte(letter), 0)[0]}); {
			case letter == "P" || letter == "R":
				order = cmp.Compare(a.order, b.order)
			case letter == "t" || letter == "T":
				order = cmp.Compare(stateRank(a), stateRank(b))
			case f != nil:
				order = strings.Compare(f.write(l, a), f.write(l, b))
			}
			if strings.HasPrefix(term, "-") {
				order = -order
			}
			if order != 0 {
				return order
			}
		}
		return cmp.Compare(a.order, b.order)
	})
}

// stateRank orders states as Slurm's numbers do: flags before the base state.
func stateRank(r *row) int {
	if len(r.nodes) == 0 {
		return 0
	}
	s := slurmcmd.StateOf(r.nodes[0])
	rank := map[string]int{"DOWN": 1, "IDLE": 2, "ALLOCATED": 3, "MIXED": 5}[s.Base]
	for i, on := range []bool{s.Reserved, s.Drain, s.Silent} {
		if on {
			rank += 8 << i
		}
	}
	return rank
}
