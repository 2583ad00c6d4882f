package strict

import (
	"maps"
	"slices"
	"strings"

	"github.com/greylag/greylag/pkg/cluster"
)

// Gres is a table of generic resources: NAME or "NAME:TYPE" with the count.
type Gres []cluster.Gres

// Read reads the table.
func (g *Gres) Read(d *Decoder, path string, value any) {
	table, isTable := value.(map[string]any)
	if !isTable {
		d.Fault(path, "expected a table, found %s", Describe(value))
		return
	}
	*g = nil
	for _, key := range slices.Sorted(maps.Keys(table)) {
		count, isNumber := table[key].(int64)
		if !isNumber {
			d.Fault(Join(path, key), "expected an integer, found %s", Describe(table[key]))
			continue
		}
		name, kind, _ := strings.Cut(key, ":")
		*g = append(*g, cluster.Gres{Name: name, Type: kind, Count: count})
	}
	cluster.SortGres(*g)
	if why := cluster.GresFault(*g); why != "" {
		d.Fault(path, "%s", why)
	}
}

// Write is the reverse of Read.
func (g Gres) Write() any {
	table := map[string]any{}
	for _, x := range g {
		key := x.Name
		if x.Type != "" {
			key += ":" + x.Type
		}
		table[key] = x.Count
	}
	return table
}
