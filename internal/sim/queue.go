package sim

import (
	"math/rand/v2"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// randomJob returns a job of 1 to 64 GPUs and 10 minutes to a day: many small jobs and a few wide
// ones. A job wider than a node takes whole nodes, at most all.
func randomJob(r *rand.Rand, nodes, perNode int) cluster.JobSpec {
	sizes := [...]int{1, 1, 1, 2, 2, 4, 8, 8, 16, 32, 64}
	minutes := [...]int{10, 30, 60, 120, 240, 480, 1440}
	n := sizes[r.IntN(len(sizes))]
	spec := cluster.JobSpec{
		Name: "drawn", Owner: cluster.Identity{User: "user", UID: 10_001, GID: 10_001},
		TimeLimit: time.Duration(minutes[r.IntN(len(minutes))]) * time.Minute,
		Request:   cluster.Request{Nodes: 1, GPUsPerNode: int32(n), TasksPerNode: 1, CPUsPerTask: 1},
	}
	if n > perNode {
		spec.Request.Nodes, spec.Request.GPUsPerNode = int32(min(n/perNode, nodes)), int32(perNode)
	}
	return spec
}

// fillerJob returns the job that fills node i. Neighbouring nodes' jobs end at different times.
func fillerJob(i, perNode int) cluster.JobSpec {
	return cluster.JobSpec{
		Name: "filler", Owner: cluster.Identity{User: "user", UID: 10_001, GID: 10_001},
		TimeLimit: time.Duration(10+i*37%480) * time.Minute,
		Request:   cluster.Request{Nodes: 1, GPUsPerNode: int32(perNode), TasksPerNode: 1, CPUsPerTask: 1},
	}
}
