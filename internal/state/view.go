package state

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state/crontab"
	"github.com/greylag/greylag/internal/state/hosts"
	"github.com/greylag/greylag/internal/state/secrets"
	"github.com/greylag/greylag/internal/state/totals"
	"github.com/greylag/greylag/pkg/cluster"
)

// View is the state at one instant. It never changes; any number of goroutines may use it. The
// results of its methods are shared and must not be changed.
type View struct {
	tables
	digest uint64
}

// Counts is the number of records in the state.
type Counts struct {
	ByState  [cluster.OutOfMemory + 1]int // active jobs by state
	Active   int
	Nodes    int
	Finished uint64 // jobs that have ended since the cluster began
	Requests int    // request IDs stored
	Blobs    int
	Tokens   int
}

// Index is the log index of the last command in the view.
func (v *View) Index() uint64 { return v.index }

// Now is the log's clock at that command.
func (v *View) Now() cluster.Instant { return v.now }

// Digest is the state's digest at that command.
func (v *View) Digest() uint64 { return v.digest }

// ClusterID is the cluster's identity; "" before Init.
func (v *View) ClusterID() string { return v.clusterID }

// Policy is the policy in force.
func (v *View) Policy() *cluster.Policy { return v.policy }

// Job finds a job that is active, or has ended and is still in the tail. O(log n).
func (v *View) Job(id cluster.JobID) (*cluster.Job, bool) { return v.job(id) }

// Resolve lists the jobs that ref names: one job, one element, or all elements of an array that are
// active or still in the tail. O(elements log n).
func (v *View) Resolve(ref cluster.JobRef) []cluster.JobID { return v.resolve(ref) }

// Jobs yields the active jobs with IDs above after, ascending. O(log n) to the first.
func (v *View) Jobs(after cluster.JobID) iter.Seq[*cluster.Job] {
	return func(yield func(*cluster.Job) bool) {
		next, stop := iter.Pull2(v.holding.From(after + 1))
		defer stop()
		_, other, more := next()
		for id, j := range v.pending.From(after + 1) {
			for more && other.ID < id {
				if !yield(other) {
					return
				}
				_, other, more = next()
			}
			if !yield(j) {
				return
			}
		}
		for more && yield(other) {
			_, other, more = next()
		}
	}
}

// Active yields the active jobs in no particular order.
func (v *View) Active() iter.Seq[*cluster.Job] { return v.allActive }

// UserJobs yields the active jobs of a user with IDs above after, ascending. O(log n) per job.
func (v *View) UserJobs(user string, after cluster.JobID) iter.Seq[*cluster.Job] {
	return func(yield func(*cluster.Job) bool) {
		for k := range v.users.From(userJob{user, after + 1}) {
			if j, found := v.active(k.id); k.user != user || !found || !yield(j) {
				return
			}
		}
	}
}

// Node finds a node by name. O(log n).
func (v *View) Node(name string) (*cluster.Node, bool) { return v.nodes.Get(name) }

// Nodes yields all nodes by name.
func (v *View) Nodes() iter.Seq[*cluster.Node] { return v.nodes.Values() }

// Use returns the use of a node; GPUs has an entry for each of its GPUs. O(log n).
func (v *View) Use(node string) cluster.NodeUse {
	u, _ := v.uses.Get(node)
	n, known := v.nodes.Get(node)
	if known && len(u.GPUs) < len(n.GPUs) {
		u.GPUs = append(make([]bool, 0, len(n.GPUs)), u.GPUs...)[:len(n.GPUs)]
	}
	return u
}

// OnNode yields the jobs that have an allocation on a node, by ID, each with the rank of the node in it.
// O(log n) per job.
func (v *View) OnNode(name string) iter.Seq2[*cluster.Job, int] {
	return func(yield func(*cluster.Job, int) bool) {
		for k, rank := range v.onNode.From(nodeJob{name, 0}) {
			if j, found := v.holding.Get(k.id); k.node != name || !found || !yield(j, rank) {
				return
			}
		}
	}
}

// Counts returns the counts. O(1).
func (v *View) Counts() Counts {
	return Counts{
		ByState: v.states, Active: v.live(), Nodes: v.nodes.Len(), Finished: v.finished,
		Requests: v.requests.Len(), Blobs: v.blobs.Len(), Tokens: v.hosts.Tokens(),
	}
}

// Tail yields the finished jobs that the state still holds with a sequence number
// above afterSeq, ascending.
func (v *View) Tail(afterSeq uint64) iter.Seq[Finished] {
	return func(yield func(Finished) bool) {
		for seq, j := range v.tail.From(afterSeq + 1) {
			if !yield(Finished{Seq: seq, Job: j, Record: command.EncodeJob(j)}) {
				return
			}
		}
	}
}

// FinishedSeq is the sequence number of the newest finished job; 0 for none.
func (v *View) FinishedSeq() uint64 { return v.finished }

// Totals returns what happened to jobs since the cluster began. It must not be changed.
func (v *View) Totals() *totals.Totals { return &v.totals }

// HasBlob reports whether a submission may name a blob without sending its content again. A result
// of true holds for an hour of log time. O(log n).
func (v *View) HasBlob(d cluster.Digest) bool { return v.blobs.Known(d) }

// Blobs yields the digests that a submission may name, ascending.
func (v *View) Blobs() iter.Seq[cluster.Digest] { return v.blobs.Digests() }

// Needs reports whether a job that has not ended names a script or environment. O(log n).
func (v *View) Needs(d cluster.Digest) bool { return v.blobs.Needed(d) }

