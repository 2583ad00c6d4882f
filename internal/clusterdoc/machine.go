package clusterdoc

import (
	"fmt"
	"strconv"

	"github.com/greylag/greylag/internal/config/strict"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/pkg/cluster"
)

// machine is a file that describes the nodes of a simulation. Real nodes describe themselves.
type machine struct {
	Topology string      `toml:"topology"` // topology file, relative to this one; "": one switch
	Nodes    []nodeGroup `toml:"node"`
}

// nodeGroup is nodes with the same hardware.
type nodeGroup struct {
	Names     []string      `toml:"names"` // host lists
	CPUs      int           `toml:"cpus"`
	Memory    cluster.Bytes `toml:"memory"`
	GPUs      int           `toml:"gpus"`
	GPUType   string        `toml:"gpu_type"`
	GPUMemory cluster.Bytes `toml:"gpu_memory"` // of each
	// NVLinkDomains is the number of NVLink domains of a node, each with an equal part of its GPUs:
	// 1 unless set, 0 for none.
	NVLinkDomains int `toml:"nvlink_domains"`
	// NVLinkDomain is the name of one domain of all GPUs of all these nodes.
	NVLinkDomain string      `toml:"nvlink_domain"`
	Features     []string    `toml:"features"`
	Region       string      `toml:"region"`
	Gres         strict.Gres `toml:"gres"` // generic resources: NAME or NAME:TYPE and the count
}

// maxMachineNodes is the most nodes of a machine, maxNodeGPUs the most GPUs of one.
const (
	maxMachineNodes = 1 << 17
	maxNodeGPUs     = 256
)

// ReadMachine reads the text of a file that describes the nodes of a simulation, in the order of
// the file; faults contain name. topology is the topology file, as written. The error is
// strict.Faults.
func ReadMachine(name string, text []byte) (nodes []cluster.Node, topology string, err error) {
	var f machine
	faults := strict.Decode(name, []strict.Source{{Name: name, Text: text}}, &f, func(c *strict.Checker) {
		seen := map[string]bool{}
		for i := range f.Nodes {
			at := "node[" + strconv.Itoa(i) + "]"
			nodes = f.Nodes[i].add(c, at, c.IsSet(at+".nvlink_domains"), seen, nodes)
		}
		if len(nodes) == 0 && c.Count() == 0 {
			c.Fault("node", `contains no node; write [[node]] with names = ["gpu[001-128]"]`)
		}
	})
	if len(faults) > 0 {
		return nil, "", faults
	}
	return nodes, f.Topology, nil
}

// add checks a group of nodes and adds them.
func (n *nodeGroup) add(c *strict.Checker, at string, divided bool, seen map[string]bool, nodes []cluster.Node) []cluster.Node {
	before := c.Count()
	c.Between(at+".cpus", n.CPUs, 1, 1<<16)
	c.Between(at+".gpus", n.GPUs, 0, maxNodeGPUs)
	if !divided {
		n.NVLinkDomains = 1
	}
	c.Between(at+".nvlink_domains", n.NVLinkDomains, 0, max(n.GPUs, 1))
	if n.GPUs > 0 && n.GPUType == "" {
		n.GPUType = "gpu"
	}
	for i, expression := range n.Names {
		names, err := hostlist.Expand(expression)
		key := at + ".names[" + strconv.Itoa(i) + "]"
		if err != nil {
			c.Fault(key, "%s", err)
			continue
		}
		for _, name := range names {
			switch {
			case seen[name]:
				c.Fault(key, "node %s is described twice", name)
			case len(nodes) == maxMachineNodes:
				c.Fault(key, "more than %d nodes", maxMachineNodes)
				return nodes
			case c.Count() == before:
				nodes = append(nodes, n.node(name))
			}
			seen[name] = true
		}
	}
	if len(n.Names) == 0 {
		c.Fault(at+".names", "contains no node")
	}
	return nodes
}

func (n *nodeGroup) node(name string) cluster.Node {
	out := cluster.Node{Name: name, BootID: "simulated", CPUs: int32(n.CPUs), Memory: n.Memory, Features: n.Features, Region: n.Region, Gres: n.Gres}
	for g := range n.GPUs {
		domain := n.NVLinkDomain
		if domain == "" && n.NVLinkDomains > 0 {
			domain = name
			if n.NVLinkDomains > 1 {
				domain = fmt.Sprintf("%s/%d", name, g*n.NVLinkDomains/n.GPUs)
			}
		}
		out.GPUs = append(out.GPUs, cluster.GPU{
			Index: int32(g), UUID: fmt.Sprintf("GPU-%s-%d", name, g), Type: n.GPUType, Memory: n.GPUMemory, NUMA: -1, Domain: domain,
		})
	}
	return out
}
