package controllers

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/greylag/greylag/internal/metrics"
	"github.com/greylag/greylag/internal/report/tally"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/state/totals"
	"github.com/greylag/greylag/pkg/cluster"
)

// Cluster collects the state of the cluster from one view for each scrape. A view never changes, so
// a scrape holds no lock while it counts.
type Cluster struct {
	metrics.Families
	view     func() *state.View // nil while another controller leads
	accounts bool               // whether accounts are reported
	slurm    *slurm             // nil: not enabled

	jobs, pending, unfenced, oldest, planned, promises    *metrics.Family
	submitted, started, finished, requeued                *metrics.Family
	wait, run                                             *metrics.Family
	made, kept, broken, preemptions                       *metrics.Family
	nodes, partitionNodes, conditions, undrained, repairs *metrics.Family
	gpus, cpus, memory, stranded, licences                *metrics.Family
	accountGPUs, accountUsage, accountShares              *metrics.Family
	fairShare, levelFS                                    *metrics.Family
	balance, aside, debt, charged, budget                 *metrics.Family
	ledger, audit                                         *metrics.Family
	burst                                                 burstFamilies
}

// NewCluster returns a collector of the view that a function returns; nil: nothing is reported.
// accounts adds the accounts with their usage and credits.
func NewCluster(view func() *state.View, accounts bool) *Cluster {
	c := &Cluster{view: view, accounts: accounts}
	c.jobs = c.Gauge("greylag_jobs", "Jobs that have not ended.", "state", "partition")
	c.pending = c.Gauge("greylag_jobs_pending", "Pending jobs by the reason why they are pending.", "reason", "partition")
	c.unfenced = c.Gauge("greylag_jobs_unfenced", "Jobs whose next attempt waits for proof that lost nodes run none of their tasks.", "partition")
	c.oldest = c.Gauge("greylag_jobs_pending_oldest_timestamp_seconds", "Since when the oldest pending job waits that waits only for resources, licences or jobs of higher priority.", "partition", "qos")
	c.planned = c.Gauge("greylag_scheduler_planned_jobs", "Pending jobs with a planned start.")
	c.promises = c.Gauge("greylag_promises", "Pending jobs with a promised start.")
	c.submitted = c.Counter("greylag_jobs_submitted_total", "Jobs submitted since the cluster began.", "partition")
	c.started = c.Counter("greylag_jobs_started_total", "Job attempts started.", "partition")
	c.finished = c.Counter("greylag_jobs_finished_total", "Jobs finished, by final state.", "partition", "outcome")
	c.requeued = c.Counter("greylag_jobs_requeued_total", "Jobs requeued, by cause.", "partition", "cause")
	c.wait = c.Histogram("greylag_job_wait_seconds", "Time from the eligibility of a job attempt to its start.", "partition", "qos")
	c.run = c.Histogram("greylag_job_run_seconds", "Run time of job attempts.", "partition", "qos")
	c.made = c.Counter("greylag_promises_made_total", "Promised starts made.")
	c.kept = c.Counter("greylag_promises_kept_total", "Promised starts kept.")
	c.broken = c.Counter("greylag_promises_broken_total", "Promised starts broken, by cause.", "cause")
	c.preemptions = c.Counter("greylag_preemptions_total", "Job attempts preempted, by what happened to the job.", "mode")
	c.nodes = c.Gauge("greylag_nodes", "Nodes by state, and whether an administrator drained them.", "state", "drain")
	c.conditions = c.Gauge("greylag_node_conditions", "Nodes with a condition that they report, by its cause and effect.", "cause", "effect")
	c.undrained = c.Gauge("greylag_nodes_undrained", "Nodes in service that a condition would drain: too many nodes were drained for its cause, or an operator resumed them.")
	c.repairs = c.Gauge("greylag_nodes_repair", "Nodes that need a repair, or have a GPU that does.", "repair")
	c.partitionNodes = c.Gauge("greylag_partition_nodes", "Nodes of a partition by state; a node counts in each of its partitions.", "state", "partition")
	c.gpus = c.Gauge("greylag_gpus", "GPUs by type and use.", "type", "use")
	c.cpus = c.Gauge("greylag_cpus", "CPUs by use.", "use")
	c.memory = c.Gauge("greylag_memory_bytes", "Memory of nodes by use.", "use")
	c.stranded = c.Gauge("greylag_gpus_stranded", "Idle GPUs on partly allocated nodes.", "type")
	c.licences = c.Gauge("greylag_licences", "Licences by use.", "licence", "use")
	c.accountGPUs = c.Gauge("greylag_account_gpus", "GPUs allocated to an account, without its sub-accounts.", "account")
	c.accountUsage = c.Gauge("greylag_account_usage_ratio", "Decayed usage of an account and its sub-accounts, as a fraction of the cluster's.", "account")
	c.accountShares = c.Gauge("greylag_account_shares_ratio", "Normalized shares of an account: among its siblings (fair_tree) or in the cluster (classic).", "account")
	c.fairShare = c.Gauge("greylag_account_fairshare_factor", "Fair-share factor of an account, with the algorithm classic.", "account")
	c.levelFS = c.Gauge("greylag_account_level_fs", "Shares of an account divided by its usage, among its siblings (LevelFS), with the algorithm fair-tree.", "account")
	c.balance = c.Gauge("greylag_credits_balance", "Unspent credits of an account, by class.", "account", "class")
	c.aside = c.Gauge("greylag_credits_set_aside", "Credits set aside (held) for the jobs of an account and its sub-accounts.", "account")
	c.debt = c.Gauge("greylag_credits_debt", "Credits that an account and its sub-accounts owe.", "account")
	c.charged = c.Gauge("greylag_credits_charged", "Credits charged to an account and its sub-accounts since the cluster began, minus refunds.", "account")
	c.budget = c.Gauge("greylag_budget_used_ratio", "Used fraction of the budget of an account.", "account", "window")
	c.burst = newBurstFamilies(&c.Families)
	c.ledger = c.Counter("greylag_ledger_entries_total", "Entries in the credit journal.")
	c.audit = c.Counter("greylag_audit_entries_total", "Entries in the audit journal.")
	return c
}

