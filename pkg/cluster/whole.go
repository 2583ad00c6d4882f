package cluster

import (
	"slices"
	"strings"
)

// NodeModel is the configuration that several nodes of a partition share.
type NodeModel struct {
	CPUs     int32
	Memory   Bytes
	GPUs     []Amount // "gpu:TYPE", ascending
	Features []string // sorted
}

// amount returns how much of a resource a job has of a node that it holds exclusively. ok is false
// for nodes, and for memory and licences, where the request decides.
func (m *NodeModel) amount(resource string) (n int64, ok bool) {
	if resource == ResourceCPU {
		return int64(m.CPUs), true
	}
	for _, g := range m.GPUs {
		if resource == ResourceGPU || resource == g.Resource {
			n += g.Count
		}
	}
	return n, resource == ResourceGPU || strings.HasPrefix(resource, gpuPrefix)
}

// wanted counts the GPUs of the requested types; all GPUs if the request names none.
func (m *NodeModel) wanted(r *Request) (n int64) {
	for _, g := range m.GPUs {
		if r.AcceptsGPU(strings.TrimPrefix(g.Resource, gpuPrefix)) {
			n += g.Count
		}
	}
	return n
}

// suits reports whether a job may get such nodes: they have its features, its CPUs and enough GPUs
// of its types.
func (m *NodeModel) suits(r *Request) bool {
	each := r.GPUsPerNode
	switch {
	case each == 0 && r.Nodes == 1:
		each = r.GPUs
	case each == 0:
		each = min(1, r.GPUs)
	}
	if m.CPUs < r.CPUsPerNode() || m.wanted(r) < int64(each) {
		return false
	}
	return !slices.ContainsFunc(r.Features, func(f string) bool { return !HasFeatures(m.Features, f) })
}

// ofNode returns how much of a resource an exclusive job has of one such node, and of that many
// nodes: of memory its share or all, of other resources all. ok is false for amounts that the
// request names itself.
func (m *NodeModel) ofNode(r *Request, resource string, nodes int64) (each, all int64, ok bool) {
	rule := r.MemoryRule()
	if resource != ResourceMem || rule.From != MemoryShare && rule.From != MemoryAll {
		each, ok = m.amount(resource)
		return each, nodes * each, ok && r.Exclusive
	}
	size := NodeSize{CPUs: m.CPUs, Memory: m.Memory}
	for _, g := range m.GPUs {
		size.GPUs += int32(g.Count)
	}
	each = mib(rule.On(size, int32(r.RequestedOnNode(ResourceGPU))))
	if perGPU := rule.PerGPUOn(size); perGPU > 0 {
		return each, mib(perGPU * Bytes(r.TotalGPUs())), true
	}
	return each, nodes * each, true
}

// whole returns how much of a resource an exclusive job has when it starts, per node and in total:
// the least and the most, since suitable nodes differ; also the memory of a job that takes a share
// of its nodes' memory or all. ok is false for other jobs and resources, and while no node suits
// it. O(models × types).
func (s *JobSpec) whole(resource string, models map[string][]NodeModel) (least, most, onNode int64, ok bool) {
	r := &s.Request
	if models == nil || !r.Exclusive && resource != ResourceMem {
		return 0, 0, 0, false
	}
	in := func(partition string) {
		for i := range models[partition] {
			m := &models[partition][i]
			if !m.suits(r) {
				continue
			}
			nodes := int64(max(1, r.Nodes))
			if r.Nodes == 0 && r.GPUsPerNode == 0 && r.GPUs > 0 { // as few as needed
				nodes = (int64(r.GPUs) + m.wanted(r) - 1) / m.wanted(r)
			}
			each, all, counts := m.ofNode(r, resource, nodes)
			switch {
			case !counts:
				continue
			case !ok:
				least, most, ok = all, all, true
			default:
				least, most = min(least, all), max(most, all)
			}
			onNode = max(onNode, each)
		}
	}
	in(s.Partition)
	for _, other := range s.OtherPartitions {
		in(other)
	}
	return least, most, onNode, ok
}

// Takes returns how much of a resource limits count for a job before it starts: what it requests
// ([Request.Asked]), and for GPUs and CPUs of an exclusive job the most that it may get, since it
// gets all that its nodes have. models are those of each partition's nodes; nil means that an
// exclusive job counts what it requests.
func (s *JobSpec) Takes(resource string, models map[string][]NodeModel) int64 {
	_, most, _, _ := s.whole(resource, models)
	return max(most, s.Request.Requested(resource))
}

// TakesOnNode returns the same for one node ([Request.AskedOnNode]).
func (s *JobSpec) TakesOnNode(resource string, models map[string][]NodeModel) int64 {
	_, _, most, _ := s.whole(resource, models)
	return max(most, s.Request.RequestedOnNode(resource))
}

// MayGet reports whether a job may be given a resource: a GPU type that it does not name counts
// only if a partition of the job has it. models are those of each partition's nodes; nil means that
// they have all types.
func (s *JobSpec) MayGet(resource string, models map[string][]NodeModel) bool {
	if !strings.HasPrefix(resource, gpuPrefix) || models == nil || len(s.Request.GPUTypes) > 0 {
		return true
	}
	if kind, _ := GPUTypeOf(resource); !s.Request.AcceptsGPU(kind) {
		return false
	}
	has := func(partition string) bool {
		return slices.ContainsFunc(models[partition], func(m NodeModel) bool {
			n, _ := m.amount(resource)
			return n > 0
		})
	}
	return has(s.Partition) || slices.ContainsFunc(s.OtherPartitions, has)
}
