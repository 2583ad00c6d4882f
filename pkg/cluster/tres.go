package cluster

import (
	"fmt"
	"slices"
	"strings"
)

// Trackable resources, by the names that limits and billing weights use. Memory is counted in MiB.
// There is also one resource for each GPU type, "gpu:h100", each licence, "licence:matlab", and each generic
// resource, "gres/nvme".
const (
	ResourceGPU  = "gpu"
	ResourceCPU  = "cpu"
	ResourceMem  = "mem"
	ResourceNode = "node"

	gpuPrefix     = "gpu:"
	licencePrefix = "licence:"
)

// Amount is how much of one resource.
type Amount struct {
	Resource string
	Count    int64
}

// ParseResource reads the name of a resource, also in Slurm's words: "gres/gpu:h100",
// "license/matlab".
func ParseResource(word string) (string, error) {
	name := strings.TrimPrefix(word, "gres/")
	for _, other := range []string{"license/", "licence/", "license:"} {
		if rest, ok := strings.CutPrefix(name, other); ok {
			name = licencePrefix + rest
		}
	}
	switch name {
	case ResourceGPU, ResourceCPU, ResourceMem, ResourceNode:
		return name, nil
	}
	if rest, ok := strings.CutPrefix(word, gresPrefix); ok && isGresTag(rest) {
		return word, nil
	}
	for _, prefix := range []string{gpuPrefix, licencePrefix} {
		if rest, ok := strings.CutPrefix(name, prefix); ok && rest != "" && len(rest) <= maxName && !strings.ContainsAny(rest, "=, \t\n") {
			return name, nil
		}
	}
	return "", fmt.Errorf("%w: %q is no resource (want gpu, gpu:TYPE, cpu, mem, node, licence:NAME or gres/NAME)", ErrBadLimit, word)
}

// GPUTypeOf returns the GPU type that a resource such as gpu:h100 counts.
func GPUTypeOf(resource string) (name string, typed bool) {
	name, typed = strings.CutPrefix(resource, gpuPrefix)
	if !typed {
		name = ""
	}
	return name, typed
}

// Requested returns how much of a resource a job takes at least when it starts. Of a GPU type it is all
// GPUs of the job if the job may be given that type: it names the type, among others perhaps, or
// names none. O(types named).
func (r *Request) Requested(resource string) int64 {
	nodes := int64(max(1, r.Nodes))
	switch resource {
	case ResourceGPU:
		return int64(r.TotalGPUs())
	case ResourceCPU:
		return nodes * int64(r.CPUsPerNode())
	case ResourceNode:
		return nodes
	case ResourceMem:
		each := r.GPUsPerNode
		if r.GPUs > 0 {
			each = int32((int64(r.GPUs) + nodes - 1) / nodes)
		}
		return nodes * mib(r.MemoryOn(each))
	}
	if kind, ok := strings.CutPrefix(resource, gpuPrefix); ok {
		if r.AcceptsGPU(kind) {
			return int64(r.TotalGPUs())
		}
		return 0
	}
	if name, ok := strings.CutPrefix(resource, gresPrefix); ok {
		return nodes * CountGres(r.Gres, &Gres{Name: name})
	}
	name := strings.TrimPrefix(resource, licencePrefix)
	for _, l := range r.Licences {
		if l.Name == name {
			return int64(l.Count)
		}
	}
	return 0
}

// RequestedOnNode returns how much of a resource a job may have on one of its nodes at most: GPUs of a
// type as [Request.Asked] counts them. For GPUs spread over nodes, each node gives at least one, so
// the most is the total less one per other node. It is 0 for resources that no node has. O(types
// named).
func (r *Request) RequestedOnNode(resource string) int64 {
	gpus := r.GPUsPerNode
	if r.GPUs > 0 && gpus == 0 {
		gpus = max(0, r.GPUs-max(0, r.Nodes-1))
	}
	switch resource {
	case ResourceGPU:
		return int64(gpus)
	case ResourceCPU:
		return int64(r.CPUsPerNode())
	case ResourceMem:
		return mib(r.MemoryOn(gpus))
	}
	if kind, typed := strings.CutPrefix(resource, gpuPrefix); typed && r.AcceptsGPU(kind) {
		return int64(gpus)
	}
	if name, ok := strings.CutPrefix(resource, gresPrefix); ok {
		return CountGres(r.Gres, &Gres{Name: name})
	}
	return 0
}

