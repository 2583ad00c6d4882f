package gctl

import (
	"context"
	"fmt"
	"io"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/topologyimport"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

func (t commands) showTopology(ctx context.Context, c ui.Cluster, conf bool) error {
	answer, err := c.Cluster().GetTopology(ctx, &greylagv1.GetTopologyRequest{})
	if err != nil {
		return err
	}
	if t.JSON {
		return t.WriteJSON(topologyOf(answer))
	}
	var switches []cluster.Switch
	for _, p := range answer.Switches {
		s := cluster.Switch{Name: p.Name, Children: p.Children, Speed: p.Speed, Block: p.Block}
		for _, list := range p.Nodes {
			names, err := hostlist.Expand(list)
			if err != nil {
				return fmt.Errorf("topology of the cluster: %w", err)
			}
			s.Nodes = append(s.Nodes, names...)
		}
		switches = append(switches, s)
	}
	tree, err := topology.NewFabric(switches)
	switch {
	case err != nil:
		return fmt.Errorf("topology of the cluster: %w", err)
	case tree == nil:
		t.Note("no topology: all nodes count as attached to one switch")
		return nil
	case conf:
		_, err = io.WriteString(t.Stdout, topologyimport.Write(switches))
		return err
	}
	_, err = fmt.Fprintf(t.Stdout, "version %d, since %s, by %s\n%s", answer.Version, t.FormatTime(answer.Since), answer.By, treeText(tree, switches))
	return err
}

// treeText draws the fabric: one domain per line, its children indented, leaves with their nodes,
// and then the NVLink blocks.
func treeText(f *topology.Fabric, switches []cluster.Switch) string {
	below := make([]map[int32][]int32, f.Levels()) // of each domain, its children
	count := make([]map[int32]int, f.Levels())
	nodes := map[int32][]string{}
	for l := range below {
		below[l], count[l] = map[int32][]int32{}, map[int32]int{}
	}
	for _, h := range f.Hosts() {
		for l := range f.Levels() {
			d, _ := f.Domain(l, h)
			if count[l][d]++; l == 0 {
				nodes[d] = append(nodes[d], h)
				continue
			}
			if child, _ := f.Domain(l-1, h); count[l-1][child] == 1 { // for the first time
				below[l][d] = append(below[l][d], child)
			}
		}
	}
	var out strings.Builder
	var draw func(l int, d int32, indent string)
	draw = func(l int, d int32, indent string) {
		fmt.Fprintf(&out, "%s%s, %s", indent, f.Name(l, d), ui.Count(int64(count[l][d]), "node"))
		if l == 0 {
			fmt.Fprintf(&out, ": %s\n", hostlist.Compress(nodes[d]))
			return
		}
		out.WriteString("\n")
		for at, children := l-1, below[l][d]; len(children) > 0; {
			var same []int32 // a switch that is its own parent, since other branches are deeper
			for _, child := range children {
				if at > 0 && f.Name(at, child) == f.Name(l, d) {
					same = append(same, below[at][child]...)
					continue
				}
				draw(at, child, indent+"  ")
			}
			at, children = at-1, same
		}
	}
	top := f.Levels() - 1
	for d := range int32(f.Domains(top)) {
		draw(top, d, "")
	}
	for _, s := range switches {
		if s.Block {
			fmt.Fprintf(&out, "NVLink block %s, %s: %s\n", s.Name, ui.Count(int64(len(s.Nodes)), "node"), hostlist.Compress(s.Nodes))
		}
	}
	return out.String()
}
