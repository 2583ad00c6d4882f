package topologyimport

import (
	"fmt"
	"strings"

	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/pkg/cluster"
)

// conf reads Slurm's topology.conf: lines of KEY=VALUE words whose keys are not case sensitive, "#"
// to the end of the line, a backslash that continues a line.
func (r *fabricReader) conf(text string) {
	line, start, whole := 0, 0, ""
	for raw := range strings.Lines(text) {
		line++
		part, _, _ := strings.Cut(strings.TrimRight(raw, "\r\n"), "#")
		if whole == "" {
			start = line
		}
		if before, goes := strings.CutSuffix(strings.TrimRight(part, " \t"), "\\"); goes {
			whole += before + " "
			continue
		}
		r.confLine(start, whole+part)
		whole = ""
	}
	r.confLine(start, whole)
}

func (r *fabricReader) confLine(line int, text string) {
	var s cluster.Switch
	kind := ""
	seen := map[string]bool{}
	for _, word := range strings.Fields(text) {
		said, value, is := strings.Cut(word, "=")
		key := strings.ToLower(said)
		switch {
		case !is || value == "":
			r.fault(line, "%q is not KEY=VALUE", word)
			return
		case seen[key]:
			r.fault(line, "%s is given twice", said)
			return
		}
		seen[key] = true
		switch key {
		case "switchname", "blockname":
			s.Name, s.Block = value, key == "blockname"
			kind = key
		case "nodes":
			s.Nodes = r.names(line, "Nodes", value)
		case "switches":
			s.Children = r.names(line, "Switches", value)
		case "linkspeed":
			s.Speed = r.speed(line, value)
		case "blocksizes":
			r.warn(line, "BlockSizes is not used: a block is an NVLink domain, and groups of blocks are not scheduled")
			kind = key
		default:
			r.fault(line, "unknown key %q; known here: SwitchName, Switches, Nodes, LinkSpeed, BlockName, BlockSizes", said)
			return
		}
	}
	switch {
	case len(seen) == 0 || kind == "blocksizes" && len(seen) == 1:
	case kind != "switchname" && kind != "blockname":
		r.fault(line, "neither SwitchName nor BlockName is given")
	case s.Block && seen["switches"]:
		r.fault(line, "block %q has switches: a block has only nodes", s.Name)
	default:
		r.add(s, line)
	}
}

// Write returns a fabric in the form of topology.conf that Read reads.
func Write(switches []cluster.Switch) string {
	var out strings.Builder
	for _, s := range switches {
		key := "SwitchName"
		if s.Block {
			key = "BlockName"
		}
		fmt.Fprintf(&out, "%s=%s", key, s.Name)
		if len(s.Children) > 0 {
			fmt.Fprintf(&out, " Switches=%s", hostlist.Compress(s.Children))
		}
		if len(s.Nodes) > 0 {
			fmt.Fprintf(&out, " Nodes=%s", hostlist.Compress(s.Nodes))
		}
		if s.Speed > 0 {
			fmt.Fprintf(&out, " LinkSpeed=%d", s.Speed)
		}
		out.WriteString("\n")
	}
	return out.String()
}