// Collect implements prometheus.Collector.
func (c *Cluster) Collect(out chan<- prometheus.Metric) {
	v := c.view()
	if v == nil {
		return
	}
	sink := metrics.Sink(out)
	s := survey(v)
	c.putJobs(sink, s)
	c.putTotals(sink, v.Totals())
	c.putNodes(sink, v)
	c.putLicences(sink, v, s)
	c.putBurst(sink, v)
	booked, _ := v.Credits().Head()
	audited, _ := v.Audited()
	sink.Put(c.ledger, float64(booked))
	sink.Put(c.audit, float64(audited))
	if c.accounts {
		c.putAccounts(sink, v, s)
	}
	if c.slurm != nil {
		c.slurm.put(sink, v, s)
	}
}

// queue identifies jobs by partition and QOS.
type queue struct{ partition, qos string }

// partition counts the active jobs of one partition.
type partition struct {
	states  [cluster.Completing + 1]int
	reasons map[cluster.Reason]int
	held    int
	// unfenced jobs wait for proof that lost nodes are off.
	unfenced int
}

// jobSurvey is what one pass over the active jobs counts.
type jobSurvey struct {
	partitions        map[string]*partition
	oldest            map[queue]cluster.Instant
	planned, promised int
	accounts          map[string]*[cluster.Completing + 1]int // by state
	gpus              map[string]int                          // by account
	licences          map[string]int64                        // in use
}

// survey counts the active jobs. O(active jobs).
func survey(v *state.View) *jobSurvey {
	s := &jobSurvey{partitions: map[string]*partition{}, oldest: map[queue]cluster.Instant{}, accounts: map[string]*[cluster.Completing + 1]int{}, gpus: map[string]int{}, licences: map[string]int64{}}
	for i := range v.Policy().Partitions {
		s.of(v.Policy().Partitions[i].Name)
	}
	for j := range v.Active() {
		states := s.accounts[j.Spec.Account]
		if states == nil {
			states = new([cluster.Completing + 1]int)
			s.accounts[j.Spec.Account] = states
		}
		states[j.State]++
		if j.State.HasAllocation() {
			s.running(j)
		} else {
			s.pending(j)
		}
		if len(j.Unfenced) > 0 && (j.State == cluster.Pending || j.Returns) {
			s.of(cmp.Or(j.Partition, j.Spec.Partition)).unfenced++
		}
	}
	return s
}

func (s *jobSurvey) of(name string) *partition {
	p := s.partitions[name]
	if p == nil {
		p = &partition{reasons: map[cluster.Reason]int{}}
		s.partitions[name] = p
	}
	return p
}

