package cluster

import (
	"iter"
	"slices"
)

// MismatchKind names the part of a request that a node does not meet.
type MismatchKind uint8

// The kinds, in the order in which [NodeFilter] checks them.
const (
	NotListed       MismatchKind = iota + 1 // the request names other nodes
	Excluded                                // the request excludes the node
	MissingFeature                          // Name is the condition on features
	OutsideRegions                          // Name is the node's region
	TooExpensive                            // Name is the name under which the GPU is charged
	TooFewCPUs                              // Want is the number needed
	TooLittleMemory                         // Want is the number of bytes needed
	TooFewGres                              // Name is the generic resource: Have of Want
	TooFewGPUs                              // of the requested types: Have of Want
	SmallGPUs                               // too few of them have the requested memory
	UnlinkedGPUs                            // too few of those are in one NVLink domain
	DegradedNode                            // of a job that needs several nodes; Name is why
)

// Mismatch is one reason why a node does not suit a request.
type Mismatch struct {
	Kind       MismatchKind
	Name       string
	Have, Want int64
}

// NodeFilter decides whether a node suits a request. Planning, explanations, admission and the
// re-check of a planned start all use it.
type NodeFilter struct {
	// GPUs is the least number of GPUs that each node must give.
	GPUs int32
	// WithFaulty counts faulty GPUs too: they may be repaired.
	WithFaulty bool
	// Price returns what an hour of a GPU costs by the name under which it is charged, in micro-credits; nil for
	// no prices.
	Price func(priced string) int64

	request          *Request
	listed, excluded NodeNames
}

// NewNodeFilter returns the filter of a request: every node must give GPUsPerNode GPUs, or at least
// one where the job's GPUs are spread over its nodes.
func NewNodeFilter(r *Request) *NodeFilter {
	return &NodeFilter{
		GPUs: max(r.GPUsPerNode, min(1, r.GPUs)), request: r,
		listed: ParseNodeNames(r.OnlyNodes()), excluded: ParseNodeNames(r.Exclude),
	}
}

// Suits reports whether a node has the requested attributes, whatever its size.
func (f *NodeFilter) Suits(n *Node) bool {
	for range f.Attributes(n) {
		return false
	}
	return true
}

// Attributes yields each mismatch of the node's name, features, region, health and prices.
func (f *NodeFilter) Attributes(n *Node) iter.Seq[Mismatch] {
	return func(yield func(Mismatch) bool) {
		r := f.request
		if len(r.OnlyNodes()) > 0 && !f.listed.Has(n.Name) && !yield(Mismatch{Kind: NotListed}) {
			return
		}
		if len(r.Exclude) > 0 && f.excluded.Has(n.Name) && !yield(Mismatch{Kind: Excluded}) {
			return
		}
		for _, feature := range r.Features {
			if !HasFeatures(n.Features, feature) && !yield(Mismatch{Kind: MissingFeature, Name: feature}) {
				return
			}
		}
		if len(r.Regions) > 0 && !slices.Contains(r.Regions, n.Region) && !yield(Mismatch{Kind: OutsideRegions, Name: n.Region}) {
			return
		}
		if why := n.Degraded(); r.NeedsSeveral() && !f.WithFaulty && why != "" && !yield(Mismatch{Kind: DegradedNode, Name: why}) {
			return
		}
		for i := range n.GPUs {
			if f.tooExpensive(&n.GPUs[i]) {
				yield(Mismatch{Kind: TooExpensive, Name: n.GPUs[i].PricedType()})
				return
			}
		}
	}
}

// Capacity yields each mismatch between the request and the unallocated part of a node.
func (f *NodeFilter) Capacity(n *Node, used NodeUse) iter.Seq[Mismatch] {
	return func(yield func(Mismatch) bool) {
		if cpus := f.request.CPUsPerNode(); n.CPUs-used.CPUs < cpus && !yield(Mismatch{Kind: TooFewCPUs, Want: int64(cpus)}) {
			return
		}
		memory := f.request.MemoryRule().On(n.Size(), f.GPUs)
		if n.Memory-used.Memory < memory && !yield(Mismatch{Kind: TooLittleMemory, Want: int64(memory)}) {
			return
		}
		for i := range f.request.Gres {
			want := &f.request.Gres[i]
			have := CountGres(n.Gres, want) - CountGres(used.Gres, &Gres{Name: want.Name})
			if have < want.Count && !yield(Mismatch{Kind: TooFewGres, Name: want.Name, Have: max(0, have), Want: want.Count}) {
				return
			}
		}
		if m, short := f.gpus(n, used); short {
			yield(m)
		}
	}
}

// gpus returns the mismatch of a node's free GPUs, if there is one.
func (f *NodeFilter) gpus(n *Node, used NodeUse) (Mismatch, bool) {
	if f.GPUs == 0 {
		return Mismatch{}, false
	}
	var typed, large, linked int32
	domains := map[string]int32{}
	for i := range n.GPUs {
		g := &n.GPUs[i]
		if g.Fault != "" && !f.WithFaulty || i < len(used.GPUs) && used.GPUs[i] || !f.accepts(g.Type) {
			continue
		}
		if typed++; g.Memory < f.request.GPUMemory {
			continue
		}
		if large++; g.Domain != "" {
			domains[g.Domain]++
			linked = max(linked, domains[g.Domain])
		}
	}
	m := Mismatch{Have: int64(typed), Want: int64(f.GPUs)}
	switch nvlink := f.request.Connect == ConnectNVLink || f.request.Connect == ConnectNode; {
	case typed < f.GPUs:
		m.Kind = TooFewGPUs
	case large < f.GPUs:
		m.Kind = SmallGPUs
	case nvlink && f.GPUs > 1 && linked < f.GPUs:
		m.Kind = UnlinkedGPUs
	default:
		return Mismatch{}, false
	}
	return m, true
}

// GPU returns the first mismatch of a GPU, if there is one: its type, price or memory.
func (f *NodeFilter) GPU(g *GPU) (Mismatch, bool) {
	switch {
	case !f.accepts(g.Type):
		return Mismatch{Kind: TooFewGPUs, Name: g.Type}, true
	case f.tooExpensive(g):
		return Mismatch{Kind: TooExpensive, Name: g.PricedType()}, true
	case g.Memory < f.request.GPUMemory:
		return Mismatch{Kind: SmallGPUs, Have: int64(g.Memory), Want: int64(f.request.GPUMemory)}, true
	}
	return Mismatch{}, false
}

func (f *NodeFilter) accepts(gpuType string) bool {
	return f.request.AcceptsGPU(gpuType)
}

// tooExpensive reports whether the GPU costs more than the job accepts.
func (f *NodeFilter) tooExpensive(g *GPU) bool {
	return f.request.MaxPrice > 0 && f.Price != nil && f.accepts(g.Type) && f.Price(g.PricedType()) > f.request.MaxPrice
}
