package state

import (
	"slices"

	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/pkg/cluster"
)

// rooms are the partitions' nodes: an index over policy and nodes. It is replaced,
// never changed, so that views may share it.
type rooms struct {
	names map[string]*room
}

// room is one partition's nodes.
type room struct {
	all    bool            // every node belongs to it
	listed map[string]none // else these, registered or not
	nodes  []string        // registered ones, by name
	shapes []shape         // what they have
}

// shape is what some nodes have in common.
type shape struct {
	nodes    int64
	cpus     int32
	memory   cluster.Bytes
	gpus     []typeCount // by type
	features []string    // sorted
}

type typeCount struct {
	typ   string
	count int32
}

func (r *room) has(node string) bool {
	if r.all {
		return true
	}
	_, listed := r.listed[node]
	return listed
}

// newRooms reads the partitions' node lists, which have been checked.
func newRooms(p *cluster.Policy) *rooms {
	r := &rooms{names: make(map[string]*room, len(p.Partitions))}
	for _, part := range p.Partitions {
		place := &room{listed: map[string]none{}}
		for _, expr := range part.Nodes {
			if expr == "ALL" {
				place.all = true
				continue
			}
			names, _ := hostlist.Expand(expr)
			for _, n := range names {
				place.listed[n] = none{}
			}
		}
		r.names[part.Name] = place
	}
	return r
}

// sortRooms brings the index up to date. It is a bare nil check but after a change
// of the policy or of what nodes there are: then O(partitions × nodes).
func (s *State) sortRooms() {
	if s.rooms != nil {
		return
	}
	r := newRooms(s.policy)
	for name, n := range s.nodes.All() {
		for _, place := range r.names {
			if place.has(name) {
				place.nodes = append(place.nodes, name)
				place.shapes = addShape(place.shapes, n)
			}
		}
	}
	s.rooms = r
	s.specs.clear()
}

// shapeOf is what a node has, whether it may be used now or not.
func shapeOf(n *cluster.Node) shape {
	s := shape{nodes: 1, cpus: n.CPUs, memory: n.Memory, features: slices.Clone(n.Features)}
	slices.Sort(s.features)
	for _, g := range n.GPUs {
		at, found := slices.BinarySearchFunc(s.gpus, g.Type, func(t typeCount, typ string) int {
			if t.typ < typ {
				return -1
			} else if t.typ > typ {
				return 1
			}
			return 0
		})
		if !found {
			s.gpus = slices.Insert(s.gpus, at, typeCount{typ: g.Type})
		}
		s.gpus[at].count++
	}
	return s
}

func (s shape) same(o shape) bool {
	return s.cpus == o.cpus && s.memory == o.memory && slices.Equal(s.gpus, o.gpus) && slices.Equal(s.features, o.features)
}

func addShape(shapes []shape, n *cluster.Node) []shape {
	s := shapeOf(n)
	for i := range shapes {
		if shapes[i].same(s) {
			shapes[i].nodes++
			return shapes
		}
	}
	return append(shapes, s)
}

// gpusOf counts the GPUs of the types; all of them when no type is named.
func (s shape) gpusOf(types []string) int32 {
	var n int32
	for _, g := range s.gpus {
		if len(types) == 0 || slices.Contains(types, g.typ) {
			n += g.count
		}
	}
	return n
}

// hasFeatures reports whether the nodes have all that are wanted.
func (s shape) hasFeatures(wanted []string) bool {
	for _, f := range wanted {
		if _, found := slices.BinarySearch(s.features, f); !found {
			return false
		}
	}
	return true
}