func (s *jobSurvey) running(j *cluster.Job) {
	s.of(j.Partition).states[j.State]++
	for i := range j.Alloc.Nodes {
		s.gpus[j.Spec.Account] += len(j.Alloc.Nodes[i].GPUs)
	}
	for _, l := range j.Spec.Request.Licences {
		s.licences[l.Name] += int64(l.Count)
	}
}

func (s *jobSurvey) pending(j *cluster.Job) {
	p := s.of(j.Spec.Partition)
	p.states[cluster.Pending]++
	p.reasons[j.Reason]++
	if j.Hold != cluster.NotHeld {
		p.held++
	}
	if j.Planned > 0 {
		s.planned++
	}
	if j.Promise != nil {
		s.promised++
	}
	if !ready(j) {
		return
	}
	since, k := max(j.Submitted, j.Eligible), queue{j.Spec.Partition, j.Spec.QOS}
	if oldest, known := s.oldest[k]; !known || since < oldest {
		s.oldest[k] = since
	}
}

// ready reports whether a pending job waits for nothing but resources, licences and jobs of higher
// priority.
func ready(j *cluster.Job) bool {
	switch j.Reason {
	case cluster.ReasonNone, cluster.ReasonPriority, cluster.ReasonResources, cluster.ReasonLicenses:
		return j.Hold == cluster.NotHeld
	default:
		return false
	}
}

func (c *Cluster) putJobs(sink metrics.Sink, s *jobSurvey) {
	for name, p := range s.partitions {
		for state := cluster.Pending; state <= cluster.Completing; state++ {
			sink.Put(c.jobs, float64(p.states[state]), state.String(), name)
		}
		sink.Put(c.unfenced, float64(p.unfenced), name)
		for reason, n := range p.reasons {
			sink.Put(c.pending, float64(n), reason.String(), name)
		}
	}
	for k, since := range s.oldest {
		sink.PutTime(c.oldest, since.Time(), k.partition, k.qos)
	}
	sink.Put(c.planned, float64(s.planned))
	sink.Put(c.promises, float64(s.promised))
}

// putTotals reports what happened since the cluster began.
func (c *Cluster) putTotals(sink metrics.Sink, all *totals.Totals) {
	sums := map[string]*totals.Total{}
	var whole totals.Total
	for k, t := range all.All() {
		sum := sums[k.Partition]
		if sum == nil {
			sum = new(totals.Total)
			sums[k.Partition] = sum
		}
		sum.Add(t)
		whole.Add(t)
		if k != totals.Removed {
			c.putDurations(sink, c.wait, &t.Wait, k)
			c.putDurations(sink, c.run, &t.Run, k)
		}
	}
	for name, t := range sums {
		if name != totals.Removed.Partition {
			c.putPartition(sink, name, t)
		}
	}
	c.putPromises(sink, &whole)
}

func (c *Cluster) putPartition(sink metrics.Sink, name string, t *totals.Total) {
	sink.Put(c.submitted, float64(t.Submitted), name)
	sink.Put(c.started, float64(t.Started), name)
	for s := cluster.Completed; s <= cluster.OutOfMemory; s++ {
		if n := t.Finished(s); n > 0 {
			sink.Put(c.finished, float64(n), name, s.String())
		}
	}
	for cause, n := range map[string]uint64{"node": t.NodeFailed, "task": t.TaskFailed, "preempted": t.Preempted, "requested": t.Requeued} {
		if n > 0 {
			sink.Put(c.requeued, float64(n), name, cause)
		}
	}
}

func (c *Cluster) putPromises(sink metrics.Sink, t *totals.Total) {
	sink.Put(c.made, float64(t.PromisesMade))
	sink.Put(c.kept, float64(t.PromisesKept))
	for i := range tally.CauseClasses {
		class := tally.CauseClass(i)
		sink.Put(c.broken, float64(t.Broken(class)), class.String())
	}
	sink.Put(c.preemptions, float64(t.Preempted), "requeue")
	sink.Put(c.preemptions, float64(t.Finished(cluster.Preempted)), "cancel")
}

func (c *Cluster) putDurations(sink metrics.Sink, f *metrics.Family, d *totals.Durations, k totals.Key) {
	upTo, sum := make(map[float64]uint64, len(totals.Bounds)), uint64(0)
	for i, bound := range totals.Bounds {
		sum += d.Counts[i]
		upTo[bound.Seconds()] = sum
	}
	sum += d.Counts[len(totals.Bounds)]
	if sum > 0 {
		sink.PutDurations(f, upTo, sum, float64(d.Millis)/float64(time.Second/time.Millisecond), k.Partition, k.QOS)
	}
}
