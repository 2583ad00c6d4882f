package state

import (
	"cmp"
	"slices"

	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/pkg/cluster"
)

// partitionIndex are the partitions' nodes: an index over policy and nodes. It is replaced,
// never changed, so that views may share it.
type partitionIndex struct {
	names map[string]*nodeSet
	types map[string][]string // of the GPUs of each partition's nodes, sorted
	kept  []kept              // the reservations
	// models is what each partition's nodes have, for limits.
	models map[string][]cluster.NodeModel
}

// nodeSet is one partition's nodes.
type nodeSet struct {
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
	sample   *cluster.Node
}

// typeCount is GPUs of one type and memory.
type typeCount struct {
	typ    string
	memory cluster.Bytes
	count  int32
}

func (r *nodeSet) has(node string) bool {
	if r.all {
		return true
	}
	_, listed := r.listed[node]
	return listed
}

// newRooms reads the partitions' node lists, which have been checked.
func newRooms(p *cluster.Policy) *partitionIndex {
	r := &partitionIndex{names: make(map[string]*nodeSet, len(p.Partitions)), kept: newKept(&p.Scheduling)}
	for _, part := range p.Partitions {
		r.names[part.Name] = roomOf(part.Nodes)
	}
	return r
}

// roomOf reads host list expressions, which have been checked. O(names).
func roomOf(expressions []string) *nodeSet {
	place := &nodeSet{listed: map[string]none{}}
	for _, expr := range expressions {
		if expr == "ALL" {
			place.all = true
			continue
		}
		names, _ := hostlist.Expand(expr)
		for _, n := range names {
			place.listed[n] = none{}
		}
	}
	return place
}

// rebuildPartitionIndex brings the index up to date. It is a bare nil check but after a change
// of the policy or of what nodes there are: then O(partitions × nodes).
func (s *State) rebuildPartitionIndex() {
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
	r.types = make(map[string][]string, len(r.names))
	r.models = make(map[string][]cluster.NodeModel, len(r.names))
	for name, place := range r.names {
		r.types[name], r.models[name] = place.gpuTypes(), place.models()
	}
	s.rooms = r
	s.specs.clear()
	clear(s.ties)
}

// gpuTypes is what GPUs the nodes have, sorted.
func (r *nodeSet) gpuTypes() (types []string) {
	for i := range r.shapes {
		for _, g := range r.shapes[i].gpus {
			types = append(types, g.typ)
		}
	}
	slices.Sort(types)
	return slices.Compact(types)
}

// models is what the nodes have, as limits read it.
func (r *nodeSet) models() (models []cluster.NodeModel) {
	for i := range r.shapes {
		s := &r.shapes[i]
		m := cluster.NodeModel{CPUs: s.cpus, Memory: s.memory, Features: s.features}
		for _, g := range s.gpus { // those of one type follow each other
			name := cluster.ResourceGPU + ":" + g.typ
			if k := len(m.GPUs); k == 0 || m.GPUs[k-1].Resource != name {
				m.GPUs = append(m.GPUs, cluster.Amount{Resource: name})
			}
			m.GPUs[len(m.GPUs)-1].Count += int64(g.count)
		}
		models = append(models, m)
	}
	return models
}

// shapeOf is what a node has, whether it may be used now or not.
func shapeOf(n *cluster.Node) shape {
	s := shape{nodes: 1, cpus: n.CPUs, memory: n.Memory, features: slices.Clone(n.Features), sample: n}
	slices.Sort(s.features)
	for _, g := range n.GPUs {
		kind := typeCount{typ: g.Type, memory: g.Memory}
		at, found := slices.BinarySearchFunc(s.gpus, kind, func(t, o typeCount) int {
			return cmp.Or(cmp.Compare(t.typ, o.typ), cmp.Compare(t.memory, o.memory))
		})
		if !found {
			s.gpus = slices.Insert(s.gpus, at, kind)
		}
		s.gpus[at].count++
	}
	return s
}

func (s shape) same(o shape) bool {
	return s.cpus == o.cpus && s.memory == o.memory && slices.Equal(s.gpus, o.gpus) && slices.Equal(s.features, o.features)
}

func addShape(shapes []shape, n *cluster.Node) []shape { return countShape(shapes, shapeOf(n)) }

func countShape(shapes []shape, s shape) []shape {
	for i := range shapes {
		if shapes[i].same(s) {
			shapes[i].nodes++
			return shapes
		}
	}
	return append(shapes, s)
}

// gpusOf counts the GPUs that a request may be given: of its types, if it names any,
// and with as much memory as it wants.
func (s shape) gpusOf(r *cluster.Request) int32 {
	var n int32
	for _, g := range s.gpus {
		if (len(r.GPUTypes) == 0 || slices.Contains(r.GPUTypes, g.typ)) && g.memory >= r.GPUMemory {
			n += g.count
		}
	}
	return n
}

// gpuMemory is the memory of the largest GPU of the request's types.
func (s shape) gpuMemory(r *cluster.Request) cluster.Bytes {
	var most cluster.Bytes
	for _, g := range s.gpus {
		if len(r.GPUTypes) == 0 || slices.Contains(r.GPUTypes, g.typ) {
			most = max(most, g.memory)
		}
	}
	return most
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
