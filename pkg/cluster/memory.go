package cluster

// MemorySource is the origin of a job's memory request.
type MemorySource uint8

// The sources.
const (
	MemoryAsked       MemorySource = iota // named by the request; all zero: none is reserved
	MemoryOfPartition                     // the partition's mem_per_gpu or mem_per_cpu
	MemoryShare                           // a share of each node's memory, by GPUs, or by CPUs for a job without GPUs
	MemoryAll                             // all memory of each node: --mem=0, or --exclusive without memory
	maxMemorySource   = MemoryAll
)

var memorySourceNames = [...]string{MemoryAsked: "", MemoryOfPartition: "partition", MemoryShare: "share", MemoryAll: "all"}

// String returns the API's word.
func (m MemorySource) String() string {
	if m > maxMemorySource {
		return "?"
	}
	return memorySourceNames[m]
}

// ParseMemorySource reads the form of String.
func ParseMemorySource(word string) (MemorySource, bool) {
	for m, name := range memorySourceNames {
		if name == word {
			return MemorySource(m), true
		}
	}
	return 0, false
}

// NodeSize is the part of a node's size that determines shares of its memory. Faulty GPUs
// count too, so that a share does not grow when one fails.
type NodeSize struct {
	CPUs, GPUs int32
	Memory     Bytes
}

// Size returns the size of the node.
func (n *Node) Size() NodeSize {
	return NodeSize{CPUs: n.CPUs, GPUs: int32(len(n.GPUs)), Memory: n.Memory}
}

// share returns the memory for one of n equal parts, in whole MiB where it has that much.
func (s NodeSize) share(n int32) Bytes {
	each := s.Memory / Bytes(max(n, 1))
	if each > MiB {
		each -= each % MiB
	}
	return each
}

// MemoryRule computes the memory that a job takes on a node.
type MemoryRule struct {
	From   MemorySource
	Least  Bytes // however many GPUs the node gives
	PerGPU Bytes
	CPUs   int32 // of each node
	ByGPU  bool  // the job has GPUs, so shares are by GPUs
	Parts  int32 // jobs that may share a GPU, so a share is by their number as well; 0 for 1
}

// MemoryRule returns the rule of the request.
func (r *Request) MemoryRule() MemoryRule {
	return MemoryRule{From: r.MemFrom, Least: r.MemoryOn(0), PerGPU: r.MemPerGPU, CPUs: r.CPUsPerNode(), ByGPU: r.TotalGPUs() > 0, Parts: r.Share.Jobs}
}

// On returns the memory taken on a node that gives the job that many GPUs.
func (m MemoryRule) On(n NodeSize, gpus int32) Bytes {
	switch {
	case m.From == MemoryAll:
		return n.Memory
	case m.From == MemoryShare && !m.ByGPU:
		return n.share(n.CPUs) * Bytes(m.CPUs)
	}
	return max(m.Least, m.PerGPUOn(n)*Bytes(max(gpus, 0)))
}

// PerGPUOn returns the memory per allocated GPU of a node; 0 for none.
func (m MemoryRule) PerGPUOn(n NodeSize) Bytes {
	switch {
	case m.From == MemoryShare && m.ByGPU:
		return n.share(n.GPUs * max(m.Parts, 1))
	case m.From == MemoryShare, m.From == MemoryAll:
		return 0
	}
	return m.PerGPU
}
