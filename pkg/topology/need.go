package topology

import "github.com/greylag/greylag/pkg/cluster"

// NodeRequest is a request in the form that placing reads. Make it with [NeedOf].
type NodeRequest struct {
	Nodes     int32 // number of nodes; 0: as few as possible
	Most      int32 // largest number of nodes; 0: no limit
	PerNode   int32 // GPUs of each node; -1: Total is spread
	Total     int32 // GPUs in all
	CPUs      int32 // of each node
	Types     []string
	Exclusive bool
	Gres      []cluster.Gres // of each node
	Memory    cluster.MemoryRule
	GPUMemory cluster.Bytes // smallest memory of each GPU
	Linked    bool          // the GPUs of each node in one NVLink domain
}

// NeedOf reads a validated request.
func NeedOf(r *cluster.Request) NodeRequest {
	n := NodeRequest{
		Nodes: r.Nodes, PerNode: r.GPUsPerNode, Total: r.TotalGPUs(), CPUs: r.CPUsPerNode(),
		Types: r.GPUTypes, Exclusive: r.Exclusive, Gres: r.Gres, Memory: r.MemoryRule(),
		GPUMemory: r.GPUMemory, Linked: r.Connect == cluster.ConnectNVLink || r.Connect == cluster.ConnectNode,
	}
	if r.GPUs > 0 && r.GPUsPerNode == 0 {
		n.PerNode = -1
		if n.Nodes == 1 {
			n.PerNode = n.Total
		}
	} else if n.Nodes == 0 { // GPUs and GPUsPerNode agree, validated
		n.Nodes = 1
	}
	if len(n.Types) == 0 || n.Total == 0 {
		n.Types = anyType
	}
	return n
}

var anyType = []string{""}

// Accepts reports whether a requested type accepts GPUs of a type. "" is any whole GPU.
func Accepts(kind, gpuType string) bool {
	if kind == "" {
		return !cluster.IsMIGProfile(gpuType)
	}
	return kind == gpuType
}

// Gives returns how many GPUs of a type ("" means any) the host can give to one node's share of the
// need, and whether it can serve as a node at all: it has the CPUs and the memory, and the GPUs
// where every node needs the same number. Of generic resources it considers what the host has, free or
// not. O(1).
func (n *NodeRequest) Gives(f *Free, kind string) (gpus int32, ok bool) {
	if f.CPUs < n.CPUs || f.Memory < n.Memory.On(f.Host.Size, 0) || n.Exclusive && !f.Idle || !cluster.HasGres(f.Host.Gres, n.Gres) {
		return 0, false
	}
	if n.Total == 0 {
		return 0, true
	}
	gpus = f.GPUs.And(f.Host.OfType(kind)).Len()
	if each := n.Memory.PerGPUOn(f.Host.Size); each > 0 {
		gpus = int32(min(cluster.Bytes(gpus), f.Memory/each))
	}
	if n.PerNode < 0 {
		return gpus, gpus > 0
	}
	return gpus, gpus >= n.PerNode
}

// share returns the allocation of a node with these GPUs. An exclusive job gets all CPUs, as in
// Slurm.
func (n *NodeRequest) share(f *Free, gpus GPUSet) cluster.NodeAllocation {
	a := cluster.NodeAllocation{Node: f.Host.Name, GPUs: gpus.Indices(), CPUs: n.CPUs}
	if n.Exclusive {
		a.CPUs = f.Host.CPUs
	}
	a.Memory = n.Memory.On(f.Host.Size, int32(len(a.GPUs)))
	return a
}