// onNode reports whether single nodes have a resource.
func onNode(resource string) bool {
	return resource == ResourceGPU || resource == ResourceCPU || resource == ResourceMem || strings.HasPrefix(resource, gpuPrefix) || strings.HasPrefix(resource, gresPrefix)
}

// mib counts MiB, rounded up.
func mib(b Bytes) int64 { return int64((b + MiB - 1) / MiB) }

// Amounts returns the resources of an allocation, ascending and unique, each above 0. typeOf
// returns the type of a node's GPU, "" when unknown. O(GPUs).
func (a *Allocation) Amounts(r *Request, typeOf func(node string, gpu int32) string) []Amount {
	count := map[string]int64{ResourceNode: int64(len(a.Nodes))}
	for i := range a.Nodes {
		n := &a.Nodes[i]
		count[ResourceCPU] += int64(n.CPUs)
		count[ResourceMem] += mib(n.Memory)
		count[ResourceGPU] += int64(len(n.GPUs))
		for _, g := range n.GPUs {
			if kind := typeOf(n.Node, g); kind != "" {
				count[gpuPrefix+kind]++
			}
		}
	}
	for _, g := range r.Gres {
		count[gresPrefix+g.Name] += g.Count * int64(len(a.Nodes))
	}
	for _, l := range r.Licences {
		count[licencePrefix+l.Name] += int64(l.Count)
	}
	out := make([]Amount, 0, len(count))
	for resource, n := range count {
		if n > 0 {
			out = append(out, Amount{resource, n})
		}
	}
	slices.SortFunc(out, func(a, b Amount) int { return strings.Compare(a.Resource, b.Resource) })
	return out
}

// typeWeight returns the weight of a GPU type, which may be written with or without gpu:.
func typeWeight(weights map[string]int64, gpuType string) (w int64, known bool) {
	if w, known = weights[gpuPrefix+gpuType]; !known {
		w, known = weights[gpuType]
	}
	return w, known
}

// billInstances returns the billing rate of the MIG instances whose profile has no weight of its own, and their
// number.
func billInstances(weights map[string]int64, instances []Amount) (bill, count int64) {
	for _, a := range instances {
		profile, parent, share := CutPricedType(a.Resource)
		if _, own := typeWeight(weights, profile); own || parent == "" {
			continue
		}
		w, known := typeWeight(weights, parent)
		if !known {
			w = weights[ResourceGPU]
		}
		bill += a.Count * share * w
		count += a.Count
	}
	return bill / MIGShares, count
}

// Bill returns the billing rate of these amounts, in thousandths a second: by the policy's weights,
// where "gpu" is for GPU types without a weight of their own and "mem" for a GiB, changed by the
// QOS's extra percentage; never below 0. instances counts the MIG instances among the amounts, by the names under
// which they are charged: one whose profile has no weight of its own counts its share of its parent's weight. The
// sum of all shares is rounded down.
func (f *FairSharePolicy) Bill(amounts, instances []Amount, extra int32) int64 {
	weights := make(map[string]int64, len(f.Billing))
	for _, w := range f.Billing {
		weights[w.Resource] = w.Milli
	}
	bill, typed := billInstances(weights, instances)
	var gpus int64
	for _, a := range amounts {
		w := weights[a.Resource]
		switch {
		case a.Resource == ResourceGPU:
			gpus = a.Count
		case a.Resource == ResourceMem:
			bill += a.Count * w / 1024
		case strings.HasPrefix(a.Resource, gpuPrefix):
			if own, known := typeWeight(weights, strings.TrimPrefix(a.Resource, gpuPrefix)); known {
				bill += a.Count * own
				typed += a.Count
			}
		default:
			bill += a.Count * w
		}
	}
	bill += max(0, gpus-typed) * weights[ResourceGPU]
	return max(0, bill*(100+int64(extra))/100)
}
