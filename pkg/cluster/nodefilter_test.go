package cluster_test

import (
	"slices"
	"testing"

	"github.com/greylag/greylag/pkg/cluster"
)

// filterNode returns a node with 8 CPUs, 64 GiB and four GPUs; the last GPU is faulty.
func filterNode() *cluster.Node {
	n := &cluster.Node{Name: "gpu2", CPUs: 8, Memory: 64 * cluster.GiB, Features: []string{"ib"}, Region: "north"}
	for i := range int32(4) {
		n.GPUs = append(n.GPUs, cluster.GPU{Index: i, Type: "h100", Memory: 80 * cluster.GiB, Domain: []string{"a", "a", "b", "b"}[i]})
	}
	n.GPUs[3].Fault = "XID 79"
	return n
}

func TestNodeFilter(t *testing.T) {
	prices := map[string]int64{"h100": 5}
	for name, c := range map[string]struct {
		request cluster.Request
		used    cluster.NodeUse
		want    []cluster.Mismatch
	}{
		"all that it has": {request: cluster.Request{GPUsPerNode: 3, CPUsPerTask: 8, MemPerNode: 64 * cluster.GiB, GPUMemory: 80 * cluster.GiB, NodeList: []string{"gpu[1-2]"}, Features: []string{"ib"}, Regions: []string{"north"}, MaxPrice: 5}},
		"any node":        {request: cluster.Request{NodeList: []string{"ALL"}}},
		"named":           {request: cluster.Request{NodeList: []string{"gpu[3-9]"}, Exclude: []string{"gpu[1-2]"}}, want: []cluster.Mismatch{{Kind: cluster.NotListed}, {Kind: cluster.Excluded}}},
		"feature, region": {request: cluster.Request{Features: []string{"ib", "ssd", "nvme"}, Regions: []string{"south"}}, want: []cluster.Mismatch{
			{Kind: cluster.MissingFeature, Name: "ssd"}, {Kind: cluster.MissingFeature, Name: "nvme"}, {Kind: cluster.OutsideRegions, Name: "north"}}},
		"price":             {request: cluster.Request{MaxPrice: 4}, want: []cluster.Mismatch{{Kind: cluster.TooExpensive, Name: "h100"}}},
		"price of a type":   {request: cluster.Request{MaxPrice: 4, GPUTypes: []string{"a100"}}},
		"CPUs":              {request: cluster.Request{CPUsPerTask: 9}, want: []cluster.Mismatch{{Kind: cluster.TooFewCPUs, Want: 9}}},
		"CPUs in use":       {request: cluster.Request{CPUsPerTask: 8}, used: cluster.NodeUse{CPUs: 1}, want: []cluster.Mismatch{{Kind: cluster.TooFewCPUs, Want: 8}}},
		"memory":            {request: cluster.Request{GPUsPerNode: 2, MemPerGPU: 33 * cluster.GiB}, want: []cluster.Mismatch{{Kind: cluster.TooLittleMemory, Want: int64(66 * cluster.GiB)}}},
		"GPUs":              {request: cluster.Request{GPUsPerNode: 4}, want: []cluster.Mismatch{{Kind: cluster.TooFewGPUs, Have: 3, Want: 4}}},
		"GPUs in use":       {request: cluster.Request{GPUsPerNode: 2}, used: cluster.NodeUse{GPUs: []bool{true, true}}, want: []cluster.Mismatch{{Kind: cluster.TooFewGPUs, Have: 1, Want: 2}}},
		"GPUs of a type":    {request: cluster.Request{GPUs: 9, GPUTypes: []string{"a100"}}, want: []cluster.Mismatch{{Kind: cluster.TooFewGPUs, Want: 1}}},
		"memory of GPUs":    {request: cluster.Request{GPUsPerNode: 1, GPUMemory: 81 * cluster.GiB}, want: []cluster.Mismatch{{Kind: cluster.SmallGPUs, Have: 3, Want: 1}}},
		"one NVLink domain": {request: cluster.Request{GPUsPerNode: 3, Connect: cluster.ConnectNode}, want: []cluster.Mismatch{{Kind: cluster.UnlinkedGPUs, Have: 3, Want: 3}}},
	} {
		c.request.TasksPerNode, c.request.CPUsPerTask = 1, max(1, c.request.CPUsPerTask)
		f := cluster.NewNodeFilter(&c.request)
		f.Price = func(gpuType string) int64 { return prices[gpuType] }
		attributes := slices.Collect(f.Attributes(filterNode()))
		if got := slices.Concat(attributes, slices.Collect(f.Capacity(filterNode(), c.used))); !slices.Equal(got, c.want) {
			t.Errorf("%s: mismatches are %v, want %v", name, got, c.want)
		}
		if f.Suits(filterNode()) != (len(attributes) == 0) {
			t.Errorf("%s: Suits disagrees with the mismatches %v", name, attributes)
		}
	}
}

func TestNodeFilterOfFaultyGPUs(t *testing.T) {
	f := cluster.NewNodeFilter(&cluster.Request{GPUsPerNode: 4})
	f.WithFaulty = true
	for m := range f.Capacity(filterNode(), cluster.NodeUse{}) {
		t.Errorf("a node with four GPUs, one of them faulty, does not suit: %v", m)
	}
}

func TestNodeNamesDisjoint(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{{"n[1-3]", "n[4-6]", true}, {"n[1-4]", "n[4-6]", false}, {"n1", "ALL", false}, {"ALL", "n1", false}} {
		a, b := cluster.ParseNodeNames([]string{c.a}), cluster.ParseNodeNames([]string{c.b})
		if got := a.Disjoint(&b); got != c.want {
			t.Errorf("%s and %s: disjoint is %v, want %v", c.a, c.b, got, c.want)
		}
	}
	none, some := cluster.NodeNames{}, cluster.ParseNodeNames([]string{"n1"})
	if none.Disjoint(&some) || some.Disjoint(&none) {
		t.Error("a set that names no node is disjoint from another")
	}
}
