package sim

import (
	"math/rand/v2"
	"time"

	"github.com/greylag/greylag/internal/sim/trace"
	"github.com/greylag/greylag/pkg/cluster"
)

// maxWidth is the most nodes of a random job without GPUs.
const maxWidth = 1024

// randomJob returns a job of 10 minutes to a day: many small jobs and a few wide ones. On nodes with
// GPUs it has 1 to 64 GPUs, where one wider than a node takes whole nodes, at most all. On nodes
// without it takes 1 to 1,024 whole nodes, at most all: 2^k with a probability proportional to 2^(-k/2).
func randomJob(r *rand.Rand, s *PassSize) cluster.JobSpec {
	sizes := [...]int{1, 1, 1, 2, 2, 4, 8, 8, 16, 32, 64}
	minutes := [...]int{10, 30, 60, 120, 240, 480, 1440}
	n, nodes, perNode := sizes[r.IntN(len(sizes))], s.Nodes, s.GPUsPerNode
	spec := cluster.JobSpec{
		Name: "drawn", Owner: cluster.Identity{User: "user", UID: 10_001, GID: 10_001},
		TimeLimit: time.Duration(minutes[r.IntN(len(minutes))]) * time.Minute,
		Request:   cluster.Request{Nodes: 1, GPUsPerNode: int32(n), TasksPerNode: 1, CPUsPerTask: 1},
	}
	if cpus := s.cpus(); cpus > 0 {
		widths := trace.NewWidths(min(nodes, maxWidth))
		spec.Request.Nodes, spec.Request.GPUsPerNode, spec.Request.CPUsPerTask = widths.Draw(r), 0, int32(cpus)
		return spec
	}
	if n > perNode {
		spec.Request.Nodes, spec.Request.GPUsPerNode = int32(min(n/perNode, nodes)), int32(perNode)
	}
	return spec
}

// fillerJob returns the job that fills node i. Neighbouring nodes' jobs end at different times.
func fillerJob(i int, s *PassSize) cluster.JobSpec {
	return cluster.JobSpec{
		Name: "filler", Owner: cluster.Identity{User: "user", UID: 10_001, GID: 10_001},
		TimeLimit: time.Duration(10+i*37%480) * time.Minute,
		Request:   cluster.Request{Nodes: 1, GPUsPerNode: int32(s.GPUsPerNode), TasksPerNode: 1, CPUsPerTask: max(1, int32(s.cpus()))},
	}
}

// cpus returns the CPUs that a job takes of each node; 0 on nodes with GPUs, which bound it instead.
func (s *PassSize) cpus() int {
	if s.GPUsPerNode > 0 {
		return 0
	}
	return s.CPUsPerNode
}