// Hosts returns the tables of hosts. They must not be changed.
func (v *View) Hosts() *hosts.Hosts { return &v.hosts }

// Crontab returns the table of recurring jobs. It must not be changed.
func (v *View) Crontab() *crontab.Crontab { return &v.crontab }

// Secrets returns the table of secrets. It must not be changed.
func (v *View) Secrets() *secrets.Secrets { return &v.secrets }

// Snapshot returns the input of a scheduling pass. O(active jobs + nodes).
func (v *View) Snapshot() *cluster.Snapshot {
	shot := &cluster.Snapshot{
		Index: v.index, Now: v.now, Policy: v.policy, Switches: v.fabric.switches, Accounts: v.accounts.View(), Prices: v.credits.Prices(v.now),
		OverBudget: v.credits.OverBudget(v.policy, v.now),
		Models:     v.partitions.Models,
		Burst:      v.leases.View(v.leaseEnv()),
		Nodes:      make([]*cluster.Node, 0, v.nodes.Len()),
		Active:     make([]*cluster.Job, 0, v.holding.Len()),
		Pending:    make([]*cluster.Job, 0, v.pending.Len()),
	}
	for _, n := range v.nodes.All() {
		shot.Nodes = append(shot.Nodes, n)
	}
	for _, j := range v.holding.All() {
		shot.Active = append(shot.Active, j)
	}
	for _, j := range v.pending.All() {
		shot.Pending = append(shot.Pending, j)
	}
	for id, j := range v.credits.PartlyFunded() {
		i, _ := slices.BinarySearchFunc(shot.Pending, id, func(j *cluster.Job, id cluster.JobID) int { return cmp.Compare(j.ID, id) })
		shot.Pending[i] = j
	}
	shot.Ended = func(id cluster.JobID) *cluster.Job {
		seq, ended := v.ended.Get(id)
		if !ended {
			return nil
		}
		j, _ := v.tail.Get(seq)
		return j
	}
	shot.Elements = func(id cluster.JobID) (cluster.JobID, int32, bool) {
		a, known := v.arrays.Get(id)
		return id, a.count, known
	}
	shot.Element = func(id cluster.JobID, index int32) (cluster.JobID, bool) {
		a, _ := v.arrays.Get(id)
		n, found := a.element(index)
		return id + cluster.JobID(n), found
	}
	return shot
}

// PartitionNodes lists the registered nodes of a partition by name. O(1).
func (v *View) PartitionNodes(name string) []string {
	return v.partitions.Partition(name).Nodes()
}

// Signals lists the signals that were requested in the job's present attempt, the newest 16.
func (v *View) Signals(id cluster.JobID) []Signal {
	list, _ := v.signals.Get(id)
	return list
}

// NextDue returns the earliest instant at which a Tick would change a job, a lease, a bill or a bucket;
// [cluster.Never] for none. It may be in the past. O(log n).
func (v *View) NextDue() cluster.Instant {
	due := cluster.Never
	if k, _, found := v.due.First(); found {
		due = k.at
	}
	return min(due, v.credits.NextDue(v.now), v.leases.NextDue())
}

// NothingNew reports whether applying the report would change nothing, so that it need not be
// proposed. A report that would be refused must be proposed. O((tasks of the node) log n).
func (v *View) NothingNew(r *command.ReportTasks) bool {
	n := v.reportDiffOf(r)
	return n.refusal == nil && n.node == nil && n.lease == nil && len(n.jobs)+len(n.late)+len(n.proven) == 0
}

// CheckSupported refuses limits of kinds that only a newer form of the credit journal has, until
// every controller writes that form: an older one would compute another state.
func (v *View) CheckSupported(limits []cluster.Limit) *command.Refusal {
	return v.checkSupported(limits, cluster.LimitKind.Form)
}

// checkSupported is CheckSupported, where formOf returns the first form that has a kind of limit.
func (v *View) checkSupported(limits []cluster.Limit, formOf func(cluster.LimitKind) uint8) *command.Refusal {
	for _, l := range limits {
		if formOf(l.Kind) > v.Credits().Format() {
			return command.WithHint(command.Refusef(command.Conflict, "%s: not all controllers support this limit yet", l.Kind), "gctl cluster status lists the controllers to upgrade")
		}
	}
	return nil
}

// lastRuns is the number of the newest runs of a kind of job that count.
const lastRuns = 8

// kind identifies jobs that are expected to run for similar times.
type kind struct {
	user, name  string
	script      cluster.Digest
	nodes, gpus int32
}

func kindOf(spec *cluster.JobSpec) kind {
	q := &spec.Request
	return kind{spec.Owner.User, spec.Name, spec.Script, q.Nodes, q.TotalGPUs()}
}

// RunTimes returns the usual run time of jobs of a specification: the upper median of the newest
// eight that completed, of the same user, name, script and size; false if there are none. Only the
// tail of finished jobs counts. The result is for messages, never for a plan. O(finished jobs of
// the tail).
func (v *View) RunTimes() func(*cluster.JobSpec) (time.Duration, bool) {
	runs := map[kind][]time.Duration{}
	for _, j := range v.tail.All() {
		if j.State != cluster.Completed || j.Started == 0 || j.Ended < j.Started {
			continue
		}
		k := kindOf(j.Spec)
		list := append(runs[k], j.Ended.Sub(j.Started))
		runs[k] = list[max(0, len(list)-lastRuns):]
	}
	return func(spec *cluster.JobSpec) (time.Duration, bool) {
		list := slices.Sorted(slices.Values(runs[kindOf(spec)]))
		if len(list) == 0 {
			return 0, false
		}
		return list[len(list)/2], true
	}
}
