package state

import (
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestDefaultMemory checks that a job without a memory request gets the partition's default for its
// GPUs, or for its CPUs, and without a default its share of the node. A job with a request gets the
// request.
func TestDefaultMemory(t *testing.T) {
	s := New()
	policy := cluster.DefaultPolicy()
	policy.Partitions = []cluster.Partition{
		{Name: "both", Nodes: []string{"ALL"}, Default: true, MemPerCPU: cluster.GiB, MemPerGPU: 100 * cluster.GiB},
		{Name: "cpus", Nodes: []string{"ALL"}, MemPerCPU: cluster.GiB},
		{Name: "none", Nodes: []string{"ALL"}},
	}
	if answer, refused := s.Apply(1, 1, &command.Init{ClusterID: "memory", Policy: policy}).(*command.Refusal); refused {
		t.Fatal(answer.Message)
	}
	index := uint64(1)
	for _, c := range []struct {
		partition string
		request   cluster.Request
		want      cluster.Bytes // on a node that gives it two GPUs
	}{
		{"both", cluster.Request{}, 4 * cluster.GiB},
		{"both", cluster.Request{GPUsPerNode: 2}, 200 * cluster.GiB},
		{"both", cluster.Request{GPUs: 2}, 200 * cluster.GiB},
		{"both", cluster.Request{GPUsPerNode: 2, MemPerNode: 5 * cluster.GiB}, 5 * cluster.GiB},
		{"both", cluster.Request{GPUsPerNode: 2, MemPerCPU: 3 * cluster.GiB}, 12 * cluster.GiB},
		{"cpus", cluster.Request{GPUsPerNode: 2}, 4 * cluster.GiB},
		{"none", cluster.Request{GPUsPerNode: 2}, 256 * cluster.GiB},
		{"none", cluster.Request{GPUs: 2}, 256 * cluster.GiB},
		{"none", cluster.Request{}, 64 * cluster.GiB},
		{"none", cluster.Request{Exclusive: true}, 1 * cluster.TiB},
		{"none", cluster.Request{MemFrom: cluster.MemoryAll}, 1 * cluster.TiB},
		{"both", cluster.Request{GPUsPerNode: 2, MemFrom: cluster.MemoryAll}, 1 * cluster.TiB},
		{"none", cluster.Request{MemPerNode: cluster.GiB, MemFrom: cluster.MemoryShare}, cluster.GiB},
	} {
		r := c.request
		r.Nodes, r.TasksPerNode, r.CPUsPerTask = 1, 2, 2
		index++
		answer := s.Apply(index, cluster.Instant(index), &command.SubmitJobs{
			Actor: command.Actor{Identity: cluster.Identity{User: "ada", UID: 1000, GID: 1000}},
			Jobs: []command.Submission{{Spec: cluster.JobSpec{
				Name: "j", Partition: c.partition, Owner: cluster.Identity{User: "ada", UID: 1000, GID: 1000}, WorkDir: "/", TimeLimit: time.Hour, Request: r,
			}}},
		})
		submitted, ok := answer.(*command.Submitted)
		if !ok {
			t.Fatalf("%s %+v: %+v", c.partition, c.request, answer)
		}
		job, _ := s.View().Job(submitted.First[0])
		node := cluster.NodeSize{CPUs: 64, GPUs: 8, Memory: cluster.TiB}
		if got := job.Spec.Request.MemoryRule().On(node, 2); got != c.want {
			t.Errorf("%s %+v takes %s, want %s", c.partition, c.request, got, c.want)
		}
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}
