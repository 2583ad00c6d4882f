package topology_test

import (
	"fmt"

	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// ExamplePlace chooses GPUs for a job. Two GPUs are free on one host and four on
// another: a request for two takes the tighter host.
func ExamplePlace() {
	var free []topology.Free
	for _, h := range []struct {
		name string
		used []int32
	}{{"n1", nil}, {"n2", []int32{0, 1}}} {
		host := topology.NewHost(&cluster.Node{
			Name: h.name, CPUs: 16, Memory: 64 * cluster.GiB,
			GPUs: []cluster.GPU{{Index: 0, Type: "h100"}, {Index: 1, Type: "h100"}, {Index: 2, Type: "h100"}, {Index: 3, Type: "h100"}},
		})
		free = append(free, topology.AllOf(host).Less(topology.SetOf(h.used), 0, 0))
	}
	need := topology.NeedOf(&cluster.Request{GPUs: 2, Nodes: 1})
	placement, ok := topology.Place(free, &need)
	fmt.Println(ok)
	for _, n := range placement.Nodes {
		fmt.Println(n.Node, n.GPUs)
	}
	// Output:
	// true
	// n2 [2 3]
}

// ExampleFabric lists the leaf switch of each host. Hosts under the same leaf switch are in
// one domain of level 0.
func ExampleFabric() {
	fabric, err := topology.NewFabric([]cluster.Switch{
		{Name: "leaf1", Nodes: []string{"n1", "n2"}},
		{Name: "leaf2", Nodes: []string{"n3"}},
		{Name: "spine", Children: []string{"leaf1", "leaf2"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, host := range fabric.Hosts() {
		leaf, _ := fabric.Domain(0, host)
		fmt.Println(host, fabric.Name(0, leaf))
	}
	// Output:
	// n1 leaf1
	// n2 leaf1
	// n3 leaf2
}
