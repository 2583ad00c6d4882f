package cluster

// Request is what a job asks for. Each quantity that is zero is not asked for.
type Request struct {
	Nodes        int32 // at least 1 after Validate
	GPUsPerNode  int32
	GPUs         int32    // in all, spread as the scheduler likes; exclusive with GPUsPerNode
	GPUTypes     []string // acceptable types, best first; empty means any
	TasksPerNode int32    // at least 1 after Validate
	CPUsPerTask  int32    // at least 1 after Validate
	MemPerNode   Bytes
	MemPerCPU    Bytes
	MemPerGPU    Bytes
	Features     []string // a node must have all of them
	NodeList     []string // if set, only these nodes
	Exclude      []string // never these nodes
	Exclusive    bool     // no other job on its nodes
}

// CPUsPerNode is how many CPUs each of its nodes gives the job.
func (r Request) CPUsPerNode() int32 { return r.TasksPerNode * r.CPUsPerTask }

// MemoryOn is the memory the job takes on a node that gives it that many GPUs.
func (r Request) MemoryOn(gpus int32) Bytes {
	return max(r.MemPerNode, r.MemPerCPU*Bytes(r.CPUsPerNode()), r.MemPerGPU*Bytes(gpus))
}

// TotalGPUs is how many GPUs the whole job asks for.
func (r Request) TotalGPUs() int32 {
	if r.GPUs > 0 {
		return r.GPUs
	}
	return r.GPUsPerNode * r.Nodes
}

// Allocation is what a job was granted: one entry a node, in rank order.
type Allocation struct {
	Nodes []NodeAllocation
}

// NodeAllocation is what one node gives to one job.
type NodeAllocation struct {
	Node   string
	GPUs   []int32 // indices of the node's GPUs, ascending
	CPUs   int32
	Memory Bytes
}

// Placement is an allocation that has been chosen but not granted.
type Placement = Allocation
