package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// AttemptRecord is one attempt of a job: its allocation, its run time, and how it ended.
type AttemptRecord struct {
	Attempt   Attempt
	Partition string
	Started   Instant
	Ended     Instant // when its end was decided
	Outcome   JobState
	TRES      []Amount
	CPUTime   time.Duration // user and system, of all its tasks
	Account   string        // the time limit it ran under, whatever the job is changed to later; "": not recorded
	QOS       string        // likewise
	GPU       GPUUse        // of all its GPUs
	User      time.Duration // user time within CPUTime; 0 where unknown
	Detail    string        // why it ended
	Nodes     string        // its nodes at its end, as a hostlist; "": not recorded
	Exit      Exit          // of the job's script
	Held      HeldTime      // of an elastic job whose nodes have changed; else 0: TRES for the whole time
}

// HeldTime is how long an attempt had resources: their number multiplied by the time, in milliseconds.
type HeldTime struct {
	NodeMs, CPUMs, GPUMs int64
}

// add adds a node that was held for some time.
func (h *HeldTime) add(n *NodeAllocation, held time.Duration) {
	ms := max(held, 0).Milliseconds()
	h.NodeMs += ms
	h.CPUMs += int64(n.CPUs) * ms
	h.GPUMs += int64(len(n.GPUs)) * ms
}

// HeldUntil returns how long the current or last attempt has had its resources until an instant, if its nodes have
// changed; else 0. O(nodes).
func (j *Job) HeldUntil(end Instant) HeldTime {
	if j.Members == nil || j.Members.Resizes == 0 || j.Alloc == nil {
		return HeldTime{}
	}
	h := j.Members.Left.Held
	for rank := range j.Members.List {
		h.add(&j.Alloc.Nodes[rank], end.Sub(j.Members.List[rank].Joined))
	}
	return h
}

// maxAttemptNodes is the most bytes that are kept of the nodes of an earlier attempt.
const maxAttemptNodes = 4096

// EndedAttempt returns the record of an attempt that has ended, whose nodes are a hostlist. A hostlist above the limit
// is not kept. O(nodes).
func (j *Job) EndedAttempt(nodes string) AttemptRecord {
	r := j.ThisAttempt()
	if len(nodes) <= maxAttemptNodes {
		r.Nodes = nodes
	}
	r.Held = j.HeldUntil(j.Ended)
	return r
}

// ScriptExit returns how the script of an attempt that has ended did: the exit of the job, or of a script that was
// stopped.
func (j *Job) ScriptExit() Exit {
	if j.Exit.OK() && j.Tasks.Len() > 0 {
		return j.Tasks.At(0).Exit
	}
	return j.Exit
}

// RestartCauses counts the requeues of a job by cause.
type RestartCauses struct {
	NodeFailed int32 // its node was lost: silent, restarted or removed
	TaskFailed int32 // its node could not start the task or keep it running: runtime, file system, prolog, GPU
	Preempted  int32
	Requeued   int32 // by its user or an operator
	Retried    int32 // its own failure, which --retry-on names
	TimedOut   int32 // its time limit, after progress
	Damaged    int32 // the checkpoint to resume from was damaged
	Reclaimed  int32 // the cloud took its node back
}

// ProgressTime is how long an attempt runs to count as progress: the limit of restarts counts only cluster
// failures since the last such attempt. A job of a month on many nodes fails often, and still ends.
const ProgressTime = time.Hour

// Failure is the kind of failure that ended an attempt.
type Failure uint8

// The kinds.
const (
	NoFailure       Failure = iota
	HardwareFailure         // a node or a GPU was lost: another one can run the job at once
	LaunchFailure           // a node could not start the task or keep it running: runtime, file system, prolog
	OwnFailure              // the job failed by itself
)

// Words lists the causes with their counts, the most severe first; "" for none.
func (c RestartCauses) Words() string {
	var words []string
	for _, x := range []struct {
		n    int32
		what string
	}{{c.NodeFailed, "node failed"}, {c.TaskFailed, "task failed on its node"}, {c.Preempted, "preempted"}, {c.Requeued, "requeued"}, {c.Retried, "retried"}, {c.TimedOut, "continued at its time limit"}, {c.Damaged, "damaged checkpoint"}, {c.Reclaimed, "reclaimed by the cloud"}} {
		if x.n > 0 {
			words = append(words, fmt.Sprintf("%s %d", x.what, x.n))
		}
	}
	return strings.Join(words, ", ")
}

// count adds a restart to the cause of the attempt's end, and returns the kind of failure.
func (c *RestartCauses) count(outcome JobState, reason Reason, tasks *Tasks) Failure {
	ended := func(cause TaskCause) bool {
		return slices.ContainsFunc(tasks.List(), func(t Task) bool { return t.Cause == cause })
	}
	switch {
	case outcome == Preempted && reason == ReasonReclaimed:
		c.Reclaimed++
		return NoFailure
	case outcome == Preempted:
		c.Preempted++
		return NoFailure
	case outcome == Cancelled:
		c.Requeued++
		return NoFailure
	case outcome == TimedOut:
		c.TimedOut++
		return NoFailure
	case ended(CheckpointFailed): // each checkpoint can be damaged once
		c.Damaged++
		return NoFailure
	case ended(CredentialsRefused): // the job is held
		c.TaskFailed++
		return NoFailure
	case outcome == Failed || outcome == OutOfMemory:
		c.Retried++
		return OwnFailure
	case ended(NodeFault):
		c.TaskFailed++
		return LaunchFailure
	case ended(GPUFault):
		c.TaskFailed++
	default:
		c.NodeFailed++
	}
	return HardwareFailure
}

// CountRestart counts the requeue after the job's last attempt, and returns the kind of failure that caused
// it.
func (j *Job) CountRestart() Failure {
	if j.Started > 0 && j.Ended.Sub(j.Started) >= ProgressTime {
		j.Failures = 0
	}
	j.Restarts++
	failure := j.Causes.count(j.Outcome, j.Reason, j.Tasks)
	switch failure {
	case HardwareFailure, LaunchFailure:
		j.Failures++
	case OwnFailure:
		j.Retries++
	}
	return failure
}

// maxAttempts is the number of earlier attempts of a job that are kept.
const maxAttempts = 16

// AppendAttempt returns a copy of the earlier attempts with one more, the newest 16 of them.
func AppendAttempt(earlier []AttemptRecord, r AttemptRecord) []AttemptRecord {
	from := max(0, len(earlier)+1-maxAttempts)
	return append(append(make([]AttemptRecord, 0, len(earlier)-from+1), earlier[from:]...), r)
}

// ThisAttempt returns the record of the job's current or last attempt. O(nodes).
func (j *Job) ThisAttempt() AttemptRecord {
	r := AttemptRecord{Attempt: j.Attempt, Partition: j.Partition, Started: j.Started, Ended: j.Ended, Outcome: j.Outcome, TRES: j.TRES, Exit: j.ScriptExit()}
	if j.Spec != nil {
		r.Account, r.QOS = j.Spec.Account, j.Spec.QOS
	}
	if j.State.Final() {
		r.Outcome = j.State
	}
	if r.Outcome != 0 {
		r.Detail = j.Detail
	}
	if m := j.Members; m != nil {
		r.CPUTime, r.User, r.GPU = m.Left.CPUTime, m.Left.User, m.Left.GPU
	}
	for _, t := range j.Tasks.All() {
		r.CPUTime += t.CPUTime
		r.User += t.User
		r.GPU = r.GPU.Plus(t.GPU)
	}
	return r
}
