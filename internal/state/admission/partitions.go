package admission

import (
	"cmp"
	"iter"
	"slices"

	"github.com/greylag/greylag/pkg/cluster"
)

// Index maps each partition and reservation to its nodes. It is replaced, never changed, so that
// views may share it.
type Index struct {
	names        map[string]*NodeSet
	types        map[string][]string // GPU types of each partition's nodes, sorted
	priced       map[string][]string // the names under which they are charged, sorted
	reservations []Reservation
	// Models is what each partition's nodes have, for limits.
	Models map[string][]cluster.NodeModel
}

// Reservation is a reservation with its nodes.
type Reservation struct {
	*cluster.Reservation
	*NodeSet
}

// NodeSet is the nodes of a partition or a reservation.
type NodeSet struct {
	cluster.NodeNames
	nodes  []string // registered ones, by name
	shapes []shape  // what they have
}

// shape is what equal nodes have.
type shape struct {
	nodes    int64
	cpus     int32
	memory   cluster.Bytes
	gpus     []typeCount // by type
	features []string    // sorted
	gres     []cluster.Gres
	sample   *cluster.Node
}

// typeCount is GPUs of one type, memory and price.
type typeCount struct {
	typ    string
	priced string // the name under which they are charged
	memory cluster.Bytes
	count  int32
}

func newIndex(p *cluster.Policy) *Index {
	r := &Index{names: make(map[string]*NodeSet, len(p.Partitions))}
	for _, part := range p.Partitions {
		r.names[part.Name] = newNodeSet(part.Nodes)
	}
	for i := range p.Scheduling.Reservations {
		of := &p.Scheduling.Reservations[i]
		r.reservations = append(r.reservations, Reservation{of, newNodeSet(of.Nodes)})
	}
	return r
}

// newNodeSet reads valid host list expressions. O(names).
func newNodeSet(expressions []string) *NodeSet {
	return &NodeSet{NodeNames: cluster.ParseNodeNames(expressions)}
}

// NewIndex returns the index of a valid policy and the registered nodes. O(partitions × nodes).
func NewIndex(p *cluster.Policy, nodes iter.Seq2[string, *cluster.Node]) *Index {
	r := newIndex(p)
	for name, n := range nodes {
		for _, set := range r.names {
			if set.Has(name) {
				set.nodes = append(set.nodes, name)
				set.shapes = addShape(set.shapes, n)
			}
		}
	}
	r.types, r.priced = make(map[string][]string, len(r.names)), make(map[string][]string, len(r.names))
	r.Models = make(map[string][]cluster.NodeModel, len(r.names))
	for name, set := range r.names {
		r.types[name], r.Models[name] = set.gpuTypes(func(g typeCount) string { return g.typ }), set.models()
		r.priced[name] = set.gpuTypes(func(g typeCount) string { return g.priced })
	}
	return r
}

// Partition returns the nodes of a partition; nil for an unknown one.
func (r *Index) Partition(name string) *NodeSet { return r.names[name] }

// GPUTypes returns the GPU types of a partition's nodes, sorted.
func (r *Index) GPUTypes(partition string) []string { return r.types[partition] }

// PricedTypes returns the names under which the GPUs of a partition's nodes are charged, sorted.
func (r *Index) PricedTypes(partition string) []string { return r.priced[partition] }

// MostGPUs returns the GPUs of the largest node of a partition.
func (r *Index) MostGPUs(partition string) (most int32) {
	if set := r.names[partition]; set != nil {
		for i := range set.shapes {
			n := int32(0)
			for _, g := range set.shapes[i].gpus {
				n += g.count
			}
			most = max(most, n)
		}
	}
	return most
}

// Reservations returns the reservations with their nodes, in the order of the policy.
func (r *Index) Reservations() []Reservation { return r.reservations }

// Nodes returns the registered nodes by name.
func (r *NodeSet) Nodes() []string {
	if r == nil {
		return nil
	}
	return r.nodes
}

// Relevant reports whether a change of a node changes what jobs the cluster could run.
func Relevant(old, n *cluster.Node) bool {
	return !shapeOf(old).same(shapeOf(n)) || !sameLinks(old.GPUs, n.GPUs)
}

// gpuTypes returns the names of the nodes' GPUs, sorted and unique.
func (r *NodeSet) gpuTypes(name func(typeCount) string) (types []string) {
	for i := range r.shapes {
		for _, g := range r.shapes[i].gpus {
			types = append(types, name(g))
		}
	}
	slices.Sort(types)
	return slices.Compact(types)
}

// models returns what the nodes have, for limits.
func (r *NodeSet) models() (models []cluster.NodeModel) {
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

// shapeOf returns what a node has, usable or not.
func shapeOf(n *cluster.Node) shape {
	s := shape{nodes: 1, cpus: n.CPUs, memory: n.Memory, features: slices.Clone(n.Features), gres: n.Gres, sample: n}
	slices.Sort(s.features)
	for i := range n.GPUs {
		g := &n.GPUs[i]
		kind := typeCount{typ: g.Type, priced: g.PricedType(), memory: g.Memory}
		at, found := slices.BinarySearchFunc(s.gpus, kind, func(t, o typeCount) int {
			return cmp.Or(cmp.Compare(t.typ, o.typ), cmp.Compare(t.priced, o.priced), cmp.Compare(t.memory, o.memory))
		})
		if !found {
			s.gpus = slices.Insert(s.gpus, at, kind)
		}
		s.gpus[at].count++
	}
	return s
}

func (s shape) same(o shape) bool {
	return s.cpus == o.cpus && s.memory == o.memory && slices.Equal(s.gpus, o.gpus) && slices.Equal(s.features, o.features) && slices.Equal(s.gres, o.gres)
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

// gpusOf counts the GPUs of the request's types, if it names any, with enough memory.
func (s shape) gpusOf(r *cluster.Request) int32 {
	var n int32
	for _, g := range s.gpus {
		if r.AcceptsGPU(g.typ) && g.memory >= r.GPUMemory {
			n += g.count
		}
	}
	return n
}

// gpuMemory returns the memory of the largest GPU of the request's types.
func (s shape) gpuMemory(r *cluster.Request) cluster.Bytes {
	var most cluster.Bytes
	for _, g := range s.gpus {
		if r.AcceptsGPU(g.typ) {
			most = max(most, g.memory)
		}
	}
	return most
}

// hasFeatures reports whether the nodes meet all conditions on features.
func (s shape) hasFeatures(conditions []string) bool {
	return !slices.ContainsFunc(conditions, func(c string) bool { return !cluster.HasFeatures(s.features, c) })
}
