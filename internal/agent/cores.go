package agent

import (
	"slices"

	"github.com/greylag/greylag/internal/reconcile"
)

// core is one logical CPU of the host. In the order of cores, CPUs of one NUMA node are adjacent,
// and so are the hardware threads of one core.
type core struct {
	cpu, numa int
}

// cores tracks which CPUs are reserved for which task. If the node is configured with more CPUs
// than it has, it reserves none: tasks share them by quota.
type cores struct {
	all   []core
	owner map[int]reconcile.ID // by CPU
	pin   bool
}

func newCores(h host) cores {
	return cores{all: h.cores, owner: map[int]reconcile.ID{}, pin: h.cpus <= len(h.cores)}
}

// take reserves n CPUs, from one NUMA node if one has enough, preferring the given one (-1: any).
// It returns nil if fewer than n are free. O(CPUs).
func (c *cores) take(id reconcile.ID, n int32, numa int) []int {
	if !c.pin || n <= 0 {
		return nil
	}
	free := map[int][]int{} // by NUMA node
	var nodes, every []int
	for _, core := range c.all {
		if _, taken := c.owner[core.cpu]; taken {
			continue
		}
		if free[core.numa] == nil {
			nodes = append(nodes, core.numa)
		}
		free[core.numa] = append(free[core.numa], core.cpu)
		every = append(every, core.cpu)
	}
	if len(every) < int(n) {
		return nil
	}
	chosen := every[:n]
	// The fullest node that still fits leaves the others whole.
	best := -1
	for _, node := range nodes {
		fits := len(free[node]) >= int(n)
		if fits && (best < 0 || node == numa || best != numa && len(free[node]) < len(free[best])) {
			best = node
		}
	}
	if best >= 0 {
		chosen = free[best][:n]
	}
	chosen = slices.Clone(chosen)
	slices.Sort(chosen)
	c.mark(id, chosen)
	return chosen
}

// mark records CPUs that a task already has.
func (c *cores) mark(id reconcile.ID, cpus []int) {
	for _, cpu := range cpus {
		c.owner[cpu] = id
	}
}

// free releases the CPUs of a task.
func (c *cores) free(id reconcile.ID) {
	for cpu, owner := range c.owner {
		if owner == id {
			delete(c.owner, cpu)
		}
	}
}

// numaOf returns the NUMA node of most of the task's GPUs; -1 for none.
func (a *Agent) numaOf(t *task) int {
	votes, best := map[int]int{}, -1
	for _, index := range t.own().GetGpus() {
		if index < 0 || int(index) >= len(a.inventory.Devices) {
			continue
		}
		if numa := int(a.inventory.Devices[index].NUMA); numa >= 0 {
			votes[numa]++
			if best < 0 || votes[numa] > votes[best] {
				best = numa
			}
		}
	}
	return best
}

// uuidsOf lists the GPUs of a task.
func (a *Agent) uuidsOf(t *task) []string {
	var list []string
	for _, index := range t.own().GetGpus() {
		if index >= 0 && int(index) < len(a.inventory.Devices) {
			list = append(list, a.inventory.Devices[index].UUID)
		}
	}
	return list
}
