package topologyimport

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/greylag/greylag/pkg/cluster"
)

// csvRow is a node and the switches above it, from the top down.
type csvRow struct {
	node string
	path []string
	line int
}

// csv reads a table. The first column is the node, the others are the switches above it from the
// top down. A switch with several parents in the table becomes several switches, named with the
// switches above.
func (r *fabricReader) csv(text string) {
	rows := r.csvRows(text)
	above := map[string]map[string]bool{} // the parents of a switch at a level
	spot := func(path []string) string { return fmt.Sprintf("%d %s", len(path), path[len(path)-1]) }
	for _, row := range rows {
		for i := range row.path {
			at := spot(row.path[:i+1])
			if above[at] == nil {
				above[at] = map[string]bool{}
			}
			above[at][strings.Join(row.path[:i], "\x00")] = true
		}
	}
	name := func(path []string) string {
		if len(above[spot(path)]) > 1 {
			return strings.Join(path, ".")
		}
		return path[len(path)-1]
	}
	built := map[string]*placedSwitch{}
	var order []*placedSwitch
	at := func(path []string, line int) *placedSwitch {
		n := name(path)
		if built[n] == nil {
			built[n] = &placedSwitch{cluster.Switch{Name: n}, line}
			order = append(order, built[n])
		}
		return built[n]
	}
	for _, row := range rows {
		for i := 1; i < len(row.path); i++ {
			parent, child := at(row.path[:i], row.line), name(row.path[:i+1])
			if !slices.Contains(parent.Children, child) {
				parent.Children = append(parent.Children, child)
			}
		}
		leaf := at(row.path, row.line)
		leaf.Nodes = append(leaf.Nodes, row.node)
	}
	for _, s := range order {
		r.add(s.Switch, s.line)
	}
}

func (r *fabricReader) csvRows(text string) []csvRow {
	table := csv.NewReader(strings.NewReader(text))
	head, err := table.Read()
	if err != nil || len(head) < 2 {
		r.fault(1, "want a header with the node and at least one level, such as ip,DSW,PSW,ASW")
		return nil
	}
	var rows []csvRow
	seen := map[string]int{}
	for {
		fields, err := table.Read()
		var bad *csv.ParseError
		switch {
		case errors.Is(err, io.EOF):
			return rows
		case errors.As(err, &bad):
			r.fault(bad.Line, "%v", bad.Err)
			continue
		case err != nil:
			r.fault(0, "%v", err)
			return nil
		}
		line, _ := table.FieldPos(0)
		before, duplicate := seen[fields[0]]
		switch {
		case slices.Contains(fields, ""):
			r.fault(line, "a field is empty")
		case duplicate:
			r.fault(line, "node %q is on line %d already", fields[0], before)
		default:
			seen[fields[0]] = line
			rows = append(rows, csvRow{fields[0], fields[1:], line})
		}
		if r.attached++; r.attached > maxAttached {
			r.fault(line, "more than %d nodes", maxAttached)
			return nil
		}
	}
}
