package order

import (
	"testing"

	"github.com/greylag/greylag/pkg/cluster"
)

// TestSizeOfInstances: an instance counts its share of a GPU, in the cluster and in a request.
func TestSizeOfInstances(t *testing.T) {
	policy := cluster.DefaultPolicy()
	policy.Scheduling.Weights = cluster.Weights{JobSize: million}
	instance := cluster.GPU{Type: "1g.10gb", ParentType: "h100", Share: 8}
	snap := &cluster.Snapshot{Policy: &policy, Nodes: []*cluster.Node{
		{CPUs: 8, GPUs: []cluster.GPU{{Type: "h100"}, {Type: "h100"}, {Type: "h100"}}},
		{CPUs: 8, GPUs: []cluster.GPU{instance, instance, instance, instance, instance, instance, instance}},
	}}
	parts := PartsOf(snap)
	for _, c := range []struct {
		request cluster.Request
		want    int64
	}{
		{cluster.Request{GPUs: 1}, million / 4},
		{cluster.Request{GPUs: 7, GPUTypes: []string{"1g.10gb"}}, million / 4},
		{cluster.Request{GPUs: 1, GPUTypes: []string{"1g.10gb"}}, million / 28},
		{cluster.Request{GPUs: 2, GPUTypes: []string{"1g.10gb", "h100"}}, million / 2},
		{cluster.Request{Nodes: 1, TasksPerNode: 4, CPUsPerTask: 1}, million / 4},
	} {
		if got := parts(&cluster.Job{Spec: &cluster.JobSpec{Request: c.request}}).JobSizeFactor; got != c.want {
			t.Errorf("%+v: %d, want %d", c.request, got, c.want)
		}
	}
}
