package controllers

import (
	"github.com/greylag/greylag/internal/metrics"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// use is what a resource of a node is used for.
type use int

const (
	allocated use = iota
	idle
	drained
	down
	faulty
	uses
)

func (u use) String() string {
	return [...]string{"allocated", "idle", "drained", "down", "faulty"}[u]
}

// freeUse returns the use of what is not allocated on a node.
func freeUse(n *cluster.Node) use {
	switch {
	case n.Liveness != cluster.Alive:
		return down
	case n.Drain || n.Fault != "" || n.Orphans > 0:
		return drained
	}
	return idle
}

// capacity is the resources of all nodes by use.
type capacity struct {
	gpus     map[string]*[uses]int64 // by type
	cpus     [faulty]int64
	memory   [faulty]int64
	stranded map[string]int64 // by type
}

func (c *Cluster) putNodes(sink metrics.Sink, v *state.View) {
	all := capacity{gpus: map[string]*[uses]int64{}, stranded: map[string]int64{}}
	states := make(map[string]cluster.NodeState, v.Counts().Nodes)
	var counts [2]nodeCounts // those that an administrator drained are second
	for n := range v.Nodes() {
		u := v.Use(n.Name)
		s := n.State(u)
		states[n.Name] = s
		if n.Drain {
			counts[1][s]++
		} else {
			counts[0][s]++
		}
		all.add(n, u)
	}
	c.putNodeStates(sink, counts)
	c.putConditions(sink, v)
	c.putPartitionNodes(sink, v, states)
	for name, by := range all.gpus {
		for u := range uses {
			sink.Put(c.gpus, float64(by[u]), name, u.String())
		}
		sink.Put(c.stranded, float64(all.stranded[name]), name)
	}
	for u := range faulty {
		sink.Put(c.cpus, float64(all.cpus[u]), u.String())
		sink.Put(c.memory, float64(all.memory[u]), u.String())
	}
}

// putConditions counts the nodes by what they report about their health.
func (c *Cluster) putConditions(sink metrics.Sink, v *state.View) {
	type kind struct{ cause, effect string }
	nodes, repairs, undrained := map[kind]int{}, map[cluster.Repair]int{}, 0
	for n := range v.Nodes() {
		seen := map[kind]bool{}
		for _, x := range n.Conditions {
			if k := (kind{x.Cause, x.Effect.String()}); !seen[k] {
				seen[k] = true
				nodes[k]++
			}
		}
		repairs[n.Repair()]++
		if len(n.Undrained()) > 0 {
			undrained++
		}
	}
	for k, count := range nodes {
		sink.Put(c.conditions, float64(count), k.cause, k.effect)
	}
	for r := cluster.RepairReset; r <= cluster.RepairReboot; r++ {
		sink.Put(c.repairs, float64(repairs[r]), r.String())
	}
	sink.Put(c.undrained, float64(undrained))
}

// add adds a node.
func (x *capacity) add(n *cluster.Node, u cluster.NodeUse) {
	free := freeUse(n)
	cpus, memory := u.CPUs, u.Memory
	if u.Whole {
		cpus, memory = n.CPUs, n.Memory
	}
	x.cpus[allocated] += int64(cpus)
	x.cpus[free] += int64(max(n.CPUs-cpus, 0))
	x.memory[allocated] += int64(memory)
	x.memory[free] += int64(max(n.Memory-memory, 0))
	for i := range n.GPUs {
		by := x.gpus[n.GPUs[i].Type]
		if by == nil {
			by = new([uses]int64)
			x.gpus[n.GPUs[i].Type] = by
		}
		switch {
		case u.Whole || i < len(u.GPUs) && u.GPUs[i]:
			by[allocated]++
		case n.GPUs[i].Fault != "":
			by[faulty]++
		default:
			by[free]++
			if free == idle && u.Jobs > 0 {
				x.stranded[n.GPUs[i].Type]++
			}
		}
	}
}

// nodeCounts counts nodes by state.
type nodeCounts [cluster.NodeDown + 1]int

func (c *Cluster) putNodeStates(sink metrics.Sink, counts [2]nodeCounts) {
	for i, drain := range [...]string{"false", "true"} {
		for s := cluster.NodeIdle; s <= cluster.NodeDown; s++ {
			sink.Put(c.nodes, float64(counts[i][s]), s.String(), drain)
		}
	}
}

func (c *Cluster) putPartitionNodes(sink metrics.Sink, v *state.View, states map[string]cluster.NodeState) {
	for i := range v.Policy().Partitions {
		name := v.Policy().Partitions[i].Name
		var counts nodeCounts
		for _, node := range v.PartitionNodes(name) {
			counts[states[node]]++
		}
		for s := cluster.NodeIdle; s <= cluster.NodeDown; s++ {
			sink.Put(c.partitionNodes, float64(counts[s]), s.String(), name)
		}
	}
}

// putLicences reports the licences of the policy.
func (c *Cluster) putLicences(sink metrics.Sink, v *state.View, s *jobSurvey) {
	for _, l := range v.Policy().Scheduling.Licences {
		used := s.licences[l.Name]
		sink.Put(c.licences, float64(used), l.Name, allocated.String())
		sink.Put(c.licences, float64(max(int64(l.Count)-used, 0)), l.Name, idle.String())
	}
}
