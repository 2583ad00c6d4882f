package controllers

import (
	"time"

	"github.com/greylag/greylag/internal/metrics"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// Slurm is the name of the metrics of Slurm 25.11 in metrics.compat of gctld.toml.
const Slurm = "slurm"

// slurm shows jobs, nodes and passes under the names of Slurm's own metrics. Each job counts in one
// state. Passes are shown as backfill cycles: each pass plans all pending jobs.
type slurm struct {
	process  *Process
	families map[string]*metrics.Family
}

// slurmJobStates and slurmNodeStates are the ends of Slurm's names.
var (
	slurmJobStates = map[cluster.JobState]string{
		cluster.Pending: "pending", cluster.Configuring: "configuring", cluster.Running: "running", cluster.Completing: "completing",
	}
	slurmNodeStates = map[cluster.NodeState]string{
		cluster.NodeIdle: "idle", cluster.NodeMixed: "mixed", cluster.NodeAllocated: "alloc", cluster.NodeDraining: "draining",
		cluster.NodeDrained: "drained", cluster.NodeUnknown: "unknown", cluster.NodeDown: "down",
	}
)

// EnableSlurmCompat adds the metrics under Slurm's names; process has the passes.
func (c *Cluster) EnableSlurmCompat(process *Process) {
	s := &slurm{process: process, families: map[string]*metrics.Family{}}
	add := func(name, help string, labels ...string) { s.families[name] = c.Gauge("slurm_"+name, help, labels...) }
	add("jobs", "Total number of jobs")
	add("jobs_hold", "Number of jobs in Hold state")
	add("partitions", "Total number of partitions")
	add("partition_jobs", "Number of jobs in this partition", "partition")
	add("partition_jobs_hold", "Number of jobs in Hold state", "partition")
	for _, state := range slurmJobStates {
		add("jobs_"+state, "Number of jobs in this state")
		add("partition_jobs_"+state, "Number of jobs in this state", "partition")
		if c.accounts {
			add("account_jobs_"+state, "Number of jobs in this state", "account")
		}
	}
	add("nodes", "Total number of nodes")
	add("partition_nodes", "Partition total nodes", "partition")
	add("partition_cpus", "Partition total cpus", "partition")
	add("partition_nodes_cpus_alloc", "Number of allocated cpus", "partition")
	for _, state := range slurmNodeStates {
		add("nodes_"+state, "Number of nodes in this state")
		add("partition_nodes_"+state, "Number of nodes in this state", "partition")
	}
	add("bf_cycle_cnt", "Backfill cycle count")
	add("bf_cycle_last", "Last backfill cycle time, in microseconds")
	add("bf_cycle_max", "Max backfill cycle time, in microseconds")
	add("bf_cycle_tot", "Sum of backfill cycle times, in microseconds")
	add("bf_when_last_cycle", "Timestamp of last backfill cycle")
	add("bf_queue_len", "Backfill queue length")
	c.slurm = s
}

// put reports the state of a view, and the passes of this controller.
func (s *slurm) put(sink metrics.Sink, v *state.View, jobs *jobSurvey) {
	s.putJobs(sink, v, jobs)
	s.putNodes(sink, v)
	cycles := s.process.cycles()
	for name, value := range map[string]float64{
		"bf_cycle_cnt": float64(cycles.count), "bf_cycle_last": float64(cycles.last.Microseconds()),
		"bf_cycle_max": float64(cycles.max.Microseconds()), "bf_cycle_tot": float64(cycles.total.Microseconds()),
	} {
		sink.Put(s.families[name], value)
	}
	sink.PutTime(s.families["bf_when_last_cycle"], cycles.at.Truncate(time.Second))
}

func (s *slurm) putJobs(sink metrics.Sink, v *state.View, jobs *jobSurvey) {
	var all, held int
	var sums [cluster.Completing + 1]int
	for name, p := range jobs.partitions {
		sum := 0
		for state, end := range slurmJobStates {
			sink.Put(s.families["partition_jobs_"+end], float64(p.states[state]), name)
			sums[state] += p.states[state]
			sum += p.states[state]
		}
		sink.Put(s.families["partition_jobs"], float64(sum), name)
		sink.Put(s.families["partition_jobs_hold"], float64(p.held), name)
		all, held = all+sum, held+p.held
	}
	for state, end := range slurmJobStates {
		sink.Put(s.families["jobs_"+end], float64(sums[state]))
	}
	sink.Put(s.families["jobs"], float64(all))
	sink.Put(s.families["jobs_hold"], float64(held))
	sink.Put(s.families["bf_queue_len"], float64(sums[cluster.Pending]))
	if s.families["account_jobs_pending"] == nil || len(accountsOf(v)) > maxAccounts {
		return
	}
	for account, states := range jobs.accounts {
		for state, end := range slurmJobStates {
			sink.Put(s.families["account_jobs_"+end], float64(states[state]), account)
		}
	}
}

// slurmNodes counts the nodes of a partition, or all.
type slurmNodes struct {
	states          nodeCounts
	cpus, allocated int
}

func (x *slurmNodes) add(n *cluster.Node, u cluster.NodeUse) {
	x.states[n.State(u)]++
	x.cpus += int(n.CPUs)
	if u.Whole {
		x.allocated += int(n.CPUs)
	} else {
		x.allocated += int(u.CPUs)
	}
}

func (s *slurm) putNodes(sink metrics.Sink, v *state.View) {
	var all slurmNodes
	for n := range v.Nodes() {
		all.add(n, v.Use(n.Name))
	}
	sink.Put(s.families["nodes"], float64(v.Counts().Nodes))
	for state, end := range slurmNodeStates {
		sink.Put(s.families["nodes_"+end], float64(all.states[state]))
	}
	partitions := v.Policy().Partitions
	sink.Put(s.families["partitions"], float64(len(partitions)))
	for i := range partitions {
		var part slurmNodes
		name := partitions[i].Name
		names := v.PartitionNodes(name)
		for _, node := range names {
			if n, known := v.Node(node); known {
				part.add(n, v.Use(node))
			}
		}
		sink.Put(s.families["partition_nodes"], float64(len(names)), name)
		sink.Put(s.families["partition_cpus"], float64(part.cpus), name)
		sink.Put(s.families["partition_nodes_cpus_alloc"], float64(part.allocated), name)
		for state, end := range slurmNodeStates {
			sink.Put(s.families["partition_nodes_"+end], float64(part.states[state]), name)
		}
	}
}

// passCycles are the passes of a controller since its start.
type passCycles struct {
	count            int
	last, max, total time.Duration
	at               time.Time
}

// cycles returns the passes so far.
func (p *Process) cycles() passCycles {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cycled
}
