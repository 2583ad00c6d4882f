package topologyimport

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/greylag/greylag/pkg/cluster"
)

// yamlErrorLine matches the line in an error of the YAML module.
var yamlErrorLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// readYAML reads one document; nil after a fault.
func (r *fabricReader) readYAML(text []byte) *yaml.Node {
	var doc, next yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	err := decoder.Decode(&doc)
	if errors.Is(err, io.EOF) {
		r.fault(0, "the file is empty")
		return nil
	}
	if err == nil {
		if err = decoder.Decode(&next); err == nil {
			r.fault(next.Line, "a second document begins: want one")
			return nil
		}
	}
	if !errors.Is(err, io.EOF) {
		where := yamlErrorLine.FindStringSubmatch(err.Error())
		line, _ := strconv.Atoi(where[1])
		problem := strings.TrimPrefix(err.Error(), where[0])
		if strings.HasPrefix(problem, "did not find expected") {
			line++ // the parser counts lines from 0, the scanner from 1
		}
		r.fault(line, "%s", problem)
		return nil
	}
	if !r.checkYAML(&doc) {
		return nil
	}
	return doc.Content[0]
}

// checkYAML finds keys that are given twice, and aliases.
func (r *fabricReader) checkYAML(n *yaml.Node) bool {
	ok := n.Kind != yaml.AliasNode
	if !ok {
		r.fault(n.Line, "alias *%s: aliases are not supported", n.Value)
	}
	seen := map[string]bool{}
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			if seen[child.Value] {
				r.fault(child.Line, "key %q is given twice", child.Value)
				ok = false
			}
			seen[child.Value] = true
		}
		ok = r.checkYAML(child) && ok
	}
	return ok
}

// yamlFields returns the keys and values of a map; none of anything else.
func yamlFields(n *yaml.Node) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(key, value *yaml.Node) bool) {
		if n == nil || n.Kind != yaml.MappingNode {
			return
		}
		for pair := range slices.Chunk(n.Content, 2) {
			if !yield(pair[0], pair[1]) {
				return
			}
		}
	}
}

// yamlField returns the value of a key; nil when it is absent.
func yamlField(n *yaml.Node, name string) *yaml.Node {
	for key, value := range yamlFields(n) {
		if key.Value == name {
			return value
		}
	}
	return nil
}

// yamlWord returns the scalar of a key; "" when it is missing.
func yamlWord(n *yaml.Node, name string) string {
	if value := yamlField(n, name); value != nil {
		return value.Value
	}
	return ""
}

// yaml reads Slurm's topology.yaml: a list of topologies, each a tree, blocks or flat. It takes the
// cluster's topology of each kind: the one with cluster_default, otherwise the first. A tree and
// blocks are taken together, blocks as NVLink domains.
func (r *fabricReader) yaml(text []byte) {
	doc := r.readYAML(text)
	if doc == nil {
		return
	}
	if doc.Kind != yaml.SequenceNode {
		r.fault(doc.Line, "want a list of topologies, each beginning with - topology: NAME")
		return
	}
	chosen := map[string]*yaml.Node{}
	for _, t := range doc.Content {
		kind := r.yamlKind(t)
		if kind == "" {
			continue
		}
		other := chosen[kind]
		isDefault := yamlWord(t, "cluster_default") == "true"
		switch {
		case other == nil:
			chosen[kind] = t
		case isDefault && yamlWord(other, "cluster_default") != "true":
			r.warn(other.Line, "topology %q is not used: another %s is the cluster's", yamlWord(other, "topology"), kind)
			chosen[kind] = t
		default:
			r.warn(t.Line, "topology %q is not used: another %s is the cluster's", yamlWord(t, "topology"), kind)
		}
	}
	if t := chosen["tree"]; t != nil {
		r.yamlSwitches(yamlField(t, "tree"), "switches", "switch")
	}
	if t := chosen["block"]; t != nil {
		if sizes := yamlField(yamlField(t, "block"), "block_sizes"); sizes != nil {
			r.warn(sizes.Line, "block_sizes is not used: a block is an NVLink domain, and groups of blocks are not scheduled")
		}
		r.yamlSwitches(yamlField(t, "block"), "blocks", "block")
	}
}

// yamlKind returns the kind of a topology; "" if unknown.
func (r *fabricReader) yamlKind(t *yaml.Node) string {
	if t.Kind != yaml.MappingNode {
		r.fault(t.Line, "want topology: NAME with tree:, block: or flat: true")
		return ""
	}
	kind := ""
	for key := range yamlFields(t) {
		switch key.Value {
		case "topology", "cluster_default":
		case "tree", "block", "flat":
			if kind != "" {
				r.fault(key.Line, "a topology is one of tree, block and flat, not both %s and %s", kind, key.Value)
			}
			kind = key.Value
		case "ring", "torus3d":
			r.fault(key.Line, "a topology of kind %s is not supported: describe its switches as a tree", key.Value)
			return ""
		default:
			r.fault(key.Line, "unknown key %q; known here: topology, cluster_default, tree, block, flat", key.Value)
		}
	}
	switch {
	case yamlWord(t, "topology") == "":
		r.fault(t.Line, "a topology has no name: it begins with - topology: NAME")
	case kind == "":
		r.fault(t.Line, "topology %q is not tree, block or flat", yamlWord(t, "topology"))
	case kind == "flat":
		return ""
	}
	return kind
}

// yamlSwitches reads the list under a key, whose elements begin with noun: NAME.
func (r *fabricReader) yamlSwitches(in *yaml.Node, key, noun string) {
	list := yamlField(in, key)
	if list == nil || list.Kind != yaml.SequenceNode {
		r.fault(in.Line, "want %s: and a list of - %s: NAME", key, noun)
		return
	}
	for k := range yamlFields(in) {
		if k.Value != key && k.Value != "block_sizes" {
			r.fault(k.Line, "unknown key %q; known here: %s", k.Value, key)
		}
	}
	for _, item := range list.Content {
		s := cluster.Switch{Name: yamlWord(item, noun), Block: noun == "block"}
		if s.Name == "" {
			r.fault(item.Line, "want - %s: NAME", noun)
			continue
		}
		for key, value := range yamlFields(item) {
			switch {
			case key.Value == noun:
			case key.Value == "nodes":
				s.Nodes = r.names(key.Line, "nodes", yamlHosts(value))
			case key.Value == "children" && !s.Block:
				s.Children = r.names(key.Line, "children", yamlHosts(value))
			case key.Value == "link_speed" && !s.Block:
				s.Speed = r.speed(key.Line, value.Value)
			default:
				r.fault(key.Line, "unknown key %q; known here: %s, nodes, children, link_speed", key.Value, noun)
			}
		}
		r.add(s, item.Line)
	}
}

// yamlHosts returns a scalar, or the scalars of a list as one host list.
func yamlHosts(n *yaml.Node) string {
	if n.Kind != yaml.SequenceNode {
		return n.Value
	}
	var words []string
	for _, item := range n.Content {
		words = append(words, item.Value)
	}
	return strings.Join(words, ",")
}
