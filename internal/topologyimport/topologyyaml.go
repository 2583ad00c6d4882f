package topologyimport

import (
	"strings"

	"github.com/greylag/greylag/pkg/cluster"
)

// yaml reads Slurm's topology.yaml: a list of topologies, each a tree, blocks or flat. It takes the
// cluster's topology of each kind: the one with cluster_default, otherwise the first. A tree and
// blocks are taken together, blocks as NVLink domains.
func (r *fabricReader) yaml(text string) {
	doc := readYAML(text, r.fault)
	if doc == nil {
		return
	}
	if doc.list == nil {
		r.fault(doc.line, "want a list of topologies, each beginning with - topology: NAME")
		return
	}
	chosen := map[string]*yamlNode{}
	for _, t := range doc.list {
		kind := r.yamlKind(t)
		if kind == "" {
			continue
		}
		other := chosen[kind]
		isDefault := t.word("cluster_default") == "true"
		switch {
		case other == nil:
			chosen[kind] = t
		case isDefault && other.word("cluster_default") != "true":
			r.warn(other.line, "topology %q is not used: another %s is the cluster's", other.word("topology"), kind)
			chosen[kind] = t
		default:
			r.warn(t.line, "topology %q is not used: another %s is the cluster's", t.word("topology"), kind)
		}
	}
	if t := chosen["tree"]; t != nil {
		r.yamlSwitches(t.field("tree"), "switches", "switch")
	}
	if t := chosen["block"]; t != nil {
		if sizes := t.field("block").field("block_sizes"); sizes != nil {
			r.warn(sizes.line, "block_sizes is not used: a block is an NVLink domain, and groups of blocks are not scheduled")
		}
		r.yamlSwitches(t.field("block"), "blocks", "block")
	}
}

// yamlKind returns the kind of a topology; "" if it is none.
func (r *fabricReader) yamlKind(t *yamlNode) string {
	if t.fields == nil {
		r.fault(t.line, "want topology: NAME with tree:, block: or flat: true")
		return ""
	}
	kind := ""
	for _, f := range t.fields {
		switch f.key {
		case "topology", "cluster_default":
		case "tree", "block", "flat":
			if kind != "" {
				r.fault(f.node.line, "a topology is one of tree, block and flat, not both %s and %s", kind, f.key)
			}
			kind = f.key
		case "ring", "torus3d":
			r.fault(f.node.line, "a topology of kind %s is not supported: describe its switches as a tree", f.key)
			return ""
		default:
			r.fault(f.node.line, "unknown key %q; known here: topology, cluster_default, tree, block, flat", f.key)
		}
	}
	switch {
	case t.word("topology") == "":
		r.fault(t.line, "a topology has no name: it begins with - topology: NAME")
	case kind == "":
		r.fault(t.line, "topology %q is not tree, block or flat", t.word("topology"))
	case kind == "flat":
		return ""
	}
	return kind
}

// yamlSwitches reads the list under a key, whose elements begin with noun: NAME.
func (r *fabricReader) yamlSwitches(in *yamlNode, key, noun string) {
	list := in.field(key)
	if list == nil || list.list == nil {
		r.fault(in.line, "want %s: and a list of - %s: NAME", key, noun)
		return
	}
	for _, f := range in.fields {
		if f.key != key && f.key != "block_sizes" {
			r.fault(f.node.line, "unknown key %q; known here: %s", f.key, key)
		}
	}
	for _, item := range list.list {
		s := cluster.Switch{Name: item.word(noun), Block: noun == "block"}
		if s.Name == "" {
			r.fault(item.line, "want - %s: NAME", noun)
			continue
		}
		for _, f := range item.fields {
			switch {
			case f.key == noun:
			case f.key == "nodes":
				s.Nodes = r.names(f.node.line, "nodes", f.node.joined())
			case f.key == "children" && !s.Block:
				s.Children = r.names(f.node.line, "children", f.node.joined())
			case f.key == "link_speed" && !s.Block:
				s.Speed = r.speed(f.node.line, f.node.text)
			default:
				r.fault(f.node.line, "unknown key %q; known here: %s, nodes, children, link_speed", f.key, noun)
			}
		}
		r.add(s, item.line)
	}
}

// joined returns a scalar, or the scalars of a list as one host list.
func (n *yamlNode) joined() string {
	if n.list == nil {
		return n.text
	}
	var words []string
	for _, item := range n.list {
		words = append(words, item.text)
	}
	return strings.Join(words, ",")
}
