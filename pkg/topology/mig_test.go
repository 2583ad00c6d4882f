package topology

import (
	"testing"

	"github.com/greylag/greylag/pkg/cluster"
)

// TestUntypedJobGetsWholeGPUs: a MIG instance is given only to a job that names its profile.
func TestUntypedJobGetsWholeGPUs(t *testing.T) {
	n := cluster.Node{Name: "n1", CPUs: 8, Memory: 64 * cluster.GiB, GPUs: []cluster.GPU{
		{Index: 0, Type: "1g.10gb"}, {Index: 1, Type: "3g.40gb"}, {Index: 2, Type: "h100"},
	}}
	free := []Free{AllOf(NewHost(&n))}
	for _, c := range []struct {
		types []string
		gpus  int32
		want  int32 // -1: none
	}{{nil, 1, 2}, {nil, 2, -1}, {[]string{"3g.40gb"}, 1, 1}, {[]string{"1g.10gb"}, 2, -1}} {
		r := cluster.Request{Nodes: 1, GPUsPerNode: c.gpus, TasksPerNode: 1, CPUsPerTask: 1, GPUTypes: c.types}
		need := NeedOf(&r)
		p, ok := Place(free, &need)
		if ok != (c.want >= 0) || ok && p.Nodes[0].GPUs[0] != c.want {
			t.Errorf("%v: %v %v", c.types, p, ok)
		}
	}
}
