package sim

import (
	"fmt"
	"math"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// Machine is the simulated nodes and their switches.
type Machine struct {
	Nodes    []cluster.Node
	Switches []cluster.Switch // none: all nodes are children of one switch
}

// maxNodes is the most nodes of a machine, maxNodeGPUs the most GPUs of each, and maxNodeCPUs the most CPUs.
const (
	maxNodeCPUs = 1 << 16
	maxNodes    = 1 << 17
	maxNodeGPUs = 256
)

// Flat returns one node of interchangeable processors and no GPU.
func Flat(procs int32) *Machine {
	return &Machine{Nodes: []cluster.Node{{Name: "flat", BootID: "simulated", CPUs: procs}}}
}

// Uniform returns nodes n00001 and so on with the same number of GPUs of one type. The GPUs of a
// node are one NVLink domain.
func Uniform(nodes, gpus int) (*Machine, error) {
	if nodes < 1 || nodes > maxNodes || gpus < 0 || gpus > maxNodeGPUs {
		return nil, fmt.Errorf("%w: %d nodes with %d GPUs each (1 to %d nodes, 0 to %d GPUs)", ErrRefused, nodes, gpus, maxNodes, maxNodeGPUs)
	}
	f := &Machine{Nodes: make([]cluster.Node, nodes)}
	for i := range f.Nodes {
		f.Nodes[i] = uniform(fmt.Sprintf("n%05d", i+1), gpus)
	}
	return f, nil
}

// UniformCPUs returns nodes n00001 and so on with the same number of CPUs, 4 GiB for each, and no GPU.
func UniformCPUs(nodes, cpus int) (*Machine, error) {
	if cpus < 1 || cpus > maxNodeCPUs || nodes > math.MaxInt32/cpus {
		return nil, fmt.Errorf("%w: %d nodes of %d CPUs (1 to %d CPUs, at most %d in all)", ErrRefused, nodes, cpus, maxNodeCPUs, math.MaxInt32)
	}
	f, err := Uniform(nodes, 0)
	if err != nil {
		return nil, err
	}
	for i := range f.Nodes {
		f.Nodes[i].CPUs, f.Nodes[i].Memory = int32(cpus), cluster.Bytes(cpus)*4*cluster.GiB
	}
	return f, nil
}

// domainGPUs is the most GPUs of an NVLink domain of a simulated node: a plan counts at most 127 of one.
const domainGPUs = 127

// uniform returns a node with 8 CPUs and 64 GiB for each GPU, in as few NVLink domains as possible.
func uniform(name string, gpus int) cluster.Node {
	n := cluster.Node{Name: name, BootID: "simulated", CPUs: int32(max(8*gpus, 64)), Memory: cluster.Bytes(max(gpus, 8)) * 64 * cluster.GiB}
	for g := range int32(gpus) {
		domain := name
		if d := g / domainGPUs; d > 0 {
			domain = fmt.Sprintf("%s-%d", name, d)
		}
		n.GPUs = append(n.GPUs, cluster.GPU{
			Index: g, UUID: fmt.Sprintf("GPU-%s-%d", name, g), Type: "h100", Memory: 80 * cluster.GiB, NUMA: -1, Domain: domain,
		})
	}
	return n
}

// GPUs returns the number of GPUs.
func (f *Machine) GPUs() int32 {
	n := 0
	for i := range f.Nodes {
		n += len(f.Nodes[i].GPUs)
	}
	return int32(n)
}

// CPUs returns the number of CPUs.
func (f *Machine) CPUs() int32 {
	n := int32(0)
	for i := range f.Nodes {
		n += f.Nodes[i].CPUs
	}
	return n
}

// largest returns the most GPUs and the most CPUs of one node.
func (f *Machine) largest() (gpus, cpus int32) {
	for i := range f.Nodes {
		gpus, cpus = max(gpus, int32(len(f.Nodes[i].GPUs))), max(cpus, f.Nodes[i].CPUs)
	}
	return gpus, cpus
}

// fabric returns the tree of switches; nil if it is one switch.
func (f *Machine) fabric() (*topology.Fabric, error) { return topology.NewFabric(f.Switches) }

// setFabric sets the machine's switches in the state.
func (v *Virtual) setFabric(f *Machine) error {
	if len(f.Switches) == 0 {
		return nil
	}
	return v.Must(&command.SetTopology{Actor: Administrator(), Switches: f.Switches})
}

// Rename renames a node that [Uniform] made, and its NVLink domain.
func Rename(n *cluster.Node, name string) {
	for i := range n.GPUs {
		n.GPUs[i].UUID, n.GPUs[i].Domain = fmt.Sprintf("GPU-%s-%d", name, i), name
	}
	n.Name = name
}
