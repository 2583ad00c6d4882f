package config

import (
	"fmt"
	"reflect"
	"strconv"

	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/pkg/cluster"
)

// fleet is a file that describes nodes to a simulation. Real nodes describe themselves.
type fleet struct {
	Topology string      `toml:"topology"` // file of the fabric, beside this one; "": one switch
	Nodes    []fleetNode `toml:"node"`
}

// fleetNode is nodes that are alike.
type fleetNode struct {
	Names     []string      `toml:"names"` // host lists
	CPUs      int           `toml:"cpus"`
	Memory    cluster.Bytes `toml:"memory"`
	GPUs      int           `toml:"gpus"`
	GPUType   string        `toml:"gpu_type"`
	GPUMemory cluster.Bytes `toml:"gpu_memory"` // of each
	// NVLinkDomains is into how many NVLink domains the GPUs of a node are divided: 1
	// unless set, 0 for none.
	NVLinkDomains int `toml:"nvlink_domains"`
	// NVLinkDomain names one domain that all GPUs of all these nodes are in.
	NVLinkDomain string   `toml:"nvlink_domain"`
	Features     []string `toml:"features"`
	Region       string   `toml:"region"`
}

// maxFleetNodes bounds a fleet, maxFleetGPUs the GPUs of one of its nodes.
const (
	maxFleetNodes = 1 << 17
	maxFleetGPUs  = 256
)

// ReadFleet reads the text of a file that describes nodes to a simulation, in the
// order of the file; name stands for it in faults. topology is the file of the fabric,
// as written. The error is Faults.
func ReadFleet(name string, text []byte) (nodes []cluster.Node, topology string, err error) {
	doc := newDocument()
	doc.add(name, text)
	var f fleet
	d := decoder{doc: doc}
	d.table("", doc.values, reflect.ValueOf(&f).Elem())
	c := &checker{main: name, doc: doc}
	seen := map[string]bool{}
	for i := range f.Nodes {
		at := "node[" + strconv.Itoa(i) + "]"
		_, divided := doc.places[at+".nvlink_domains"]
		nodes = f.Nodes[i].add(c, at, divided, seen, nodes)
	}
	if len(nodes) == 0 && len(doc.faults)+len(d.faults)+len(c.faults) == 0 {
		c.fault("node", `names no node; write [[node]] with names = ["gpu[001-128]"]`)
	}
	if faults := inOrder([]string{name}, doc.faults, d.faults, c.faults); len(faults) > 0 {
		return nil, "", faults
	}
	return nodes, f.Topology, nil
}

// add checks a group of nodes and makes them.
func (n *fleetNode) add(c *checker, at string, divided bool, seen map[string]bool, nodes []cluster.Node) []cluster.Node {
	before := len(c.faults)
	c.between(at+".cpus", n.CPUs, 1, 1<<16)
	c.between(at+".gpus", n.GPUs, 0, maxFleetGPUs)
	if !divided {
		n.NVLinkDomains = 1
	}
	c.between(at+".nvlink_domains", n.NVLinkDomains, 0, max(n.GPUs, 1))
	if n.GPUs > 0 && n.GPUType == "" {
		n.GPUType = "gpu"
	}
	for i, expression := range n.Names {
		names, err := hostlist.Expand(expression)
		key := at + ".names[" + strconv.Itoa(i) + "]"
		if err != nil {
			c.fault(key, "%s", err)
			continue
		}
		for _, name := range names {
			switch {
			case seen[name]:
				c.fault(key, "node %s is described twice", name)
			case len(nodes) == maxFleetNodes:
				c.fault(key, "more than %d nodes", maxFleetNodes)
				return nodes
			case len(c.faults) == before:
				nodes = append(nodes, n.node(name))
			}
			seen[name] = true
		}
	}
	if len(n.Names) == 0 {
		c.fault(at+".names", "names no node")
	}
	return nodes
}

func (n *fleetNode) node(name string) cluster.Node {
	out := cluster.Node{Name: name, BootID: "simulated", CPUs: int32(n.CPUs), Memory: n.Memory, Features: n.Features, Region: n.Region}
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
