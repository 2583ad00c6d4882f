package state

import (
	"io"
	"iter"

	"github.com/greylag/greylag/pkg/cluster"
)

// View is the state at one instant. It never changes; any number of goroutines
// may use it. What its methods return is shared and must not be changed.
type View struct {
	index     uint64
	now       cluster.Instant
	clusterID string
	policy    *cluster.Policy
}

// Counts is how much the state holds.
type Counts struct {
	ByState  [cluster.OutOfMemory + 1]int // active jobs by state
	Active   int
	Nodes    int
	Finished uint64 // jobs that have ended since the cluster began
	Requests int    // request ids remembered
	Blobs    int
	Tokens   int
}

// Signal is a signal that a user asked for and the node has to deliver once.
type Signal struct {
	ID        uint64 // ascending within a job
	Number    int32
	BatchOnly bool // only the script itself, not its children
}

// Encode writes a snapshot. Equal states write equal bytes, on every replica.
func (v *View) Encode(w io.Writer) error { return nil }

// Index is the log index of the last command in the view.
func (v *View) Index() uint64 { return v.index }

// Now is the log's clock at that command.
func (v *View) Now() cluster.Instant { return v.now }

// ClusterID is the cluster's identity; "" before Init.
func (v *View) ClusterID() string { return v.clusterID }

// Policy is the policy in force.
func (v *View) Policy() *cluster.Policy { return v.policy }

// Job finds a job that is active, or has ended and is still in the tail. O(log n).
func (v *View) Job(id cluster.JobID) (*cluster.Job, bool) { return nil, false }

// Resolve lists the jobs that ref means: one job, one element, or all elements of
// an array that are active or still in the tail. O(elements log n).
func (v *View) Resolve(ref cluster.JobRef) []cluster.JobID { return nil }

// Jobs yields the active jobs with ids above after, ascending.
func (v *View) Jobs(after cluster.JobID) iter.Seq[*cluster.Job] { return nothing[*cluster.Job] }

// UserJobs yields the active jobs of a user with ids above after, ascending.
// O(log n) a job.
func (v *View) UserJobs(user string, after cluster.JobID) iter.Seq[*cluster.Job] {
	return nothing[*cluster.Job]
}

// Node finds a node by name. O(log n).
func (v *View) Node(name string) (*cluster.Node, bool) { return nil, false }

// Nodes yields all nodes by name.
func (v *View) Nodes() iter.Seq[*cluster.Node] { return nothing[*cluster.Node] }

// Use is what is allocated on a node; GPUs has an entry for each of its GPUs. O(log n).
func (v *View) Use(node string) cluster.Use { return cluster.Use{} }

// OnNode yields the jobs that have an allocation on a node, by id.
func (v *View) OnNode(name string) iter.Seq[*cluster.Job] { return nothing[*cluster.Job] }

// Counts counts. O(1).
func (v *View) Counts() Counts { return Counts{} }

// Tail yields the finished jobs that the state still holds with a sequence number
// above afterSeq, ascending.
func (v *View) Tail(afterSeq uint64) iter.Seq[Finished] { return nothing[Finished] }

// FinishedSeq is the sequence number of the newest finished job; 0 for none.
func (v *View) FinishedSeq() uint64 { return 0 }

// HasBlob reports whether a blob may be named by a submission without sending its
// content again. O(log n).
func (v *View) HasBlob(d cluster.Digest) bool { return false }

// Snapshot is what a scheduling pass needs. O(active jobs + nodes).
func (v *View) Snapshot() *cluster.Snapshot {
	return &cluster.Snapshot{Index: v.index, Now: v.now, Policy: v.policy}
}

// PartitionNodes lists the registered nodes of a partition by name. O(1).
func (v *View) PartitionNodes(name string) []string { return nil }

// Signals lists the signals that were asked for in the job's present attempt, the
// newest 16.
func (v *View) Signals(id cluster.JobID) []Signal { return nil }

// NextDue is the earliest instant at which a Tick would change something, and
// [cluster.Never] when there is none. It may be in the past. O(log n).
func (v *View) NextDue() cluster.Instant { return cluster.Never }

func nothing[T any](func(T) bool) {}
